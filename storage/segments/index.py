"""The two sparse indexes of a segment: offset to position, and timestamp to offset.

Kafka's bytes. `.index`: 8 bytes an entry, int32 offset relative to the segment's base offset, int32
position of the batch in the `.log` file. `.timeindex`: 12 bytes an entry, int64 timestamp in ms,
int32 relative offset; it says that all records below that offset, and the one at it, have
timestamps of at most that timestamp. Big endian, both rising in both columns.

An index is an aid: everything in it can be found again by reading the `.log` file. Which batches
get an entry is the segment's rule, see segment.py.
"""

import struct
from pathlib import Path
from typing import NamedTuple

from ..corrupt_file import CorruptFile
from .entry_file import EntryFile

NO_TIMESTAMP = -1
OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12

_INT32_MAX = 2**31 - 1
_REMEDY = "It can be rebuilt from the .log file: delete it while the broker is stopped"
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


class CorruptIndex(CorruptFile):
    """An index file that cannot be right; recovery answers it by a rebuild."""


class KeptEntries(NamedTuple):
    """What stays of an index that is cut: how many entries, and the last of them."""

    entry_count: int
    last_entry: tuple[int, int]


class OffsetIndex:
    """`lookup(offset)` finds from where to scan the `.log` file.

    `index_bytes_max` bounds the file (segment.index.bytes); `is_full` tells the segment to roll.
    """

    __slots__ = ("_file", "base_offset", "entries_max", "last_entry")

    def __init__(self, path: Path, base_offset: int, index_bytes_max: int = 10_485_760) -> None:
        self._file = EntryFile(path, OFFSET_ENTRY_BYTES, create=True)
        self.base_offset = base_offset
        self.entries_max = index_bytes_max // OFFSET_ENTRY_BYTES
        # (offset, position), (base offset, 0) when empty
        self.last_entry = self._last_of(self._file.count)

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def entry_count(self) -> int:
        """How many entries there are."""
        return self._file.count

    @property
    def is_full(self) -> bool:
        """Whether no entry more may be added."""
        return self._file.count >= self.entries_max

    @property
    def size_bytes(self) -> int:
        """The size of the file once everything is written out."""
        return self._file.count * OFFSET_ENTRY_BYTES

    @property
    def has_full_tail(self) -> bool:
        """Whether the next entry should not wait in memory beside the others."""
        return self._file.has_full_tail

    def append(self, offset: int, position: int) -> None:
        """Note that the batch with last offset `offset` begins at `position`; both must rise."""
        last_offset, last_position = self.last_entry
        if self._file.count and (offset <= last_offset or position <= last_position):
            raise ValueError(f"{self.path}: ({offset}, {position}) after {self.last_entry}")
        self._file.append(_OFFSET_ENTRY.pack(_relative(self, offset), position))
        self.last_entry = (offset, position)

    def lookup(self, offset: int) -> tuple[int, int]:
        """The entry with the largest offset of at most `offset`; (base offset, 0) if none."""
        number = self._file.count_up_to(offset - self.base_offset, _relative_offset_first)
        return self.entry(number - 1) if number else (self.base_offset, 0)

    def entry(self, number: int) -> tuple[int, int]:
        """One entry as (offset, position)."""
        relative, position = _OFFSET_ENTRY.unpack(self._file.entry(number))
        return self.base_offset + relative, position

    def lookup_position(self, position: int) -> tuple[int, int]:
        """The entry of the last batch that begins at or below a position; as `lookup`, if none."""
        number = self._file.count_up_to(position, _position)
        return self.entry(number - 1) if number else (self.base_offset, 0)

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at `offset` and above."""
        self.cut(self.kept_below(offset))

    def truncate_to_position(self, position: int) -> None:
        """Remove the entries of batches at `position` and above."""
        count = self._file.count_up_to(position - 1, _position)
        self.cut(KeptEntries(count, self._last_of(count)))

    def kept_below(self, offset: int) -> KeptEntries:
        """What `truncate_to` leaves."""
        relative = offset - self.base_offset
        count = self._file.count_up_to(relative - 1, _relative_offset_first)
        return KeptEntries(count, self._last_of(count))

    def cut(self, kept: KeptEntries) -> None:
        """Remove all other entries. Takes no descriptor."""
        self._file.cut(kept.entry_count)
        self.last_entry = kept.last_entry

    def drop_torn_entry(self) -> None:
        """Cut off what a killed process left of its last entry."""
        self._file.drop_torn_entry()

    def check(self) -> None:
        """Raise CorruptIndex unless the file could be an index of this segment."""
        _check_length(self._file)
        if not self._file.count:
            return
        first, last = self.entry(0), self.last_entry
        rises = first == last if self._file.count == 1 else first[0] < last[0]
        if first[0] < self.base_offset or last[1] < first[1] or not rises:
            raise CorruptIndex(self.path, f"its last entry is {last}, its first {first}", _REMEDY)

    def write_out(self) -> None:
        """Put entries that are in memory only into the file."""
        self._file.write_out()

    def flush(self) -> None:
        """Bring the entries to the disk (blocks)."""
        self._file.flush()

    def close(self) -> None:
        """Write everything out; the index stays usable."""
        self._file.close()

    def renamed(self, path: Path) -> None:
        """The file has another name."""
        self._file.path = path

    def rename_to(self, path: Path) -> None:
        """Give the file another name."""
        self._file.rename_to(path)

    def delete(self) -> None:
        self._file.delete()
        self.last_entry = self._last_of(self._file.count)

    def move_to(self, path: Path, base_offset: int) -> None:
        """Be the index of another segment; while there is no entry."""
        self.base_offset, self.last_entry = base_offset, (base_offset, 0)
        self._file.rename_to(path)

    def _last_of(self, count: int) -> tuple[int, int]:
        return self.entry(count - 1) if count else (self.base_offset, 0)


class TimeIndex:
    """`lookup(timestamp)` finds from which offset to search for a timestamp."""

    __slots__ = ("_file", "base_offset", "entries_max", "last_entry")

    def __init__(self, path: Path, base_offset: int, index_bytes_max: int = 10_485_760) -> None:
        self._file = EntryFile(path, TIME_ENTRY_BYTES, create=True)
        self.base_offset = base_offset
        self.entries_max = index_bytes_max // TIME_ENTRY_BYTES
        # (timestamp, offset), (-1, base offset) when empty
        self.last_entry = self._last_of(self._file.count)

    @property
    def path(self) -> Path:
        return self._file.path

    @property
    def entry_count(self) -> int:
        """How many entries there are."""
        return self._file.count

    @property
    def is_full(self) -> bool:
        """Whether only the entry that closes the segment has room left."""
        return self._file.count >= self.entries_max - 1

    @property
    def size_bytes(self) -> int:
        """The size of the file once everything is written out."""
        return self._file.count * TIME_ENTRY_BYTES

    def append(self, timestamp: int, offset: int) -> None:
        """Note the largest timestamp so far and the offset that bears it.

        Does nothing when the timestamp is not larger than the last one (as Kafka): so the same
        may be told again when a segment closes. Neither column may fall.
        """
        last_timestamp, last_offset = self.last_entry
        if self._file.count and (offset < last_offset or timestamp < last_timestamp):
            raise ValueError(f"{self.path}: ({timestamp}, {offset}) after {self.last_entry}")
        if timestamp > last_timestamp:
            self._file.append(_TIME_ENTRY.pack(timestamp, _relative(self, offset)))
            self.last_entry = (timestamp, offset)

    def lookup(self, timestamp: int) -> tuple[int, int]:
        """The entry with the largest timestamp of at most `timestamp`; (-1, base offset) if none.

        Records below its offset are all older than, or as old as, the entry's timestamp.
        """
        number = self._file.count_up_to(timestamp, _timestamp_first)
        return self.entry(number - 1) if number else (NO_TIMESTAMP, self.base_offset)

    def entry(self, number: int) -> tuple[int, int]:
        """One entry as (timestamp, offset)."""
        timestamp, relative = _TIME_ENTRY.unpack(self._file.entry(number))
        return timestamp, self.base_offset + relative

    def truncate_to(self, offset: int) -> None:
        """Remove the entries at `offset` and above."""
        self.cut(self.kept_below(offset))

    def kept_below(self, offset: int) -> KeptEntries:
        """What `truncate_to` leaves."""
        relative = offset - self.base_offset
        count = self._file.count_up_to(relative - 1, _relative_offset_second)
        return KeptEntries(count, self._last_of(count))

    def cut(self, kept: KeptEntries) -> None:
        """Remove all other entries. Takes no descriptor."""
        self._file.cut(kept.entry_count)
        self.last_entry = kept.last_entry

    def drop_torn_entry(self) -> None:
        """Cut off what a killed process left of its last entry."""
        self._file.drop_torn_entry()

    def check(self) -> None:
        """Raise CorruptIndex unless the file could be a time index of this segment."""
        _check_length(self._file)
        if not self._file.count:
            return
        first, last = self.entry(0), self.last_entry
        rises = first == last if self._file.count == 1 else first[0] < last[0]
        if first[1] < self.base_offset or last[1] < first[1] or not rises:
            raise CorruptIndex(self.path, f"its last entry is {last}, its first {first}", _REMEDY)

    def write_out(self) -> None:
        """Put entries that are in memory only into the file."""
        self._file.write_out()

    def flush(self) -> None:
        """Bring the entries to the disk (blocks)."""
        self._file.flush()

    def close(self) -> None:
        """Write everything out; the index stays usable."""
        self._file.close()

    def renamed(self, path: Path) -> None:
        """The file has another name."""
        self._file.path = path

    def rename_to(self, path: Path) -> None:
        """Give the file another name."""
        self._file.rename_to(path)

    def delete(self) -> None:
        self._file.delete()
        self.last_entry = self._last_of(self._file.count)

    def move_to(self, path: Path, base_offset: int) -> None:
        """Be the index of another segment; while there is no entry."""
        self.base_offset, self.last_entry = base_offset, (NO_TIMESTAMP, base_offset)
        self._file.rename_to(path)

    def _last_of(self, count: int) -> tuple[int, int]:
        return self.entry(count - 1) if count else (NO_TIMESTAMP, self.base_offset)


def _relative(index: OffsetIndex | TimeIndex, offset: int) -> int:
    relative = offset - index.base_offset
    if not 0 <= relative <= _INT32_MAX:
        raise ValueError(f"{index.path}: offset {offset} is not within 31 bits of the base offset")
    return relative


def _check_length(file: EntryFile) -> None:
    length = file.bytes_on_disk()
    if length % file.entry_bytes:
        problem = f"its {length} bytes are no multiple of {file.entry_bytes}"
        raise CorruptIndex(file.path, problem, _REMEDY)


def _relative_offset_first(buffer: bytes | bytearray, position: int) -> int:
    return _INT32.unpack_from(buffer, position)[0]


def _position(buffer: bytes | bytearray, position: int) -> int:
    return _INT32.unpack_from(buffer, position + 4)[0]


def _relative_offset_second(buffer: bytes | bytearray, position: int) -> int:
    return _INT32.unpack_from(buffer, position + 8)[0]


def _timestamp_first(buffer: bytes | bytearray, position: int) -> int:
    return _INT64.unpack_from(buffer, position)[0]
