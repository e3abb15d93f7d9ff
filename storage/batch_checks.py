"""The rules that a batch must satisfy before it is appended, apart from its format.

wire.record_batch checks the format (length, magic, CRC, counts). The rules here need the topic's
config or the log end.
"""

from crc32c import crc32c

from ..wire.control_record import decode_marker
from ..wire.errors import CorruptMessage, InvalidRecord, InvalidTimestamp
from ..wire.record_batch import (
    APPEND_TIME_BIT,
    CONTROL_BIT,
    CRC_COVERS_FROM,
    HEADER_BYTES,
    LENGTH_COUNTS_FROM,
    BatchHeader,
    decode_header,
)
from ..wire.records import RECORD_BYTES_MIN
from .log_config import LogConfig
from .segments.index import NO_TIMESTAMP
from .segments.log_file import Buffer


class TimestampOutOfRange(InvalidTimestamp):
    """A timestamp out of range, with the accepted range, both ends inclusive."""

    def __init__(self, timestamp: int, earliest: int, latest: int) -> None:
        super().__init__(
            f"Timestamp {timestamp} of a batch is out of range. The timestamp should be "
            f"within [{earliest}, {latest}]"
        )
        self.earliest, self.latest = earliest, latest


class UnexpectedAppendOffset(Exception):
    """The leader's first batch begins below this log's end, and the follower must fetch again."""


def check_client_batch(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    """Check the header of a client's batch on the leader. `record_checks` checks the records.

    Raises InvalidRecord for a base offset other than 0, and, unless the topic uses LogAppendTime,
    InvalidTimestamp if the maximum timestamp is too far from `now_ms` (wall-clock time).
    """
    if header.base_offset != 0:
        raise InvalidRecord(
            f"The base offset of a batch must be 0 when it is sent, but it is {header.base_offset}"
        )
    if not config.uses_append_time:
        check_timestamp(header.max_timestamp, config, now_ms)


def check_timestamp(timestamp: int, config: LogConfig, now_ms: int) -> None:
    """Raise TimestampOutOfRange for a timestamp, other than -1, too far from `now_ms`."""
    earliest = now_ms - config.timestamp_before_max_ms
    latest = now_ms + config.timestamp_after_max_ms
    if not earliest <= timestamp <= latest and timestamp != NO_TIMESTAMP:
        raise TimestampOutOfRange(timestamp, earliest, latest)


def claims_too_much(header: BatchHeader) -> bool:
    """Return whether the header of a client's batch must be confirmed by its records.

    There are three such headers. The maximum timestamp may be below the base (some clients send
    -1). The append-time bit may be set, which belongs to the broker. The batch may claim more
    records than fit into its bytes, and a few bytes must not take many offsets.
    """
    return (
        header.max_timestamp < header.base_timestamp
        or header.attributes & APPEND_TIME_BIT != 0
        or header.record_count * RECORD_BYTES_MIN > header.size_bytes - HEADER_BYTES
    )


def replicated_batches(records: Buffer, log_end_offset: int) -> list[tuple[int, BatchHeader]]:
    """Return a leader's batches as (position, header), without a partial last batch.

    Raises CorruptMessage for a wrong CRC or offsets that do not rise. Raises InvalidRecord for a
    control batch that is not a marker, and UnexpectedAppendOffset if the first batch begins below
    the log end. Gaps are allowed, because compaction leaves gaps.
    """
    batches: list[tuple[int, BatchHeader]] = []
    next_offset = log_end_offset
    # These are `iterate_batches` and `check_crc` inlined, because this runs for every batch.
    view, end = memoryview(records), len(records)
    position = 0
    while position + HEADER_BYTES <= end:
        header = decode_header(view, position)
        next_position = position + header.batch_length + LENGTH_COUNTS_FROM
        if next_position > end:
            break
        base_offset, last_offset_delta = header.base_offset, header.last_offset_delta
        if crc32c(view[position + CRC_COVERS_FROM : next_position]) != header.crc:
            raise CorruptMessage("the batch fails its checksum")
        if base_offset < next_offset:
            problem = f"a batch at offset {base_offset} after end offset {next_offset}"
            raise UnexpectedAppendOffset(problem) if not batches else CorruptMessage(problem)
        if last_offset_delta < 0:
            raise CorruptMessage(f"last offset delta {last_offset_delta}")
        if header.attributes & CONTROL_BIT and header.record_count:
            decode_marker(records, position)  # checked now, while nothing is written yet
        batches.append((position, header))
        next_offset = base_offset + last_offset_delta + 1
        position = next_position
    return batches
