"""Helpers that append batches and transaction markers to logs, and compact logs."""

from typing import Any

from oncelog.storage.compaction.cleaning import CleanedGroup
from oncelog.storage.compaction.log_cleaner import LogCleaner
from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import AppendInfo, Origin, PartitionLog
from oncelog.wire.control_record import ControlType, encode_marker
from oncelog.wire.record_batch import decode_header, iterate_batches

COMPACTED = LogConfig(
    is_compacted=True,
    is_deleted_by_retention=False,
    min_cleanable_dirty_ratio=0.0,
    file_delete_delay_ms=0,
)


def append_as_leader(
    log: PartitionLog, batch: bytes | bytearray, *, epoch: int = 0, now_ms: int = 1, **options: Any
) -> AppendInfo:
    """Append the batch to the log of a leader with the leader epoch `epoch`."""
    view = memoryview(bytearray(batch))
    header = decode_header(view)
    return log.append_as_leader(view, header, leader_epoch=epoch, now_ms=now_ms, **options)


def marker(
    producer_id: int = 7,
    kind: int = ControlType.COMMIT,
    *,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    at_ms: int = 1,
    **stamped: int,
) -> bytes:
    """Return a transaction marker. `kind` is a ControlType, or True to commit, False to abort."""
    return encode_marker(
        ControlType(kind),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp_ms=at_ms,
        **stamped,
    )


def end_transaction(
    log: PartitionLog,
    producer_id: int = 7,
    kind: int = ControlType.COMMIT,
    *,
    epoch: int = 0,
    at_ms: int = 1,
    now_ms: int | None = None,
    **of_marker: int,
) -> AppendInfo:
    """Append a transaction marker with timestamp `at_ms`, at the time `now_ms` of the log."""
    batch = marker(producer_id, kind, at_ms=at_ms, **of_marker)
    now_ms = at_ms if now_ms is None else now_ms
    return append_as_leader(log, batch, epoch=epoch, now_ms=now_ms, origin=Origin.COORDINATOR)


def clean(cleaner: LogCleaner, log: PartitionLog, now_ms: int) -> int | None:
    """Compact the log, and return how many groups of segments were replaced.

    Returns None if the log is not dirty enough to be compacted.
    """
    cleaning = cleaner.begin([log], now_ms)
    if cleaning is None:
        return None
    replaced = 0
    for step in cleaning.steps():
        if isinstance(step, CleanedGroup):
            cleaner.swap(step)
            replaced += 1
    cleaner.finish()
    return replaced


def batches_in(log: PartitionLog) -> list[bytes]:
    found: list[bytes] = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        read = log.read(at, 1 << 20, upper_offset=log.log_end_offset)
        assert read.next_offset > at
        data = bytes(read.data)
        found += [data[p : p + header.size_bytes] for p, header in iterate_batches(data)]
        at = read.next_offset
    return found
