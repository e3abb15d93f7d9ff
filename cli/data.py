"""Commands about records, which are produce, consume, and log dump."""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from ..deploy.cluster.failure import Failure
from ..deploy.cluster.lookup import open_cluster
from ..deploy.cluster.terminal import counted, say, tell
from ..wire.printable import printable
from .common import (
    DEFAULT_DATA,
    QUERY,
    Data,
    Format,
    Query,
    Registry,
    add_family,
    registry_url,
)
from .produce import produce
from .records.reading import Decode, Isolation

NULL = b"(null)"


def register(app: App) -> None:
    """Add the commands of this file to `app`."""
    app.command(produce)
    app.command(consume)
    add_family(app, "log", "Print the contents of log files.", dump)


async def consume(
    topic: Annotated[str, Parameter(help="The topic, or one partition as TOPIC/PARTITION.")],
    /,
    *,
    partition: Annotated[
        list[int] | None, Parameter(help="Read only these partitions.", negative=())
    ] = None,
    offset: Annotated[
        str,
        Parameter(
            help="Begin at earliest, latest, an offset, -N (the last N offsets of each "
            "partition), or a time (2026-01-31T12:00, or @ and milliseconds).",
            allow_leading_hyphen=True,
        ),
    ] = "earliest",
    until: Annotated[
        str | None, Parameter(help="Stop before this offset, or at this time.")
    ] = None,
    max_records: Annotated[
        int | None, Parameter(name=["--max", "-n"], help="The maximum number of records.")
    ] = None,
    follow: Annotated[
        bool,
        Parameter(name=["--follow", "-f"], help="Wait for new records at the end.", negative=()),
    ] = False,
    group: Annotated[
        str | None,
        Parameter(help="Read as a member of this group, from its offsets, and commit them."),
    ] = None,
    template: Annotated[
        str | None,
        Parameter(
            help="The text for each record. %k is the key, %v the value, %h the headers, "
            "%T the timestamp, %d the date, %t the topic, %p the partition, %o the "
            "offset, and %K and %V are the sizes."
        ),
    ] = None,
    decode: Annotated[Decode, Parameter(help="The format of values.")] = "raw",
    decode_key: Annotated[Decode, Parameter(help="The format of keys.")] = "raw",
    registry: Registry = None,
    isolation: Annotated[Isolation, Parameter(help="The isolation level.")] = "read_uncommitted",
    query: Query = QUERY,
) -> None:
    """Print the records up to the current end of the topic. With -f, also print new records.

    A line has PARTITION@OFFSET, the key and the value, separated by tabs.
    """
    from .records.places import parse_end, parse_start
    from .records.reading import ReadOrder, decoder, read

    name, only = _partitions(topic, partition)
    if max_records is not None and max_records < 0:
        raise Failure("--max is 0 or more.", exit_code=2)
    if template is not None and query.format == "json":
        raise Failure("--template and --format json are two ways to print.", exit_code=2)
    begin = parse_start(offset)
    if group is not None and begin.kind not in ("earliest", "latest"):
        raise Failure(
            f"A group begins at its committed offsets; --offset {offset} needs no --group. To "
            "move a group's offsets: oncelog group reset",
            exit_code=2,
        )
    where = partial(registry_url, registry, query)
    decoders = decoder(decode_key, "key", where), decoder(decode, "value", where)
    emit = _printer(query.format, template, decoders)
    order = ReadOrder(
        topic=name,
        partitions=only,
        begin=begin,
        until=None if until is None else parse_end(until),
        group=group,
        limit=max_records,
        follow=follow,
        isolation=isolation,
    )
    async with query.view() as view:
        count = await read(view, order, emit)
    say(counted(count, "record"))


def _partitions(topic: str, only: list[int] | None) -> tuple[str, tuple[int, ...]]:
    """Return the topic and the partitions that TOPIC/P or --partition names, or () for all.

    Raises Failure if both name a partition.
    """
    if "/" not in topic:
        return topic, tuple(dict.fromkeys(only or ()))
    if only:
        raise Failure(f"{topic} names a partition, and so does --partition.", exit_code=2)
    from ..deploy.cluster.targets import parse_partition

    name, number = parse_partition(topic)
    return name, (number,)


