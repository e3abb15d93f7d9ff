"""Reads from a log's segments, of whole batches from an offset, and of batches by timestamp.

Bytes come from the page cache by pread, or from memory for a large batch that was just written.
Positions come from the previous reads, or from the sparse index. A read never crosses the end of a
segment, as in Kafka. Bytes from a file are checked (see read_checks).
"""

import struct
from typing import NamedTuple

from ..runtime.c_calls import new_tuple
from ..wire.errors import CorruptMessage
from ..wire.record_batch import HEADER_BYTES, LENGTH_COUNTS_FROM, BatchHeader, decode_header
from .leader_epochs import LeaderEpochs
from .segments.log_file import Buffer
from .segments.read_checks import BASE_OFFSET_BYTES, BATCHES_MAX, check_batches
from .segments.segment import Segment
from .segments.segment_list import SegmentList

_batch_length = struct.Struct(">i")
HEADERS_PER_STEP = 64  # of a search by time, about 0.3 ms
AT_ONCE_BYTES = 1 << 20  # read without a sample; before a larger read a sample is read
SAMPLE_BYTES = 16_384
_LENGTH_AT = 8  # the position of the length in a batch


class LogRead(NamedTuple):
    """Whole batches, of which the first may begin before the requested offset.

    `next_offset` is where the next read begins, or the requested offset if `data` is empty.
    `batches` is the number of checked batches, by which a caller limits its reads of many logs.
    """

    data: Buffer
    next_offset: int
    batches: int = 0


class TimedBatch(NamedTuple):
    """A batch that may have a record with at least the searched timestamp."""

    header: BatchHeader
    data: memoryview


def read_batches(
    segments: SegmentList,
    epochs: LeaderEpochs,
    offset: int,
    max_bytes: int,
    *,
    upper_offset: int,
    log_end_offset: int,
    min_one_batch: bool,
) -> LogRead:
    """Read batches from the one that holds `offset` on, all below `upper_offset`.

    At most `max_bytes` are read, but one batch of any size with `min_one_batch`. `offset` must be
    in the log. Raises OSError, and CorruptMessage if the bytes differ from those written.
    """
    recalled = segments.recall(offset)
    located = _locate(segments, offset) if recalled is None else (*recalled, offset)
    if located is None:
        return LogRead(b"", offset)
    segment, position, from_offset = located
    if segment is segments.active and upper_offset >= log_end_offset:
        end, end_offset = segment.size_bytes, log_end_offset
    else:
        end, end_offset = _end_of_read(segments, segment, upper_offset, log_end_offset)
    available = end - position
    if available <= 0:
        return LogRead(b"", offset)
    if max_bytes > AT_ONCE_BYTES and available > AT_ONCE_BYTES:
        max_bytes = _worth_reading(segment, position, min(available, max_bytes))
    recent, batches = None, 1
    if available >= segments.recent.min_bytes:  # smaller batches are not kept in memory
        recent = segments.recent.read(segment, position, available, max_bytes)
    if recent is not None:
        data: Buffer = recent
        next_offset = decode_header(recent).next_offset
    elif available <= max_bytes:
        data = segment.file.read(position, available)
        checked = check_batches(data, from_offset, end_offset, epochs, len(data))
        size_bytes, next_offset, batches = checked
        if not size_bytes:
            raise CorruptMessage(f"no whole batch begins at {position}")
        if size_bytes == available:
            next_offset = end_offset
        else:  # small batches, or damage after these, which the next read finds
            data = _first_bytes(data, size_bytes)
    else:
        limits = available, max_bytes, end_offset
        data, bytes_max = _read_at_most(segment, position, limits, min_one_batch)
        if not data:
            return LogRead(b"", offset)
        checked = check_batches(data, from_offset, end_offset, epochs, bytes_max)
        size_bytes, next_offset, batches = checked
        if not size_bytes:
            raise CorruptMessage(f"no whole batch begins at {position}")
        data = _first_bytes(data, size_bytes)
    if segment is segments.active or position + len(data) < segment.size_bytes:
        segments.remember(next_offset, segment, position + len(data))
    return new_tuple(LogRead, (data, next_offset, batches))


