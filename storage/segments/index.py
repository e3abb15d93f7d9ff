"""The two sparse indexes of a segment, from offset to position, and from timestamp to offset.

The bytes are Kafka's, big endian. Both columns of the entries rise. An entry of `.index` has 8
bytes. They are the int32 offset relative to the segment's base offset, and the int32 position of
the batch in the `.log` file. An entry of `.timeindex` has 12 bytes. They are the int64 timestamp in
ms, and the int32 relative offset. All records up to that offset have at most that timestamp.

An index can always be rebuilt by reading the `.log` file. The segment decides which batches get an
entry (see segment.py).
"""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NamedTuple

from ..corrupt_file import CorruptFile
from .entry_file import EntryFile, EntryKey

NO_TIMESTAMP = -1

_INT32_MAX = 2**31 - 1
_REMEDY = "It can be rebuilt from the .log file: delete it while the broker is stopped"


class CorruptIndex(CorruptFile):
    """The error of an inconsistent index file, which recovery rebuilds."""


class KeptEntries(NamedTuple):
    """The number of index entries that remain after a truncation, and the last of them."""

    entry_count: int
    last_entry: tuple[int, int]


def _column(layout: str, at: int) -> EntryKey:
    unpack_from: Callable[..., tuple[int]] = struct.Struct(layout).unpack_from
    return lambda buffer, position: unpack_from(buffer, position + at)[0]