def _printer(output: str, template: str | None, decoders: Any) -> Callable[[list[Any]], None]:
    """Return a function that prints records.

    Outside of JSON, keys and values that are not decoded are printed as raw bytes to a file or
    pipe, and without control characters to a terminal.
    """
    from .records.json_lines import Decoded, as_text, compact, fields_of
    from .records.reading import decoded
    from .records.template import compiled

    shape = compiled(template) if template is not None else _columns
    is_terminal = sys.stdout.isatty()
    key_decoder, value_decoder = decoders

    def bytes_of(found: Decoded | None, data: bytes | None) -> bytes | None:
        if found is not None:
            content = found.content
            data = (content if found.encoding == "hex" else compact(content)).encode()
        return _printable(data) if is_terminal else data

    def emit_bytes(records: list[Any]) -> None:
        sys.stdout.buffer.write(b"".join([shape(each, (each.key, each.value)) for each in records]))
        sys.stdout.flush()

    def emit(records: list[Any]) -> None:
        for record in records:
            key = decoded(key_decoder, record, "key")
            value = decoded(value_decoder, record, "value")
            if output == "json":
                print(json.dumps(fields_of(record, key, value), default=as_text))
                continue
            shown = bytes_of(key, record.key), bytes_of(value, record.value)
            if not is_terminal:
                sys.stdout.buffer.write(shape(record, shown))
                continue
            headers = tuple((printable(n), _printable(v)) for n, v in record.headers)
            line = shape(record._replace(headers=headers), shown).decode(errors="backslashreplace")
            print(printable(line, keep="\t\n"), end="")
        if records:
            sys.stdout.flush()

    is_plain = decoders == (None, None) and output == "table" and not is_terminal
    return emit_bytes if is_plain else emit


def _columns(record: Any, shown: tuple[bytes | None, bytes | None]) -> bytes:
    """Return a line with PARTITION@OFFSET, key and value, separated by tabs."""
    key, value = (NULL if each is None else each for each in shown)
    return b"%d@%d\t%b\t%b\n" % (record.partition, record.offset, key, value)


def _printable(data: bytes | None) -> bytes | None:
    """Return bytes with visible text for control characters except tabs, and for invalid UTF-8.

    A control character could move the cursor of the terminal.
    """
    if data is None:
        return None
    return printable(data.decode(errors="backslashreplace"), keep="\t").encode()


def dump(
    target: Annotated[
        str, Parameter(help="The log: TOPIC/PARTITION, the folder of a partition, or a .log file.")
    ],
    /,
    *,
    node: Annotated[
        int | None,
        Parameter(help="Read the log of this node. The default is the first node with a replica."),
    ] = None,
    records: Annotated[bool, Parameter(help="Also print the records.", negative=())] = False,
    data: Data = DEFAULT_DATA,
    format: Format = "table",
) -> int:
    """Print the batches of a log. The exit code is 1 if the log is damaged."""
    from ..client.fetch.record_reader import ConsumerRecord
    from ..deploy.inspect.log_dump import dump_segment, segments
    from ..wire.errors import CorruptMessage

    files = segments(_place(target, data, node))
    if not files:
        raise Failure(f"There is no segment file in {target}.")
    is_damaged = False
    # The name of the log's last file now, since a broker may roll the log while a file is read.
    last = max(each.name for each in (*files, *files[0].parent.glob("*.log")))
    emit = _printer(format, None, (None, None))
    for file in files:
        whose = _partition_of(file.parent.name)
        try:
            content = file.read_bytes()
        except FileNotFoundError:  # by retention or compaction
            say(f"{file.name} was deleted meanwhile")
            continue
        if format == "table":
            tell(f"{file} · {len(content)} bytes")
        end = 0
        try:
            for batch in dump_segment(file.name, content, deep=records):
                end = batch.position + batch.header.size_bytes
                is_damaged |= bool(batch.problem)
                if format == "json":
                    print(json.dumps(batch.fields()))
                else:
                    tell(f"  {batch.words()}")
                emit([ConsumerRecord(*whose, *record) for record in batch.records])
        except CorruptMessage as problem:
            is_damaged = True
            say(f"{file.name}: {problem} at position {end}; the rest of this file is not shown")
        else:
            if any(content[end:]):
                is_damaged |= file.name != last  # a crash tears only the end of a log
                say(f"{file.name}: {len(content) - end} bytes after the last whole batch")
    return 1 if is_damaged else 0


def _partition_of(folder: str) -> tuple[str, int]:
    """Return the topic and partition of a log's folder name, or (name, -1) for other names."""
    topic, _, number = folder.rpartition("-")
    return (topic, int(number)) if topic and number.isdecimal() else (folder, -1)


def _place(target: str, data: Path, node: int | None) -> Path:
    """Return `target` if it is an existing path, otherwise the folder of a replica's log.

    `target` is then TOPIC/PARTITION. Without `node`, the first node with a replica is used. Raises
    Failure if no node has one.
    """
    path = Path(target)
    if path.exists():
        return path
    from ..deploy.cluster import layout, targets

    topic, partition = targets.parse_partition(target)
    cluster = open_cluster(data)
    for node_id in [node] if node is not None else cluster.node_ids:
        folder = layout.node_directory(cluster.data, node_id) / f"{topic}-{partition}"
        if folder.is_dir():
            return folder
    raise Failure(f"No node under {cluster.data} has a copy of {target}.")