def _locate(segments: SegmentList, offset: int) -> tuple[Segment, int, int] | None:
    """Find the batch that holds `offset` or, after a gap, the next batch.

    Returns (segment, position, base offset).
    """
    for segment in segments.from_floor(offset):
        if (found := segment.position_of(offset)) is not None:
            return segment, found[0], found[2]
    return None


def _end_of_read(
    segments: SegmentList, segment: Segment, upper_offset: int, log_end_offset: int
) -> tuple[int, int]:
    """Return where a read in `segment` must stop, as (position, next offset)."""
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
    segment: Segment, position: int, limits: tuple[int, int, int], min_one_batch: bool
) -> tuple[bytes, int]:
    """Read up to `max_bytes`, or a larger first batch if `min_one_batch` is set.

    `limits` is (available, max_bytes, end_offset). Returns (data, number of wanted bytes). The data
    may continue with the base offset of the next batch. There is no data if the first batch is
    larger and not allowed. Raises CorruptMessage for an invalid length, since a damaged length
    might span the whole segment.
    """
    available, max_bytes, end_offset = limits
    wanted = min(max(max_bytes, HEADER_BYTES) + BASE_OFFSET_BYTES, available)
    data = segment.file.read(position, wanted)
    first_bytes = _batch_length.unpack_from(data, _LENGTH_AT)[0] + LENGTH_COUNTS_FROM
    if first_bytes <= max_bytes:
        return data, max_bytes
    if not min_one_batch:
        return b"", 0
    if first_bytes < available:
        next_offset = decode_header(data).next_offset
        behind = segment.file.read(position + first_bytes, BASE_OFFSET_BYTES)
        is_possible = next_offset <= int.from_bytes(behind, signed=True) < end_offset
    else:
        is_possible = first_bytes == available
    if not is_possible:
        raise CorruptMessage(f"the batch at {position} has not {first_bytes} bytes, as it says")
    data = segment.file.read(position, min(first_bytes + BASE_OFFSET_BYTES, available))
    return data, min(first_bytes, len(data))


def _worth_reading(segment: Segment, position: int, wanted: int) -> int:
    """Return how many bytes to read in one call, which are fewer if the batches are small.

    Each batch is checked after the read, so many small batches would take long.
    """
    sample = segment.file.read(position, SAMPLE_BYTES)
    end = count = 0
    while end + HEADER_BYTES <= len(sample):
        length = _batch_length.unpack_from(sample, end + _LENGTH_AT)[0]
        if length < 0:
            break  # damage, which the check reports
        end, count = end + length + LENGTH_COUNTS_FROM, count + 1
    return min(wanted, max(AT_ONCE_BYTES, end // count * BATCHES_MAX if count else wanted))


def _first_bytes(data: bytes, size_bytes: int) -> Buffer:
    """Return the first bytes of `data`. A small part is copied, so that the rest can be freed."""
    view = memoryview(data)[:size_bytes]
    return bytes(view) if size_bytes * 2 < len(data) else view


def batch_not_older(
    segments: SegmentList, epochs: LeaderEpochs, timestamp_ms: int, offset: int, end_offset: int
) -> "TimedBatch | int | None":
    """Return the next batch at or after `offset` that may have this timestamp or a later one.

    Returns None if there is no such batch, or the offset to continue from after HEADERS_PER_STEP
    batches.
    """
    for segment in segments.from_floor(offset):
        if segment.size_bytes == 0 or segment.max_timestamp < timestamp_ms:
            continue
        near_offset = segment.offset_near(timestamp_ms)
        looked_at = 0
        for position, header in segment.headers_near(max(near_offset, offset)):
            if header.last_offset < offset:
                continue  # at most the batches between two entries of the index
            if header.max_timestamp >= timestamp_ms:
                data = segment.file.read(position, header.size_bytes)
                check_batches(data, header.base_offset, end_offset, epochs, len(data))
                return TimedBatch(header, memoryview(data))
            looked_at += 1
            if looked_at == HEADERS_PER_STEP:
                return header.next_offset
    return None
