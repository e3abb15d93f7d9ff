"""Iteration over the records of a batch, without decoding keys and values.

A broker that stores records unchanged needs only their lengths and deltas. `walk_skeleton` reads
the beginning of each record. `records_without_key` is as strict as `decode_batch`. Both functions
work in steps, since a megabyte can decompress to millions of records.
"""

from collections.abc import Iterator
from typing import NamedTuple

from ..runtime.c_calls import new_tuple
from ..runtime.steps import Steps
from .errors import InvalidRecord, InvalidTimestamp
from .record_batch import BatchHeader
from .records import RECORD_BYTES_MIN, bytes_at, header_count_at, varint_at

ITEMS_PER_STEP = 400  # records and headers, in about 0.4 ms
_BLOCK, _THREE_BYTES_FROM = 64, 8192  # offset deltas that share all but the first byte
SKELETONS_PER_STEP = 20 * _BLOCK  # records of which only the beginning is read, in about 0.5 ms
NAMED_RECORDS_MAX = 10_000
NO_TIMESTAMP = -1
_FIELDS_BYTES_MIN = 4  # offset delta, null key, null value, no headers
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class WalkedRecords(NamedTuple):
    """The earliest and the latest timestamp (ms) of a batch's records.

    Records without a timestamp (-1) do not count, unless all have none. item_count: the records and
    headers that were read completely.
    """

    earliest: int
    latest: int
    item_count: int


class RecordsWithoutKey(NamedTuple):
    """The number of a batch's records without a key, and the indexes of the first of them.

    item_count: the number of all records and headers.
    """

    total: int
    places: list[int]
    item_count: int


def walk_skeleton(data: bytes | memoryview, header: BatchHeader) -> Steps[WalkedRecords]:
    """Check the layout of the records of a client's batch. `data` is not compressed.

    The lengths of the records must fill the batch exactly, their number must be the header's, and
    their offsets must rise by one from 0. Keys, values and headers are not read. Raises
    InvalidRecord, and InvalidTimestamp for a timestamp of more than 64 bits.
    """
    count, size_bytes = header.record_count, len(data)
    if count <= 0 or count * RECORD_BYTES_MIN > size_bytes:
        raise InvalidRecord(f"{count} records cannot stand in {size_bytes} bytes")
    no_time = NO_TIMESTAMP - header.base_timestamp
    at, previous, signs = 0, -1, 0
    earliest, latest = _INT64_MAX, _INT64_MIN  # as deltas
    try:
        # Varints of one and two bytes, the usual ones, are decoded here, and stay zigzag. The
        # offsets of a block share their second byte.
        for start in range(0, count, _BLOCK):
            if start and start % SKELETONS_PER_STEP == 0:
                yield
            high = start // _BLOCK if start < _THREE_BYTES_FROM else -1
            more_follow = 128 if start else 0
            for low in range(more_follow, more_follow + 2 * min(_BLOCK, count - start), 2):
                number = data[at]
                if number < 0x80:
                    at += 1
                elif (more := data[at + 1]) < 0x80:
                    number = number & 0x7F | more << 7
                    at += 2
                else:
                    length, at = varint_at(data, at)
                    number = length << 1 if length > 0 else 1
                signs |= number
                end = at + (number >> 1)
                time = data[at + 1]  # after the attributes, which have no meaning yet
                if time < 0x80:
                    at += 2
                elif (more := data[at + 2]) < 0x80:
                    time = time & 0x7F | more << 7
                    at += 3
                else:
                    delta, at = varint_at(data, at + 1)
                    time = delta << 1 if delta >= 0 else ~(delta << 1)
                if time != previous:
                    previous = time
                    delta = (time >> 1) ^ -(time & 1)
                    if delta > latest:  # noqa: PLR1730 (no call for a record)
                        latest = delta
                    if delta < earliest and delta != no_time:
                        earliest = delta
                if (
                    # Or the number has more bytes.
                    data[at] != low or (high and data[at + 1] != high)
                ) and varint_at(data, at)[0] != start + ((low - more_follow) >> 1):
                    raise InvalidRecord("a record's offset does not fit its batch")
                if end - at < _FIELDS_BYTES_MIN:
                    raise InvalidRecord("a record is shorter than its fields")
                at = end
    except IndexError:
        raise InvalidRecord("a record goes beyond its batch") from None
    if at != size_bytes or signs & 1:  # a length was negative
        raise InvalidRecord("the records do not fill their batch")
    earliest = min(earliest, latest)  # in case no record has a timestamp
    earliest, latest = header.base_timestamp + earliest, header.base_timestamp + latest
    if earliest < _INT64_MIN or latest > _INT64_MAX:
        raise InvalidTimestamp("a record's timestamp has more than 64 bits")
    return new_tuple(WalkedRecords, (earliest, latest, 0))


