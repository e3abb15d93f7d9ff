"""The aborted transactions with markers in a segment (`.txnindex`).

The bytes are Kafka's, 34 an entry, big endian, with int16 version 0, int64 producer id, int64 first
offset, int64 last offset (of the abort marker), and int64 last stable offset after the end of this
transaction. Entries are in the order of the markers, so last offsets rise, and last stable offsets
do not fall. A read_committed fetch needs the entries that overlap it. They are the entries with
last offset >= fetch offset, up to the first entry with last stable offset >= upper end.

The file exists only if there is an entry. An entry is in the file when `append` returns, or waits
in memory while the disk is full. The entry is in the file before a snapshot makes recovery skip its
batches.
"""

import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from ...runtime.steps import Steps
from ..corrupt_file import CorruptFile
from .entry_file import EntryFile

ENTRY_BYTES = 34
_VERSION = 0
_BLOCK_ENTRIES = 128  # take about 4 kB
_ENTRY = struct.Struct(">hqqqq")
_LAST_OFFSET = struct.Struct(">q")
_UNKNOWN = (0, 0)  # the length and checksum of no entries
_REMEDY = "It is made again from the log: at once where a reader met it, or by the next start"


class CorruptTransactionIndex(CorruptFile):
    """The error of an inconsistent transaction index, which might hide aborted transactions."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction with records in [first_offset, last_offset] (both inclusive)."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode(transactions: Iterable[AbortedTransaction]) -> bytes:
    """Return the bytes of an index file with these transactions."""
    return b"".join(_ENTRY.pack(_VERSION, *transaction) for transaction in transactions)


class TransactionIndex(EntryFile):
    """The aborted transactions with markers in the segment that begins at `base_offset`."""

    __slots__ = ("_blocks", "_last_offset", "_sums", "base_offset")

    def __init__(self, path: Path, base_offset: int) -> None:
        super().__init__(path, ENTRY_BYTES, tail_bytes_max=0, create=False)
        self.base_offset = base_offset
        # For each full block, the lowest first offset, and the last stable offset at its end. While
        # one transaction stays open the LSO does not rise, and without these a fetch below it would
        # read all transactions that were aborted since.
        self._blocks: dict[int, tuple[int, int]] = {}
        self._last_offset = -1  # of the last entry, if known
        # For each block, the length and checksum of entries when appended or first read. A
        # truncation replaces both dicts, so that a thread, which read the entries before, adds
        # nothing to the new dicts.
        self._sums: dict[int, tuple[int, int]] = {}

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction, with a marker after all previous markers."""
        if transaction.last_offset <= self._last_offset:
            problem = f"{transaction} after a marker at {self._last_offset}"
            raise CorruptTransactionIndex(self.path, problem, _REMEDY)
        entry, number = encode([transaction]), self.count // _BLOCK_ENTRIES
        size_bytes, crc = self._sums.get(number, _UNKNOWN)
        is_known = size_bytes == self.count % _BLOCK_ENTRIES * ENTRY_BYTES
        self.append_entry(entry)
        if is_known:
            self._sums[number] = size_bytes + ENTRY_BYTES, crc32c(entry, crc)
        self._last_offset = transaction.last_offset
        if self.count % _BLOCK_ENTRIES == 0:
            # It is then computed when the block is read.
            with suppress(OSError, CorruptTransactionIndex):
                self._block(self._block_count - 1)

    def collect(
        self, fetch_offset: int, upper_offset: int
    ) -> tuple[list[AbortedTransaction], bool]:
        """Return the aborted transactions that overlap [fetch_offset, upper_offset), by marker.

        The flag is True if no later segment can have more such transactions, because an entry's
        last stable offset has reached `upper_offset`.
        """
        if not self.count:
            return [], False
        found: list[AbortedTransaction] = []
        start = self._search(fetch_offset - 1)
        # A changed entry that misleads the search is the last one before `start`, or at `start`.
        first = max(start - 1, 0) // _BLOCK_ENTRIES
        for number in range(first, self._block_count):
            first_offset, stable_offset = self._blocks.get(number, (-1, -1))
            if number > first and first_offset >= upper_offset > stable_offset:
                continue
            for transaction in self._block(number):
                if transaction.last_offset < fetch_offset:
                    continue
                if transaction.first_offset < upper_offset:
                    found.append(transaction)
                if transaction.last_stable_offset >= upper_offset:
                    return found, True
        return found, False

    def all(self) -> list[AbortedTransaction]:
        """Return all entries, in the order of their markers."""
        return [each for block in self.blocks() for each in block]

    def blocks(self) -> Iterator[list[AbortedTransaction]]:
        """Yield all blocks, the oldest first."""
        return map(self._block, range(self._block_count))

    def newest_first(self, offset: int) -> Iterator[list[AbortedTransaction]]:
        """Yield the blocks with markers below `offset`, the newest first."""
        for number in reversed(range(-(-self.count_below(offset) // _BLOCK_ENTRIES))):
            yield self._block(number)

    def truncate_to(self, offset: int) -> None:
        """Remove the transactions with markers at or above `offset`."""
        self.keep(self.count_below(offset))

    def count_below(self, offset: int) -> int:
        """Return the number of transactions with markers below `offset`."""
        if not self.count or offset <= self.base_offset:
            return 0
        count = self._search(offset - 1)
        # A changed entry that misleads the search is the last one before `count`, or at `count`.
        for number in {max(count - 1, 0) // _BLOCK_ENTRIES, count // _BLOCK_ENTRIES}:
            if number < self._block_count:
                self._block(number)
        return count

    def keep(self, count: int) -> None:
        """Keep only the first `count` entries. No file descriptor is needed.

        If the file cannot be read, the checksum of the last remaining block is not known any more.
        """
        full, rest = divmod(count, _BLOCK_ENTRIES)
        known = None
        if rest and full in self._sums:
            with suppress(OSError):
                known = self._sum_of_first(rest * ENTRY_BYTES, full)
        sums = {n: each for n, each in self._sums.copy().items() if n < full}
        blocks = {n: block for n, block in self._blocks.copy().items() if n < full}
        if known is not None:
            sums[full] = known
        self._sums, self._blocks = {}, {}
        self.cut(count)
        self._sums, self._blocks = sums, blocks
        self._last_offset = -1

    def checking(self) -> Steps[None]:
        """Raise CorruptTransactionIndex unless the file is consistent with this segment."""
        length = self.bytes_on_disk()
        if length % ENTRY_BYTES:
            problem = f"its {length} bytes are no multiple of {ENTRY_BYTES}"
            raise CorruptTransactionIndex(self.path, problem, _REMEDY)
        previous = self.base_offset - 1
        for number in range(self._block_count):
            previous = self._check_order(self._block(number), previous)
            yield

    def move_to(self, path: Path, base_offset: int) -> None:
        """Rename the file of an empty index, to become the index of another segment."""
        self.base_offset = base_offset
        self.rename_to(path)

    def delete(self) -> None:
        super().delete()
        self._last_offset = -1
        self._sums, self._blocks = {}, {}

    @property
    def _block_count(self) -> int:
        return -(-self.count // _BLOCK_ENTRIES)

    def _search(self, offset: int) -> int:
        """Return the number of entries with markers up to `offset`."""
        while True:
            tail = self._tail
            try:
                return self.count_up_to(offset, _last_offset)
            except struct.error:  # the file is shorter: damaged, or truncated during the search
                if self._tail is tail:
                    raise

    def _block(self, number: int) -> list[AbortedTransaction]:
        """Return a block of entries. The bounds of a full block are cached for `collect`."""
        first = number * _BLOCK_ENTRIES
        while True:
            sums, blocks = self._sums, self._blocks
            known = size_bytes, crc = sums.get(number, _UNKNOWN)
            data = self.entries(first, min(first + _BLOCK_ENTRIES, self.count))
            if crc32c(data[:size_bytes]) == crc:
                break
            # The cleaner reads in a thread, while the event loop may append or truncate.
            if self._sums is sums and sums.get(number, _UNKNOWN) == known:
                raise CorruptTransactionIndex(self.path, "its entries have changed", _REMEDY)
        if sums.get(number, _UNKNOWN) == known:
            sums[number] = len(data), crc32c(data[size_bytes:], crc)
        block = [self._decode(data, at) for at in range(0, len(data), ENTRY_BYTES)]
        self._check_order(block, self.base_offset - 1)
        if len(block) == _BLOCK_ENTRIES and number not in blocks:
            blocks[number] = (
                min(transaction.first_offset for transaction in block),
                block[-1].last_stable_offset,
            )
        return block

    def _sum_of_first(self, size_bytes: int, number: int) -> tuple[int, int]:
        """Return the length and checksum of the first bytes of a block with a known checksum."""
        known = self._sums[number]
        if size_bytes >= known[0]:
            return known
        first = number * _BLOCK_ENTRIES
        data = self.entries(first, first + known[0] // ENTRY_BYTES)
        # After a change the checksum fits no entries.
        return size_bytes, crc32c(data[:size_bytes]) if crc32c(data) == known[1] else -1

    def _check_order(self, block: list[AbortedTransaction], previous: int) -> int:
        """Return the offset of the last marker in a block, or `previous` for an empty block.

        Raises CorruptTransactionIndex unless the marker offsets rise from `previous`.
        """
        for transaction in block:
            _, first_offset, last_offset, _ = transaction
            if not previous < last_offset >= first_offset:
                problem = f"{transaction} is out of order"
                raise CorruptTransactionIndex(self.path, problem, _REMEDY)
            previous = last_offset
        return previous

    def _decode(self, data: bytes, position: int) -> AbortedTransaction:
        version, *fields = _ENTRY.unpack_from(data, position)
        if version != _VERSION:
            raise CorruptTransactionIndex(self.path, f"an entry has version {version}", _REMEDY)
        return AbortedTransaction(*fields)


def _last_offset(buffer: bytes | bytearray, position: int) -> int:
    return _LAST_OFFSET.unpack_from(buffer, position + 18)[0]
