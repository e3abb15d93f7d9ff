"""Conversion of a fetch's batches to records with transaction outcomes, without I/O."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from ..wire.control_record import ControlType, decode_marker
from ..wire.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from ..wire.record_batch import BatchHeader, Buffer, check_crc, iterate_batches
from ..wire.records import Record, decode_batch

DECOMPRESSED_BYTES_MAX = 8 * 1024 * 1024  # of one batch
TEXT_MAX = 400  # characters of a key, a value or a header
HEADERS_MAX = 20
COMMITTED, ABORTED, OPEN, PLAIN = "committed", "aborted", "open", "not transactional"
HELD_BACK = "committed, held back"  # at or above the last stable offset
UNKNOWN = "not known"  # its marker is further on than what was read
Row = dict[str, Any]


def record_rows(
    data: Buffer,
    aborted: Sequence[tuple[int, int]],
    *,
    from_offset: int,
    last_stable: int,
    end: int,
    limit: int,
) -> list[Row]:
    """Return a row for each record and each marker from an offset on.

    aborted: (producer id, first offset) of aborted transactions, from a read_committed fetch. end:
    the end of the log. From the last stable offset on, outcomes come from the markers in `data`.
    """
    rows: list[Row] = []
    for row in _rows(data, aborted, last_stable, end):
        if row["offset"] >= from_offset:
            rows.append(row)
            if len(rows) >= limit:
                break
    return rows


def _rows(
    data: Buffer, aborted: Sequence[tuple[int, int]], last_stable: int, end: int
) -> Iterator[Row]:
    markers, next_offset = _markers(data, last_stable)
    undecided = OPEN if next_offset >= end else UNKNOWN
    upcoming = deque(sorted(aborted, key=lambda each: each[1]))
    aborting = set[int]()
    for position, header in iterate_batches(data):
        while upcoming and upcoming[0][1] <= header.last_offset:
            aborting.add(upcoming.popleft()[0])
        try:
            check_crc(data, position, header)
            if header.is_control:
                kind, _ = decode_marker(data, position)
                yield _marker(header, kind)
                if kind is ControlType.ABORT:
                    aborting.discard(header.producer_id)
                continue
            found = decode_batch(data, position, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX)
        except (InvalidRecord, CorruptMessage, UnsupportedCompressionType) as problem:
            yield {**_row(header, header.base_offset), "problem": str(problem)}
            continue
        fate = _fate(header, aborting, last_stable) or _later(header, markers) or undecided
        for record in found:
            yield {**_row(header, record.offset), **_contents(record, header), "outcome": fate}


def _markers(data: Buffer, last_stable: int) -> tuple[list[tuple[int, int, bool]], int]:
    """Return (offset, producer id, whether it is an ABORT) of each marker from the LSO on.

    The second result is the offset after the last batch, or -1 without a batch.
    """
    found: list[tuple[int, int, bool]] = []
    next_offset = -1
    for position, header in iterate_batches(data):
        next_offset = header.next_offset
        if header.is_control and header.base_offset >= last_stable:
            with suppress(InvalidRecord, UnsupportedCompressionType):
                kind, _ = decode_marker(data, position)
                found.append((header.base_offset, header.producer_id, kind is ControlType.ABORT))
    return found, next_offset


def _later(header: BatchHeader, markers: Sequence[tuple[int, int, bool]]) -> str | None:
    """Return the outcome that the next marker of the batch's producer gives the batch.

    Returns None if `markers` has no such marker.
    """
    for offset, producer_id, aborts in markers:
        if producer_id == header.producer_id and offset > header.base_offset:
            return ABORTED if aborts else HELD_BACK
    return None


def _fate(header: BatchHeader, aborting: set[int], last_stable: int) -> str | None:
    """Return a batch's outcome, or None if it depends on a marker from the LSO on.

    aborting: the producer ids of the aborted transactions that are open at this batch.
    """
    if not header.is_transactional:
        return PLAIN
    if header.producer_id in aborting:
        return ABORTED
    return None if header.base_offset >= last_stable else COMMITTED


def _row(header: BatchHeader, offset: int) -> Row:
    return {
        "offset": offset,
        "timestamp_ms": None,
        "key": None,
        "value": None,
        "headers": [],
        "producer_id": header.producer_id if header.has_producer_id else None,
        "epoch": header.producer_epoch if header.has_producer_id else None,
        "outcome": None,
        "marker": None,
        "problem": None,
    }


def _marker(header: BatchHeader, kind: ControlType) -> Row:
    row = _row(header, header.base_offset)
    return {**row, "marker": kind.name.lower(), "timestamp_ms": header.max_timestamp}


def _contents(record: Record, header: BatchHeader) -> Row:
    is_append = header.is_log_append_time
    return {
        "timestamp_ms": header.max_timestamp if is_append else record.timestamp,
        "key": text(record.key),
        "value": text(record.value),
        "headers": [
            {"name": text(name.encode()), "value": text(value)}
            for name, value in record.headers[:HEADERS_MAX]
        ],
    }


def text(data: bytes | None) -> str | None:
    """Return bytes as text if they are UTF-8, otherwise as hexadecimal digits.

    Long values are cut, and followed by their size.
    """
    if data is None:
        return None
    part = data[: TEXT_MAX * 4]
    try:
        words = part.decode()
    except UnicodeDecodeError as problem:
        is_cut = len(part) < len(data) and problem.start > len(part) - 4
        words = part[: problem.start].decode() if is_cut else f"0x{part[: TEXT_MAX // 2].hex()}"
    if len(words) > TEXT_MAX or len(part) < len(data):
        return f"{words[:TEXT_MAX]}… ({len(data)} bytes)"
    return words