def records_without_key(data: bytes, header: BatchHeader) -> Steps[RecordsWithoutKey]:
    """Find the records without a key. `data` is not compressed.

    Raises InvalidRecord if the records do not fill their batch exactly, or their offsets are out of
    range or do not rise.
    """
    size_bytes, count = len(data), header.record_count
    if count < 0 or count * RECORD_BYTES_MIN > size_bytes:
        raise InvalidRecord(f"{count} records cannot stand in {size_bytes} bytes")
    places: list[int] = []
    without_key = header_count = 0
    items_of_step = 0
    at, previous_delta, last_delta = 0, -1, header.last_offset_delta
    try:
        for index in range(count):
            items_of_step += 1
            if items_of_step >= ITEMS_PER_STEP:
                yield
                items_of_step = 0
            length, at = varint_at(data, at)
            end = at + length
            if length < RECORD_BYTES_MIN - 1 or end > size_bytes:
                raise InvalidRecord("a record goes beyond its batch")
            at += 1  # attributes have no meaning yet
            # The timestamp delta; numbers of one byte, the usual ones, are decoded here.
            if data[at] < 0x80:
                at += 1
            else:
                _, at = varint_at(data, at)
            number = data[at]
            if number < 0x80:
                delta, at = (number >> 1) ^ -(number & 1), at + 1
            else:
                delta, at = varint_at(data, at)
            if not previous_delta < delta <= last_delta:
                raise InvalidRecord("a record's offset does not fit its batch")
            previous_delta = delta
            number = data[at]
            if number == 1:  # null
                without_key += 1
                if without_key <= NAMED_RECORDS_MAX:
                    places.append(index)
                at += 1
            else:
                at = _after_bytes(data, at, end)
            at = _after_bytes(data, at, end)
            if data[at] == 0:
                at += 1
            else:
                headers, at = header_count_at(data, at, end)
                header_count += headers
                for _ in range(headers):
                    items_of_step += 1
                    if items_of_step >= ITEMS_PER_STEP:
                        yield
                        items_of_step = 0
                    at = _after_header(data, at, end)
            if at != end:
                raise InvalidRecord("a record's length does not fit its fields")
    except (IndexError, UnicodeDecodeError) as error:
        raise InvalidRecord(f"the records of a batch are broken: {error}") from error
    if at != size_bytes:
        raise InvalidRecord("bytes beyond the last record of a batch")
    return RecordsWithoutKey(without_key, places, count + header_count)


def first_record_not_older(
    data: bytes, header: BatchHeader, timestamp_ms: int, offset: int
) -> Steps[tuple[int, int] | None]:
    """Return (offset, timestamp) of the first record at or after `offset` that is not too old.

    Its timestamp is at least `timestamp_ms`. Returns None if the batch has no such record. Keys,
    values, and later records are not read. Raises InvalidRecord, even for an invalid offset or
    timestamp, since old batches may not have been checked.
    """
    if header.is_log_append_time and header.max_timestamp < timestamp_ms:
        return None
    at = 0
    try:
        for index in range(header.record_count):
            if index % ITEMS_PER_STEP == ITEMS_PER_STEP - 1:
                yield
            length, at = varint_at(data, at)
            end = at + length
            delta, at = varint_at(data, at + 1)
            timestamp = header.base_timestamp + delta
            if header.is_log_append_time:
                timestamp = header.max_timestamp
            delta, at = varint_at(data, at)
            if timestamp >= timestamp_ms and header.base_offset + delta >= offset:
                if delta > header.last_offset_delta or timestamp > _INT64_MAX:
                    raise InvalidRecord("a record's offset or timestamp does not fit its batch")
                return header.base_offset + delta, timestamp
            if end < at:
                raise InvalidRecord("a record goes beyond its fields")
            at = end
    except IndexError as error:
        raise InvalidRecord(f"the records of a batch are broken: {error}") from error
    return None


def timestamps(data: bytes, header: BatchHeader) -> Iterator[int]:
    """Yield the timestamp of each record as its producer has set it, or raise InvalidRecord."""
    at = 0
    try:
        for _ in range(header.record_count):
            length, at = varint_at(data, at)
            end = at + length
            delta, at = varint_at(data, at + 1)
            if end < at:
                raise InvalidRecord("a record goes beyond its fields")
            yield header.base_timestamp + delta
            at = end
    except IndexError as error:
        raise InvalidRecord(f"the records of a batch are broken: {error}") from error


def _after_bytes(data: bytes, at: int, end: int) -> int:
    number = data[at]
    if number < 0x80:
        length, at = (number >> 1) ^ -(number & 1), at + 1
    else:
        length, at = varint_at(data, at)
    if length == -1:
        return at
    if length < 0 or at + length > end:
        raise InvalidRecord("a key or value goes beyond its record")
    return at + length


def _after_header(data: bytes, at: int, end: int) -> int:
    name, at = bytes_at(data, at, end)
    if name is None:
        raise InvalidRecord("a header has no name")
    name.decode()
    return _after_bytes(data, at, end)
