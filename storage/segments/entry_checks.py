"""The check of entries of time and transaction indexes against their batches.

An entry of a time index names a batch and its timestamp. The marker of an aborted transaction is in
the segment, and has the same producer id. A batch begins at the transaction's first offset, and
another batch at its last stable offset. These two batches are also compared, if they are in the
segment and were not removed by compaction. All headers of a segment with aborted transactions are
read once, because an entry hides all batches of its producer since the previous marker, and none
before that marker. Thus most entries need no lookup.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
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
    """Raise CorruptTransactionIndex unless the index entries agree with the segment's batches.

    One walk over the headers confirms most entries. The batches of any other entry are looked up.
    Such an entry names a batch that compaction has removed, or its marker follows a damaged batch.
    """
    index, least_stable, lookups = segment.transaction_index, 0, 0
    walk = _TransactionWalk(segment)
    for entry in chain.from_iterable(index.blocks()):
        is_right = least_stable <= entry.last_stable_offset
        if is_right and not (yield from walk.confirming(entry)):
            lookups += 1
            try:
                is_right = _is_right(segment, entry)
            except (CorruptMessage, InvalidRecord):
                is_right = False
            if lookups % _ENTRIES_A_STEP == 0:
                yield
        if not is_right:
            raise CorruptTransactionIndex(index.path, f"the log has no {entry}", _REMEDY)
        least_stable = entry.last_stable_offset


class _TransactionWalk:
    """A walk over the headers of a segment, which follows the transactions to their markers."""

    def __init__(self, segment: IndexedSegment) -> None:
        self._segment = segment
        self._headers = enumerate(scan_headers(segment.file, 0, segment.size_bytes), 1)
        self._open: OrderedDict[int, int] = OrderedDict()  # producer id -> first offset
        self._markers: dict[int, int] = {}  # producer id -> offset of its last marker

    def confirming(self, entry: AbortedTransaction) -> Steps[bool]:
        """Walk to the marker of an entry, and return whether all batches of the entry are found.

        False says nothing about the entry, which must be looked up then. Raises
        CorruptTransactionIndex for an entry that covers other batches than its transaction's.
        """
        # Readers find a damaged batch. The walk ends before it.
        with suppress(CorruptMessage, InvalidRecord, OSError):
            for number, (position, header) in self._headers:
                if number % _HEADERS_A_STEP == 0:
                    yield
                producer_id, offset = header.producer_id, header.base_offset
                if header.is_control:
                    previous = self._markers.get(producer_id, -1)
                    self._markers[producer_id] = offset
                    first_offset = self._open.pop(producer_id, None)
                    if offset == entry.last_offset:
                        bound = offset if first_offset is None else first_offset
                        if not previous < entry.first_offset <= bound:
                            yield from self._refuse(entry, position + header.size_bytes, header)
                        return self._agrees(entry, first_offset, position, header)
                elif header.is_transactional:
                    self._open.setdefault(producer_id, offset)
                if offset >= entry.last_offset:
                    break
        return False

    def _agrees(
        self,
        entry: AbortedTransaction,
        first_offset: int | None,
        position: int,
        header: BatchHeader,
    ) -> bool:
        """Return whether a marker, and the open transactions after it, are those of an entry."""
        base_offset = self._segment.base_offset
        stable_offset = next(iter(self._open.values()), header.next_offset)
        return (
            entry.producer_id == header.producer_id
            and (entry.first_offset == first_offset or entry.first_offset < base_offset)
            and (
                entry.last_stable_offset == stable_offset or entry.last_stable_offset < base_offset
            )
            and _is_abort(self._segment, position, header)
        )

    def _refuse(self, entry: AbortedTransaction, end: int, last: BatchHeader) -> Steps[None]:
        """Raise CorruptTransactionIndex, or CorruptMessage for a damaged batch up to `last`."""
        segment, self._headers = self._segment, iter(())
        offsets = range(segment.base_offset, last.next_offset)
        for number, _ in enumerate(scan_closed(segment.file, 0, end, offsets), 1):
            if number % _ENTRIES_A_STEP == 0:
                yield
        path = segment.transaction_index.path
        raise CorruptTransactionIndex(path, f"the log has no {entry}", _REMEDY)


def _is_abort(segment: IndexedSegment, position: int, header: BatchHeader) -> bool:
    """Return whether an intact batch at a position is an abort marker, or raise CorruptMessage."""
    batch = segment.file.read(position, header.size_bytes)
    check_crc(batch, 0, decode_header(batch))
    return decode_marker(batch)[0] is ControlType.ABORT


def _is_right(segment: IndexedSegment, entry: AbortedTransaction) -> bool:
    producer_id, first_offset, last_offset, stable_offset = entry
    marker = _batch_at(segment, last_offset)
    if marker is None or not marker.is_control or marker.producer_id != producer_id:
        return False
    found = segment.position_of(last_offset)
    assert found is not None
    if not _is_abort(segment, found[0], marker):
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
