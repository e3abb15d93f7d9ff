"""`oncelog produce` writes records from lines, whole files, or the JSON output of `consume`."""

import io
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import Parameter

from ..deploy.cluster.failure import Failure
from ..deploy.cluster.terminal import counted, say
from .common import DEFAULT_CLUSTER, ClusterOptions, Registry, pairs, registry_url
from .records.encoders import Encode, Encoder, encoder

if TYPE_CHECKING:
    from ..client.cluster_view import ClusterView
    from ..client.producer import Producer
    from .records.json_lines import NewRecord
    from .records.registry import Part

LINES_AHEAD = 10_000
READ_BYTES = 1 << 20
OBSTACLE_S = 3.0
T = TypeVar("T")
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]


async def produce(
    topic: Annotated[str, Parameter(help="The topic, or one partition as TOPIC/PARTITION.")],
    /,
    *files: Annotated[Path, Parameter(help="Read these files instead of stdin. - means stdin.")],
    key: Annotated[str | None, Parameter(help="The key of all records.")] = None,
    key_separator: Annotated[
        str | None, Parameter(help="Split each line into key and value at this separator.")
    ] = None,
    header: Annotated[
        list[str] | None,
        Parameter(
            name=["--header", "-H"],
            help="A header as NAME=VALUE. The option may be repeated.",
            negative=(),
        ),
    ] = None,
    partition: Annotated[int | None, Parameter(help="The partition of all records.")] = None,
    timestamp: Annotated[
        str | None,
        Parameter(
            help="The timestamp of all records, as milliseconds or as a time (2026-01-31T12:00)."
        ),
    ] = None,
    json: Annotated[
        bool,
        Parameter(
            help="Read each line as a record in the format of `consume --format json`. It has key, "
            "value, headers, partition and timestamp.",
            negative=(),
        ),
    ] = False,
    whole: Annotated[
        bool, Parameter(help="Write each file as one record, unchanged.", negative=())
    ] = False,
    encode: Annotated[
        Encode, Parameter(help="The format of values. Except for raw, they are read as JSON.")
    ] = "raw",
    encode_key: Annotated[
        Encode, Parameter(help="The format of keys. Except for raw, they are read as JSON.")
    ] = "raw",
    schema: Annotated[
        Path | None,
        Parameter(
            help="Register this schema for values. The default is the newest schema of TOPIC-value."
        ),
    ] = None,
    schema_key: Annotated[
        Path | None,
        Parameter(
            help="Register this schema for keys. The default is the newest schema of TOPIC-key."
        ),
    ] = None,
    registry: Registry = None,
    compression: Annotated[Compression, Parameter(help="The compression of batches.")] = "none",
    acks: Annotated[
        Literal["all", "1", "0"],
        Parameter(help="The acks setting of the producer. all also makes it idempotent."),
    ] = "all",
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Send lines of stdin or of files as records, each exactly once unless --acks is 1 or 0."""
    import asyncio

    from ..client.admin import Admin
    from ..client.producer import Producer
    from ..deploy.cluster.silence import tell_silence

    name, where = _place(topic, partition)
    if sum((json, whole, key_separator is not None)) > 1:
        raise Failure("--json, --whole and --key-separator cannot be combined.", exit_code=2)
    if key is not None and key_separator is not None:
        raise Failure("--key is the key of all; --key-separator finds one a line.", exit_code=2)
    sources = _sources(files)
    to_record = _reader(key_separator, is_json=json)
    common = _Common(key, header, where, timestamp)
    encoders = _encoders(
        name,
        {"key": (encode_key, schema_key), "value": (encode, schema)},
        partial(registry_url, registry, cluster),
    )
    futures: list[Any] = []
    count = 0
    async with (
        cluster.view() as view,
        Producer(view, acks=acks, compression_type=compression) as producer,
        _telling_obstacles(view, producer),
    ):
        tell_silence(Admin(view, timeout_ms=producer.settings.max_block_ms))
        for source in sources:
            chunks = _whole(source) if whole else _lines(source)
            while (lines := await _next(chunks)) is not None:
                for number, line in lines:
                    place = f"{source}:{number}"
                    record = _encoded(common.over(to_record(line, place)), encoders, place)
                    futures.append(
                        await producer.send(
                            name,
                            record.value,
                            key=record.key,
                            partition=record.partition,
                            timestamp_ms=record.timestamp_ms,
                            headers=record.headers,
                        )
                    )
                    count += 1
                    if len(futures) >= LINES_AHEAD:
                        await asyncio.gather(*futures)
                        futures.clear()
        await producer.flush()
        await asyncio.gather(*futures)
    say(f"{counted(count, 'record')} {'sent' if acks == '0' else 'acknowledged'}")


def _encoders(
    topic: str, wanted: "dict[Part, tuple[Encode, Path | None]]", registry: Callable[[], str]
) -> "dict[Part, Encoder]":
    """Return the encoders of keys and values by part. A part in the format raw has no encoder.

    Raises Failure for a schema file of a part in the format raw.
    """
    found: dict[Part, Encoder] = {}
    for part, (how, file) in wanted.items():
        if how != "raw":
            found[part] = encoder(how, topic, part, registry(), file)
        elif file is not None:
            suffix = "-key" if part == "key" else ""
            raise Failure(f"--schema{suffix} {file} needs --encode{suffix}.", exit_code=2)
    return found


def _encoded(record: "NewRecord", encoders: "dict[Part, Encoder]", place: str) -> "NewRecord":
    """Return a record with encoded key and value, where null stays null.

    Raises Failure with `place`, the file and line of the record, if it cannot be encoded.
    """
    for part, encode in encoders.items():
        data = record.key if part == "key" else record.value
        if data is None:
            continue
        try:
            done = encode(data)
        except ValueError as problem:
            raise Failure(
                f"The {part} of {place} cannot be encoded: {problem}. What stands before it was "
                "sent."
            ) from None
        record = record._replace(key=done) if part == "key" else record._replace(value=done)
    return record


class _Common:
    """The options --key, --header, --partition and --timestamp, which apply to every record."""

    def __init__(
        self,
        key: str | None,
        headers: list[str] | None,
        partition: int | None,
        timestamp: str | None,
    ) -> None:
        self._key = None if key is None else key.encode()
        self._headers = tuple((name, value.encode()) for name, value in _headers(headers))
        self._partition = partition
        self._timestamp_ms = None if timestamp is None else _timestamp_ms(timestamp)

    def over(self, record: "NewRecord") -> "NewRecord":
        """Return the record with the values of the given options, and its own without an option.

        Headers of the options are added to the record's headers.
        """
        return record._replace(
            key=record.key if self._key is None else self._key,
            headers=(*record.headers, *self._headers),
            partition=record.partition if self._partition is None else self._partition,
            timestamp_ms=(
                record.timestamp_ms if self._timestamp_ms is None else self._timestamp_ms
            ),
        )


@asynccontextmanager
async def _telling_obstacles(view: "ClusterView", producer: "Producer") -> AsyncIterator[None]:
    """Print during the block why records are not acknowledged, whenever the reason changes.

    Before a broker has answered, `tell_silence` prints the reason.
    """
    import asyncio

    async def tell_again() -> None:
        told = ""
        while True:
            await asyncio.sleep(OBSTACLE_S)
            words = str(producer.obstacle or "") if view.has_answered else ""
            if words and words != told:
                say(f"records are not acknowledged yet, and are tried again: {words}")
            told = words

    telling = asyncio.create_task(tell_again())
    try:
        yield
    finally:
        telling.cancel()


def _place(topic: str, partition: int | None) -> tuple[str, int | None]:
    if "/" not in topic:
        return topic, partition
    if partition is not None:
        raise Failure(f"{topic} names a partition, and so does --partition.", exit_code=2)
    from ..deploy.cluster.targets import parse_partition

    return parse_partition(topic)


def _headers(texts: list[str] | None) -> Iterator[tuple[str, str]]:
    """Parse NAME=VALUE texts, in their order, where a name may occur twice."""
    for text in texts or ():
        yield from pairs([text]).items()


def _timestamp_ms(text: str) -> int:
    from .records.places import TIMES, time_ms

    found = time_ms(f"@{text}" if text.isdigit() else text)
    if found is None or found < 0:
        raise Failure(f"--timestamp {text} is neither milliseconds nor {TIMES}.", exit_code=2)
    return found


def _reader(separator: str | None, *, is_json: bool) -> Any:
    """Return a function that parses a line of input into a record.

    Its second argument is the file and line number, which the Failure for an invalid line names.
    """
    from .records.json_lines import NewRecord, NotARecord, record_of

    def from_json(line: bytes, where: str) -> NewRecord:
        try:
            return record_of(line)
        except NotARecord as problem:
            raise Failure(
                f"{where} is no record: {problem}. The records before it were sent."
            ) from None

    def from_line(line: bytes, where: str) -> NewRecord:
        if separator is None:
            return NewRecord(None, line)
        key, found, value = line.partition(separator.encode())
        return NewRecord(key, value) if found else NewRecord(None, line)

    return from_json if is_json else from_line


# -- where records come from


def _sources(files: tuple[Path, ...]) -> list[str]:
    """Return the paths of the inputs, with "-" for stdin.

    Raises Failure for a missing file before any record is sent.
    """
    for file in files:
        if str(file) != "-" and (not file.exists() or file.is_dir()):  # a pipe has a name, too
            raise Failure(f"{file} is not a file.", exit_code=2)
    return [str(file) for file in files] or ["-"]


def _lines(source: str) -> Iterator[list[tuple[int, bytes]]]:
    """Yield lists of numbered lines, each with the lines that one read of the input returned."""
    number, rest = 0, b""
    with _opened(source) as file:
        while chunk := file.read1(READ_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            yield [(number + i, line.removesuffix(b"\r")) for i, line in enumerate(lines, 1)]
            number += len(lines)
    if rest:
        yield [(number + 1, rest.removesuffix(b"\r"))]


async def _next(chunks: Iterator[T]) -> T | None:
    """Return the next chunk of the input, or None at its end, without blocking the event loop.

    The read runs in a daemon thread, because a terminal or pipe may never send another line, and
    Ctrl-C must still end the command.
    """
    import asyncio
    import threading

    loop = asyncio.get_running_loop()
    done: asyncio.Future[T | None] = loop.create_future()

    def tell(chunk: T | None, problem: BaseException | None) -> None:
        if done.done():  # cancelled
            return
        if problem is None:
            done.set_result(chunk)
        else:
            done.set_exception(problem)

    def work() -> None:
        chunk, problem = None, None
        try:
            chunk = next(chunks, None)
        except BaseException as raised:
            problem = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, chunk, problem)

    threading.Thread(target=work, name="oncelog-input", daemon=True).start()
    return await done


def _whole(source: str) -> Iterator[list[tuple[int, bytes]]]:
    with _opened(source) as file:
        yield [(1, file.read())]


def _opened(source: str) -> Any:
    """Return a context manager that opens a file, or stdin for "-", and does not close stdin."""
    if source != "-":
        return Path(source).open("rb")
    try:
        return open(sys.stdin.fileno(), "rb", closefd=False)
    except io.UnsupportedOperation:  # it is no file of the system
        return nullcontext(sys.stdin.buffer)