class SegmentIndex(EntryFile):
    """Entries of two rising columns, one of which is an offset.

    `index_bytes_max` limits the file (segment.index.bytes). With `is_full` a new segment begins.
    """

    __slots__ = ("base_offset", "full_count", "last_entry")

    layout: ClassVar[struct.Struct]
    reserved_entries: ClassVar[int]  # entries that only the close of a segment adds
    offset_column: ClassVar[int]  # 0 or 1
    offset_of: ClassVar[EntryKey]  # relative to the base offset

    def __init__(self, path: Path, base_offset: int, index_bytes_max: int = 10_485_760) -> None:
        super().__init__(path, self.layout.size, create=True)
        self.base_offset = base_offset
        self.full_count = index_bytes_max // self.layout.size - self.reserved_entries
        # The last entry, or `if_empty`. Opening a log checks it later.
        self.last_entry = self.entry(self.count - 1) if self.count else self.if_empty

    @property
    def if_empty(self) -> tuple[int, int]:
        """Return the entry that stands for an empty index, and is below all other entries."""
        raise NotImplementedError

    @property
    def is_full(self) -> bool:
        """Return whether the index is full, so that a new segment must begin."""
        return self.count >= self.full_count

    @property
    def size_bytes(self) -> int:
        """Return the size of the file once the entries in memory are written."""
        return self.count * self.entry_bytes

    def entry(self, number: int) -> tuple[int, int]:
        """Return one entry, with its absolute offset."""
        first, second = self.layout.unpack(self.entries(number, number + 1))
        if self.offset_column:
            return first, self.base_offset + second
        return self.base_offset + first, second

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at or above `offset`."""
        self.keep(self.kept_below(offset))

    def kept_below(self, offset: int) -> KeptEntries:
        """Return the entries that `truncate_to` leaves."""
        count = self.count_up_to(offset - 1 - self.base_offset, type(self).offset_of)
        return KeptEntries(count, self._last_of(count))

    def keep(self, kept: KeptEntries) -> None:
        """Remove all entries except `kept`. No file descriptor is needed."""
        self.cut(kept.entry_count)
        self.last_entry = kept.last_entry

    def check(self) -> None:
        """Raise CorruptIndex unless the file is consistent with this segment."""
        length = self.bytes_on_disk()
        if length % self.entry_bytes:
            problem = f"its {length} bytes are no multiple of {self.entry_bytes}"
            raise CorruptIndex(self.path, problem, _REMEDY)
        if not self.count:
            return
        first, last = self.entry(0), self.last_entry
        rises = first == last if self.count == 1 else first[0] < last[0]
        if self._is_impossible(first) or last[1] < first[1] or not rises:
            raise CorruptIndex(self.path, f"its last entry is {last}, its first {first}", _REMEDY)

    def delete(self) -> None:
        super().delete()
        self.last_entry = self.if_empty

    def move_to(self, path: Path, base_offset: int) -> None:
        """Rename the file of an empty index, to become the index of another segment."""
        self.base_offset = base_offset
        self.last_entry = self.if_empty
        self.rename_to(path)

    def _add(self, first: int, second: int) -> None:
        entry = first, second
        relative = entry[self.offset_column] - self.base_offset
        if not 0 <= relative <= _INT32_MAX:
            problem = f"{entry} is not within 31 bits of the base offset"
            raise CorruptIndex(self.path, problem, _REMEDY)
        packed = (first, relative) if self.offset_column else (relative, second)
        self.append_entry(self.layout.pack(*packed))
        self.last_entry = entry

    def _last_of(self, count: int) -> tuple[int, int]:
        """Return the last of the first `count` entries, or `if_empty`."""
        if not count:
            return self.if_empty
        entry = self.entry(count - 1)
        if self._is_impossible(entry):
            raise CorruptIndex(self.path, f"it has the entry {entry}", _REMEDY)
        return entry

    def _is_impossible(self, entry: tuple[int, int]) -> bool:
        """Return whether an entry has a negative position, or an offset below the base offset."""
        return entry[1] < 0 or entry[self.offset_column] < self.base_offset


class OffsetIndex(SegmentIndex):
    """Entries (offset, position). `lookup(offset)` finds where to start reading the `.log` file."""

    __slots__ = ()

    layout = struct.Struct(">ii")
    reserved_entries = 0
    offset_column = 0
    offset_of = staticmethod(_column(">i", 0))
    position_of = staticmethod(_column(">i", 4))

    @property
    def if_empty(self) -> tuple[int, int]:
        return self.base_offset, 0

    def append(self, offset: int, position: int) -> None:
        """Add the batch with last offset `offset` that begins at `position`. Both must rise."""
        last_offset, last_position = self.last_entry
        if self.count and (offset <= last_offset or position <= last_position):
            problem = f"({offset}, {position}) after {self.last_entry}"
            raise CorruptIndex(self.path, problem, _REMEDY)
        self._add(offset, position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """Return the entry with the largest offset up to `offset`, or (base offset, 0)."""
        return self._last_of(self.count_up_to(offset - self.base_offset, type(self).offset_of))

    def lookup_position(self, position: int) -> tuple[int, int]:
        """Return the last entry with at most this position, or (base offset, 0)."""
        return self._last_of(self.count_up_to(position, self.position_of))

    def truncate_to_position(self, position: int) -> None:
        """Remove the entries of batches at or above `position`."""
        count = self.count_up_to(position - 1, self.position_of)
        self.keep(KeptEntries(count, self._last_of(count)))


class TimeIndex(SegmentIndex):
    """Entries (timestamp, offset). `lookup(timestamp)` finds the offset to search from."""

    __slots__ = ()

    layout = struct.Struct(">qi")
    reserved_entries = 1
    offset_column = 1
    offset_of = staticmethod(_column(">i", 8))
    timestamp_of = staticmethod(_column(">q", 0))

    @property
    def if_empty(self) -> tuple[int, int]:
        return NO_TIMESTAMP, self.base_offset

    def append(self, timestamp: int, offset: int) -> None:
        """Add the largest timestamp so far and its offset.

        Does nothing if the timestamp is not larger than the last timestamp (as in Kafka), so the
        same entry may be added again when a segment closes. Neither column may fall.
        """
        last_timestamp, last_offset = self.last_entry
        if self.count and (offset < last_offset or timestamp < last_timestamp):
            problem = f"({timestamp}, {offset}) after {self.last_entry}"
            raise CorruptIndex(self.path, problem, _REMEDY)
        if timestamp > last_timestamp:
            self._add(timestamp, offset)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """Return the entry with the largest timestamp up to `timestamp`, or (-1, base offset).

        Records below its offset have at most the entry's timestamp.
        """
        return self._last_of(self.count_up_to(timestamp, self.timestamp_of))
