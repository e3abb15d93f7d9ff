"""From the batches of a fetch to records with the fate of their transactions; pure."""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from ..wire.control_record import ControlType, decode_marker
from ..wire.errors import CorruptMessage, InvalidRecord, UnsupportedCompressionType
from ..wire.record_batch import BatchHeader, Buffer, check_crc, iterate_batches
from ..wire.records import Record, decode_batch

DECOMPRESSED_BYTES_MAX = 8 * 1024 * 1024  # of one batch
TEXT_MAX = 400  # characters of a key, a value or a header
HEADERS_MAX = 20
COMMITTED, ABORTED, OPEN, PLAIN = "committed", "aborted", "open", "not transactional"
Row = dict[str, Any]


def record_rows(
    data: Buffer,
    aborted: Sequence[tuple[int, int]],
    *,
    from_offset: int,
    last_stable: int,
    limit: int,
) -> list[Row]:
    """Return a row for each record and each marker from an offset on.

    aborted: (producer id, first offset) as a read_committed fetch names them.
    """
    rows: list[Row] = []
    for row in _rows(data, aborted, last_stable):
        if row["offset"] >= from_offset:
            rows.append(row)
            if len(rows) >= limit:
                break
    return rows


def _rows(data: Buffer, aborted: Sequence[tuple[int, int]], last_stable: int) -> Iterator[Row]:
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
        fate = _fate(header, aborting, last_stable)
        for record in found:
            yield {**_row(header, record.offset), **_contents(record, header), "outcome": fate}


def _fate(header: BatchHeader, aborting: set[int], last_stable: int) -> str:
    if not header.is_transactional:
        return PLAIN
    if header.producer_id in aborting:
        return ABORTED
    return OPEN if header.base_offset >= last_stable else COMMITTED


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
    """Return bytes as people read them: text, or hexadecimal digits; long ones are cut."""
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
