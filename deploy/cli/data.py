"""Commands about records: produce, consume, log dump."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from ...wire.printable import printable
from ..cluster.failure import Failure
from ..cluster.lookup import open_cluster
from ..cluster.terminal import say, tell
from .common import (
    DEFAULT_CLUSTER,
    DEFAULT_DATA,
    QUERY,
    ClusterOptions,
    Data,
    Format,
    Query,
    add_family,
)

LINES_AHEAD = 10_000
Isolation = Literal["read_uncommitted", "read_committed"]


def register(app: App) -> None:
    """Add this file's commands."""
    app.command(produce)
    app.command(consume)
    add_family(app, "log", "What stands in the log files.", dump)


async def produce(
    topic: str,
    /,
    *,
    key_separator: Annotated[str | None, Parameter(help="Splits a line into key, value.")] = None,
    acks: Annotated[Literal["all", "1", "0"], Parameter(help="all: idempotent.")] = "all",
    cluster: ClusterOptions = DEFAULT_CLUSTER,
) -> None:
    """Send each line of stdin as a record, exactly once."""
    import asyncio

    from ...client.producer import Producer

    futures: list[Any] = []
    count = 0
    async with cluster.view() as view, Producer(view, acks=acks) as producer:
        while lines := await asyncio.to_thread(sys.stdin.buffer.readlines, 1 << 20):
            for line in lines:
                key, value = _split(line.rstrip(b"\r\n"), key_separator)
                futures.append(await producer.send(topic, value, key=key))
                count += 1
                if len(futures) >= LINES_AHEAD:
                    await asyncio.gather(*futures)
                    futures.clear()
        await producer.flush()
        await asyncio.gather(*futures)
    say(f"{count} records acknowledged" if acks != "0" else f"{count} records sent")


def _split(line: bytes, separator: str | None) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator.encode())
    return (key, value) if found else (None, line)


async def consume(
    topic: str,
    /,
    *,
    partition: Annotated[list[int] | None, Parameter(help="Only these.", negative=())] = None,
    offset: Annotated[str, Parameter(help="earliest, latest, or a number.")] = "earliest",
    max_records: Annotated[int | None, Parameter(name=["--max", "-n"])] = None,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative=())] = False,
    isolation: Annotated[Isolation, Parameter(help="Transactions.")] = "read_uncommitted",
    query: Query = QUERY,
) -> None:
    """Print records up to the present end of the topic, or on and on with -f."""
    if offset not in ("earliest", "latest") and not offset.isdigit():
        raise Failure("--offset is earliest, latest, or a number.", exit_code=2)
    from ...client.admin import EARLIEST, LATEST, Admin
    from ...client.consumer import Consumer

    count, is_raw = 0, not sys.stdout.isatty()
    async with query.view() as view:
        admin = Admin(view)
        chosen = [p.partition for p in await admin.describe_topics([topic])]
        if partition:
            chosen = [p for p in partition if p in chosen]
        if not chosen:
            raise Failure(f"Topic {topic} has no such partition.")
        keys = [(topic, p) for p in chosen]
        ends = await admin.list_offsets(
            dict.fromkeys(keys, LATEST), read_committed=isolation == "read_committed"
        )
        if offset == "earliest":
            starts = await admin.list_offsets(dict.fromkeys(keys, EARLIEST))
        else:
            starts = ends if offset == "latest" else dict.fromkeys(keys, int(offset))
        unfinished = {key for key in keys if follow or starts[key] < ends[key]}
        async with Consumer(view, isolation_level=isolation, auto_offset_reset="none") as consumer:
            consumer.assign({key: starts[key] for key in unfinished})
            while unfinished and (max_records is None or count < max_records):
                for record in await consumer.poll(1_000, max_records and max_records - count):
                    if follow or record.offset < ends[topic, record.partition]:
                        _print_record(topic, record.partition, record, query.format, raw=is_raw)
                        count += 1
                for key in list(unfinished):
                    if not follow and consumer.position(*key) >= ends[key]:
                        unfinished.discard(key)
                        consumer.unassign(*key)
    say(f"{count} records")


def _print_record(
    topic: str, partition: int, record: Any, output: str, *, raw: bool = False
) -> None:
    """Print a record; `raw`: its bytes as they are, for a program or a file."""
    if output == "table":
        value = record.value if record.value is not None else b"(null)"
        key = record.key + b"\t" if record.key is not None else b""
        line = b"%d@%d\t%b%b" % (partition, record.offset, key, value)
        if raw:
            sys.stdout.buffer.write(line + b"\n")
        else:
            print(printable(line.decode(errors="backslashreplace"), keep="\t"))
        return
    fields = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": {name: _text(value) for name, value in record.headers},
    }
    print(json.dumps(fields))


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def dump(
    target: Annotated[str, Parameter(help="TOPIC/P, a partition's folder, or a .log file.")],
    /,
    *,
    node: Annotated[int | None, Parameter(help="Whose copy; default: the first there is.")] = None,
    records: Annotated[bool, Parameter(help="The records too.", negative=())] = False,
    data: Data = DEFAULT_DATA,
    format: Format = "table",
) -> int:
    """Batches, producers, sequences and markers of a log, in words. Exit code 1 when damaged."""
    from ..inspect.log_dump import dump_segment, segments, trailing_bytes

    files = segments(_place(target, data, node))
    if not files:
        raise Failure(f"There is no segment file in {target}.")
    is_damaged = False
    for file in files:
        content = file.read_bytes()
        if format == "table":
            tell(f"{file} · {len(content)} bytes")
        for batch in dump_segment(file.name, content, deep=records):
            is_damaged |= bool(batch.problem)
            if format == "json":
                print(json.dumps(batch.fields()))
            else:
                tell(f"  {batch.words()}")
            for record in batch.records:
                _print_record(file.parent.name, -1, record, format)
        if (torn := trailing_bytes(content)) and any(content[-torn:]):
            say(f"{file.name}: {torn} bytes after the last whole batch")
    return 1 if is_damaged else 0


def _place(target: str, data: Path, node: int | None) -> Path:
    """The folder or file that a person means."""
    path = Path(target)
    if path.exists():
        return path
    from ..cluster import layout, targets

    topic, partition = targets.parse_partition(target)
    cluster = open_cluster(data)
    for node_id in [node] if node is not None else cluster.node_ids:
        folder = layout.node_directory(cluster.data, node_id) / f"{topic}-{partition}"
        if folder.is_dir():
            return folder
    raise Failure(f"No node under {cluster.data} has a copy of {target}.")
