"""Records the end of a run: the last reading of the topics, the ends, and each replica's log.

`scan_topics` uses the protocol, `dump_logs` the files of the nodes. Both only record, and the
checks judge.
"""

import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from ....client.admin import EARLIEST, LATEST, Admin
from ....client.consumer import Consumer, ConsumerRecord
from ....client.view_source import Source, view_of
from ....storage.checkpoint import HIGH_WATERMARKS, LOG_START_OFFSETS, OffsetCheckpoint
from ....wire.record_batch import iterate_batches
from ..history.recorder import Recorder
from ..history.schema import NONE, Isolation
from .derived_files import check_partition
from .raw_log import LoggedBatch
from .reading import POLL_MS, is_compacted, read_to

COMPACTED = frozenset({"__consumer_offsets", "__transaction_state"})


async def scan_topics(
    source: Source,
    topics: Iterable[str],
    recorder: Recorder,
    value_of: Callable[[ConsumerRecord], int],
    *,
    isolation: Isolation = Isolation.READ_COMMITTED,
) -> bool:
    """Read topics from start to end, and record the records in the table `scan`.

    With read_committed also record each partition's start offset, LSO and high watermark in the
    table `ends`. Returns False if a partition was not read to its end, because no position
    of the consumer moved for a minute. The records read until then are kept.
    """
    is_committed = isolation is Isolation.READ_COMMITTED
    view = view_of(source)
    try:
        admin = Admin(view)
        described = await admin.describe_topics(list(topics))
        keys = [(p.topic, p.partition) for p in described]
        starts = await admin.list_offsets(dict.fromkeys(keys, EARLIEST))
        ends = await admin.list_offsets(dict.fromkeys(keys, LATEST))
        stable = await admin.list_offsets(dict.fromkeys(keys, LATEST), read_committed=True)
        now_ns = time.monotonic_ns()
        for p in described if is_committed else ():
            key = (p.topic, p.partition)
            cleaned = await is_compacted(admin, p.topic)
            recorder.add("ends", NONE, f"{p.topic}/{p.partition}", starts[key], stable[key],
                         ends[key], NONE, p.leader, p.leader_epoch, len(p.replicas), len(p.isr),
                         int(cleaned), now_ns)  # fmt: skip
        until = stable if is_committed else ends

        async def poll(consumer: Consumer) -> None:
            for record in await consumer.poll(POLL_MS):
                name = f"{record.topic}/{record.partition}"
                row = (name, record.offset, value_of(record), time.monotonic_ns())
                recorder.add("scan", isolation, *row)

        return not await read_to(view, starts, until, poll, isolation=isolation.name.lower())
    finally:
        await view.close()


def dump_logs(recorder: Recorder, data: Path, compacted: Collection[str] = COMPACTED) -> int:
    """Record batches, end offsets and problems of derived files in all nodes' data.

    Return the number of batches. compacted: topics with batches that may differ from node to node.
    """
    total = 0
    for node in sorted(data.glob("node-*")):
        replica = int(node.name.removeprefix("node-"))
        watermarks = OffsetCheckpoint(node / HIGH_WATERMARKS).read()
        log_starts = OffsetCheckpoint(node / LOG_START_OFFSETS).read()
        for folder in sorted(node.iterdir()):
            topic, _, number = folder.name.rpartition("-")
            if folder.is_dir() and topic and number.isdecimal():
                name, key, is_compacted = (
                    f"{topic}/{number}",
                    (topic, int(number)),
                    topic in compacted,
                )
                end, batches = _dump_partition(recorder, folder, replica, name)
                total += batches
                recorder.add("ends", replica, name, log_starts.get(key, 0), NONE,
                             watermarks.get(key, 0), end, NONE, NONE, 0, 0,
                             int(is_compacted), time.monotonic_ns())  # fmt: skip
                for finding in check_partition(folder, is_compacted=is_compacted):
                    recorder.add("file_findings", replica, name, *finding, time.monotonic_ns())
    return total


def _dump_partition(recorder: Recorder, folder: Path, replica: int, name: str) -> tuple[int, int]:
    """Record the log of one replica. Return its log end offset and number of batches."""
    end = count = 0
    for log in sorted(folder.glob("*.log")):
        content = memoryview(log.read_bytes())
        end = max(end, int(log.stem))
        for position, header in iterate_batches(content):
            data = content[position : position + header.size_bytes]
            batch = LoggedBatch.of(header, data)
            recorder.add("batches", replica, name, batch.base_offset, batch.last_offset,
                         batch.leader_epoch, header.crc, header.size_bytes, batch.attributes,
                         batch.producer_id, batch.producer_epoch, batch.base_sequence,
                         batch.last_sequence, header.record_count, batch.max_timestamp_ms,
                         batch.marker, batch.coordinator_epoch)  # fmt: skip
            end = max(end, header.next_offset)
            count += 1
    return end, count
