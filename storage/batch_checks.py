"""What a batch must satisfy before a log takes it, beyond its own form.

The form (length, magic, CRC, counts) is judged by wire.record_batch; here are the rules that need
the topic's config or the log's end.
"""

from ..wire.control_record import decode_marker
from ..wire.errors import CorruptMessage, InvalidRecord, InvalidTimestamp
from ..wire.record_batch import CONTROL_BIT, BatchHeader, check_crc, iterate_batches
from ..wire.records import decode_batch
from .index import NO_TIMESTAMP
from .log_config import LogConfig
from .log_file import Buffer


class UnexpectedAppendOffset(Exception):
    """The leader sent a batch that does not continue this log: the follower must look again."""


def check_client_batch(
    records: memoryview, header: BatchHeader, config: LogConfig, now_ms: int
) -> None:
    """Judge a batch that a client sent, on the leader.

    Raises InvalidRecord for a base offset other than 0 and, where every record is looked at, for
    a malformed record or (compacted topic) one without key; InvalidTimestamp when the largest
    timestamp is too far from `now_ms` (wall clock). Kafka looks at each record's timestamp, we at
    the largest: the one of the batch header, which the producer's own library sets.
    """
    if header.base_offset != 0:
        raise InvalidRecord(
            f"The base offset of a batch must be 0 when it is sent, but it is {header.base_offset}"
        )
    if not config.uses_append_time:
        timestamp = header.max_timestamp
        is_late = now_ms - timestamp > config.timestamp_before_max_ms
        is_early = timestamp - now_ms > config.timestamp_after_max_ms
        if (is_late or is_early) and timestamp != NO_TIMESTAMP:
            earliest = now_ms - config.timestamp_before_max_ms
            latest = now_ms + config.timestamp_after_max_ms
            raise InvalidTimestamp(
                f"Timestamp {timestamp} of a batch is out of range. The timestamp should be "
                f"within [{earliest}, {latest}]"
            )
    if config.needs_every_record:
        check_every_record(records, config)


def check_every_record(records: Buffer, config: LogConfig) -> None:
    """InvalidRecord unless each record can be read, and has a key where the topic compacts."""
    decoded = decode_batch(records)
    if config.is_compacted and any(record.key is None for record in decoded):
        raise InvalidRecord("Compacted topic cannot accept message without key.")


def replicated_batches(records: Buffer, log_end_offset: int) -> list[tuple[int, BatchHeader]]:
    """The batches of a leader's answer, as (position, header); a partial last one is left out.

    Raises CorruptMessage for a wrong CRC or offsets that do not rise, InvalidRecord for a control
    batch that is no marker, UnexpectedAppendOffset when the first batch begins below the log end.
    A gap is allowed: compaction makes them.
    """
    batches = []
    next_offset = log_end_offset
    for position, header in iterate_batches(records):
        check_crc(records, position, header)
        if header.base_offset < next_offset:
            problem = f"a batch at offset {header.base_offset} after end offset {next_offset}"
            raise UnexpectedAppendOffset(problem) if not batches else CorruptMessage(problem)
        if header.last_offset_delta < 0:
            raise CorruptMessage(f"last offset delta {header.last_offset_delta}")
        if header.attributes & CONTROL_BIT and header.record_count:
            decode_marker(records, position)  # refused now or not at all: nothing is written yet
        batches.append((position, header))
        next_offset = header.last_offset + 1
    return batches
