"""The check of entries of time and transaction indexes against their batches.

An entry of a time index names a batch and its timestamp. The marker of an aborted transaction is in
the segment, and has the same producer id. A batch begins at the transaction's first offset, and
another batch at its last stable offset. These two batches are also compared, if they are in the
segment and were not removed by compaction. The headers of a segment with aborted transactions are
read, because an entry hides all batches of its producer since the previous marker, and none before
that marker.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Protocol

from ...runtime.steps import Steps
from ...wire.control_record import ControlType, decode_marker
from ...wire.errors import CorruptMessage, InvalidRecord
from ...wire.record_batch import BatchHeader, check_crc, decode_header
from .index import NO_TIMESTAMP, CorruptIndex, TimeIndex
from .log_file import LogFile, scan_closed, scan_headers
from .transaction_index import AbortedTransaction, CorruptTransactionIndex, TransactionIndex

REBUILT = "It is rebuilt when the broker starts again"
_ENTRIES_A_STEP = 16
_HEADERS_A_STEP = 128  # some 0.3 ms
_REMEDY = "It is made again from the log"


class IndexedSegment(Protocol):
    """The attributes of a segment that the checks use."""

    file: LogFile
    time_index: TimeIndex
    transaction_index: TransactionIndex

    @property
    def base_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    def headers_near(self, offset: int) -> Iterator[tuple[int, BatchHeader]]: ...

    def position_of(self, offset: int) -> tuple[int, int, int] | None: ...


def check_time_entry(segment: IndexedSegment, entry: tuple[int, int]) -> tuple[int, int]:
    """Check an entry (timestamp, offset) of a segment's time index, and return it.

    Raises CorruptIndex unless the batch that ends with the entry's offset has its timestamp. The
    entry of an empty index is always valid.
    """
    timestamp_ms, offset = entry
    if timestamp_ms == NO_TIMESTAMP:
        return entry
    for _, header in segment.headers_near(offset):
        if header.last_offset >= offset:
            if (header.last_offset, header.max_timestamp) == entry[::-1]:
                return entry
            break
    raise CorruptIndex(segment.time_index.path, f"no {timestamp_ms} at offset {offset}", REBUILT)


def checking_aborts(segment: IndexedSegment) -> Steps[None]:
    """Raise CorruptTransactionIndex unless the batches that the index entries name exist."""
    index, least_stable = segment.transaction_index, 0
    entries = index.all()
    for number, entry in enumerate(entries, 1):
        try:
            is_right = least_stable <= entry.last_stable_offset and _is_right(segment, entry)
        except (CorruptMessage, InvalidRecord):
            is_right = False
        if not is_right:
            raise CorruptTransactionIndex(index.path, f"the log has no {entry}", _REMEDY)
        least_stable = entry.last_stable_offset
        if number % _ENTRIES_A_STEP == 0:
            yield
    if entries:
        with suppress(CorruptMessage, OSError):  # readers of the damaged batch find it
            yield from _checking_first_offsets(
                segment, {each.last_offset: each for each in entries}
            )


def _checking_first_offsets(
    segment: IndexedSegment, entries: Mapping[int, AbortedTransaction]
) -> Steps[None]:
    """Raise CorruptTransactionIndex unless each entry covers exactly its transaction's batches.

    entries: by the offset of the marker. Batches may be missing if compaction has removed them.
    Raises CorruptMessage instead where a batch up to the marker is damaged.
    """
    last_offset, markers, firsts = max(entries), dict[int, int](), dict[int, int]()
    headers = scan_headers(segment.file, 0, segment.size_bytes)
    for number, (position, header) in enumerate(headers, 1):
        producer_id = header.producer_id
        if header.is_control:
            first_offset = firsts.pop(producer_id, header.base_offset)
            entry = entries.get(header.base_offset)
            if entry and not markers.get(producer_id, -1) < entry.first_offset <= first_offset:
                yield from _checking_batches(segment, position + header.size_bytes, header)
                path = segment.transaction_index.path
                raise CorruptTransactionIndex(path, f"the log has no {entry}", _REMEDY)
            if header.base_offset >= last_offset:
                return
            markers[producer_id] = header.base_offset
        elif header.is_transactional:
            firsts.setdefault(producer_id, header.base_offset)
        if number % _HEADERS_A_STEP == 0:
            yield


def _checking_batches(segment: IndexedSegment, end: int, last: BatchHeader) -> Steps[None]:
    """Raise CorruptMessage unless all batches from the segment's start to `last` are intact."""
    offsets = range(segment.base_offset, last.next_offset)
    for number, _ in enumerate(scan_closed(segment.file, 0, end, offsets), 1):
        if number % _ENTRIES_A_STEP == 0:
            yield


def _is_right(segment: IndexedSegment, entry: AbortedTransaction) -> bool:
    producer_id, first_offset, last_offset, stable_offset = entry
    marker = _batch_at(segment, last_offset)
    if marker is None or not marker.is_control or marker.producer_id != producer_id:
        return False
    found = segment.position_of(last_offset)
    assert found is not None
    batch = segment.file.read(found[0], found[1])
    check_crc(batch, 0, decode_header(batch))
    if decode_marker(batch)[0] is not ControlType.ABORT:
        return False
    if first_offset >= segment.base_offset:
        first = _batch_at(segment, first_offset)
        if first is not None and (first.is_control or first.producer_id != producer_id):
            return False
    if stable_offset == last_offset + 1:
        return True
    if not segment.base_offset <= stable_offset < last_offset:
        return stable_offset < segment.base_offset
    stable = _batch_at(segment, stable_offset)
    return stable is None or (stable.is_transactional and stable.producer_id != producer_id)


def _batch_at(segment: IndexedSegment, offset: int) -> BatchHeader | None:
    """Return the batch at an offset, or None in a gap, or raise CorruptMessage within a batch."""
    for _, header in segment.headers_near(offset):
        if header.base_offset == offset:
            return header
        if header.last_offset >= offset:
            if header.base_offset < offset:
                raise CorruptMessage(f"no batch begins at {offset}")
            return None
    return None
