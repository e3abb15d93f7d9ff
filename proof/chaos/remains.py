"""Records what is on the disks of stopped nodes.

These are the logs, the records that survived compaction, and the outcomes of transactions that the
coordinators decided.
"""

import time
import zlib
from collections.abc import Iterable
from pathlib import Path

from ...deploy.cluster import layout
from ...deploy.cluster.failure import Failure
from ...deploy.inspect.transaction_log import SHARDS_DEFAULT, SHARDS_KEY, STATES, shard_log
from ...node.transactions.shard_journal import ShardEntry
from ...wire.control_record import ControlType, decode_marker
from ...wire.errors import KafkaError
from ...wire.record_batch import iterate_batches
from ...wire.records import decode_batch
from ..judge.history.recorder import Recorder
from ..judge.history.schema import NONE
from ..judge.logs.scan import COMPACTED, dump_logs

V2 = 2


def dump_remains(recorder: Recorder, data: Path) -> int:
    """Record the logs, the survivors of compaction, and the coordinators' decisions of all nodes.

    Return the number of recorded batches.
    """
    batches = dump_logs(recorder, data)
    for node in sorted(data.glob("node-*")):
        replica = int(node.name.removeprefix("node-"))
        for topic in COMPACTED:
            for folder in sorted(node.glob(f"{topic}-*")):
                number = folder.name.removeprefix(f"{topic}-")
                if number.isdecimal():
                    _dump_survivors(recorder, folder, replica, f"{topic}/{number}")
    file = layout.read(data)
    assert file is not None
    for shard in range(int(file.settings.get(SHARDS_KEY, SHARDS_DEFAULT))):
        _dump_decisions(recorder, data, shard)
    return batches


def _dump_survivors(recorder: Recorder, folder: Path, replica: int, partition: str) -> None:
    for key, (offset, digest) in sorted(survivors(folder).items(), key=lambda item: item[1][0]):
        # a tombstone may have gone on one replica and not yet on another
        if digest is not None:
            both = (digest << 31) ^ zlib.crc32(key)
            recorder.add("survivors", replica, partition, offset, both)


def survivors(folder: Path) -> dict[bytes, tuple[int, int | None]]:
    """Return the (offset, digest) of the newest record of each key, without aborted records.

    The digest of a tombstone is None. Aborted records do not count, as a replica may have cleaned
    them already. Data without a marker was committed, since a cleaner removes aborted records
    before their marker.
    """
    newest: dict[bytes, tuple[int, int | None]] = {}
    pending: dict[int, list[tuple[bytes, int, int | None]]] = {}

    def count(records: Iterable[tuple[bytes, int, int | None]]) -> None:
        for key, offset, digest in records:
            if newest.get(key, (-1, None))[0] < offset:
                newest[key] = (offset, digest)

    for log in sorted(folder.glob("*.log")):
        content = memoryview(log.read_bytes())
        for position, header in iterate_batches(content):
            if header.is_control:
                ended = pending.pop(header.producer_id, [])
                data = content[position : position + header.size_bytes]
                if decode_marker(data)[0] is ControlType.COMMIT:
                    count(ended)
                continue
            try:
                records = decode_batch(content, position)
            except KafkaError:
                continue  # W1 and W3 judge the bytes
            found = [
                (bytes(r.key or b""), r.offset, None if r.value is None else zlib.crc32(r.value))
                for r in records
            ]
            if header.is_transactional:
                pending.setdefault(header.producer_id, []).extend(found)
            else:
                count(found)
    for left in pending.values():
        count(left)
    return newest


def shared_epochs(entries: Iterable[ShardEntry]) -> set[tuple[int, int]]:
    """Return (producer id, epoch) of transactions V1, where many transactions share an epoch."""
    return {
        (entry.value.producer_id, entry.value.producer_epoch)
        for entry in entries
        if entry.value is not None and entry.value.client_transaction_version < V2
    }


def _dump_decisions(recorder: Recorder, data: Path, shard: int) -> None:
    """Record the decisions that a majority of nodes has in one shard's log of transactions.

    If a snapshot replaces the beginning of the log, decisions in epochs that several transactions
    may share are recorded without their epoch, so that no marker is compared with them.
    """
    try:
        log = shard_log(data, shard, None)
    except Failure:
        return
    is_whole = log.chosen.snapshot_index == 0
    shared = set[tuple[int, int]]() if is_whole else shared_epochs(log.chosen.entries)
    wall_ms, now_ns = time.time_ns() // 1_000_000, recorder.now_ns()

    def on_our_clock(then_ms: int) -> int:
        return NONE if then_ms < 0 else now_ns - (wall_ms - then_ms) * 1_000_000

    for entry in log.chosen.entries:
        value = entry.value
        if value is None or entry.note or not log.is_decided(entry):
            continue
        identity = value.producer_id, value.producer_epoch
        recorder.add(
            "decisions",
            entry.transactional_id,
            value.producer_id,
            NONE if identity in shared else value.producer_epoch,
            STATES[value.state] if value.state < len(STATES) else str(value.state),
            value.timeout_ms,
            on_our_clock(value.start_ms),
            on_our_clock(value.last_update_ms),
        )
