"""Reading from a log's segments: whole batches from an offset, and batches by timestamp.

Bytes come from the page cache by pread, or where a large batch was just written from the memory it
came in; positions from what the last reads left behind, or from the sparse index. A read never
crosses a segment's end, as in Kafka.
"""

import struct
from typing import NamedTuple

from ..wire.c_calls import new_tuple
from ..wire.record_batch import HEADER_BYTES, LENGTH_COUNTS_FROM, BatchHeader, decode_header
from .segments.log_file import Buffer
from .segments.segment import Segment
from .segments.segment_list import SegmentList

_batch_length = struct.Struct(">i")
HEADERS_PER_STEP = 64  # of a search; about 0.3 ms
_LENGTH_AT = 8  # where the length of a batch stands in it


class LogRead(NamedTuple):
    """Whole batches, the first of which may begin before the offset asked for.

    `next_offset` is where to go on reading; the offset asked for when `data` is empty.
    """

    data: Buffer
    next_offset: int


class TimedBatch(NamedTuple):
    """A batch whose largest timestamp is large enough."""

    header: BatchHeader
    data: memoryview


def read_batches(
    segments: SegmentList,
    offset: int,
    max_bytes: int,
    *,
    upper_offset: int,
    log_end_offset: int,
    min_one_batch: bool,
) -> LogRead:
    """Batches from the one that holds `offset` on, all of them below `upper_offset`.

    At most `max_bytes`, but one batch of any size when `min_one_batch`. `offset` must lie in the
    log. Raises OSError.
    """
    located = segments.recall(offset) or _locate(segments, offset)
    if located is None:
        return LogRead(b"", offset)
    segment, position = located
    if segment is segments.active and upper_offset >= log_end_offset:
        end, end_offset = segment.size_bytes, log_end_offset
    else:
        end, end_offset = _end_of_read(segments, segment, upper_offset, log_end_offset)
    available = end - position
    if available <= 0:
        return LogRead(b"", offset)
    recent = None
    if available >= segments.recent.min_bytes:  # smaller ones are not kept
        recent = segments.recent.read(segment, position, available, max_bytes)
    if recent is not None:
        data: Buffer = recent
        next_offset = decode_header(recent).next_offset
    elif available <= max_bytes:
        data = segment.file.read(position, available)
        next_offset = end_offset
    else:
        data, next_offset = _read_at_most(segment, position, max_bytes, min_one_batch)
        if not data:
            return LogRead(b"", offset)
    if segment is segments.active or position + len(data) < segment.size_bytes:
        segments.remember(next_offset, segment, position + len(data))
    return new_tuple(LogRead, (data, next_offset))


def _locate(segments: SegmentList, offset: int) -> tuple[Segment, int] | None:
    """Segment and position of the batch that holds `offset` or, after a gap, of the next one."""
    for segment in segments.from_floor(offset):
        if (found := segment.position_of(offset)) is not None:
            return segment, found[0]
    return None


def _end_of_read(
    segments: SegmentList, segment: Segment, upper_offset: int, log_end_offset: int
) -> tuple[int, int]:
    """Where a read in `segment` must stop: (position, the offset that follows)."""
    newer = None if segment is segments.active else segments.after(segment)
    segment_end = log_end_offset if newer is None else newer.base_offset
    if upper_offset >= segment_end:
        return segment.size_bytes, segment_end
    known = segments.recall(upper_offset)
    if known is not None and known[0] is segment:
        return known[1], upper_offset
    found = segment.position_of(upper_offset)
    return (segment.size_bytes if found is None else found[0]), upper_offset


def _read_at_most(
    segment: Segment, position: int, max_bytes: int, min_one_batch: bool
) -> tuple[Buffer, int]:
    """As many whole batches as fit into `max_bytes`, and the offset after the last."""
    data = segment.file.read(position, max(max_bytes, HEADER_BYTES))
    first_bytes = _batch_length.unpack_from(data, _LENGTH_AT)[0] + LENGTH_COUNTS_FROM
    if first_bytes > max_bytes:
        if not min_one_batch:
            return b"", -1
        data = segment.file.read(position, first_bytes)
    last = end = 0
    length_at, unpack = _LENGTH_AT, _batch_length.unpack_from
    while end + HEADER_BYTES <= len(data):
        next_end = end + unpack(data, end + length_at)[0] + LENGTH_COUNTS_FROM
        if next_end > len(data):
            break
        last, end = end, next_end
    next_offset = decode_header(data, last).last_offset + 1
    return (data if end == len(data) else memoryview(data)[:end]), next_offset


def batch_not_older(
    segments: SegmentList, timestamp_ms: int, offset: int
) -> "TimedBatch | int | None":
    """The next batch that may hold a record at or above `offset` which is not older than that.

    None when there is none; an offset to look on from after HEADERS_PER_STEP batches that were.
    """
    for segment in segments.from_floor(offset):
        if segment.size_bytes == 0 or segment.max_timestamp < timestamp_ms:
            continue
        _, near_offset = segment.time_index.lookup(timestamp_ms)
        looked_at = 0
        for position, header in segment.headers_near(max(near_offset, offset)):
            if header.last_offset < offset:
                continue  # at most what lies between two entries of the index
            if header.max_timestamp >= timestamp_ms:
                return TimedBatch(
                    header, memoryview(segment.file.read(position, header.size_bytes))
                )
            looked_at += 1
            if looked_at == HEADERS_PER_STEP:
                return header.next_offset
    return None
