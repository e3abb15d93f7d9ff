"""A file of equal-sized entries in rising order, the base of all three indexes of a segment.

No descriptor is kept open and nothing is mapped, because a partition has many segments, and
truncating a mapped file kills the process. New entries wait in a tail of a few hundred. A search
that does not end in the tail opens the file and reads one block.

The entries of the tail are lost in a crash, and wait in memory while the disk is full. The loss has
no effect, because recovery rebuilds the indexes of segments that were open at a crash.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from ..disk_guard import OUT_OF_RESOURCES
from .open_file import opened, write_all

TAIL_BYTES_MAX = 4096
_BLOCK_BYTES = 4096

EntryKey: TypeAlias = Callable[[bytes | bytearray, int], int]


class EntryFile:
    """A file of `count` entries of `entry_bytes` each. Methods raise OSError.

    With `tail_bytes_max=0` each entry is in the file when `append` returns, unless the disk is
    full.
    """

    __slots__ = ("_tail", "_tail_bytes_max", "count", "entry_bytes", "path")

    def __init__(
        self, path: Path, entry_bytes: int, *, tail_bytes_max: int = TAIL_BYTES_MAX, create: bool
    ) -> None:
        self.path = path
        self.entry_bytes = entry_bytes
        self._tail_bytes_max = tail_bytes_max
        if create:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        self.count = self.bytes_on_disk() // entry_bytes
        # (the number of entries before the tail, the tail)
        self._tail: tuple[int, bytearray] = (self.count, bytearray())

    def bytes_on_disk(self) -> int:
        """Return the length of the file, or 0 without a file."""
        try:
            return os.stat(self.path).st_size
        except FileNotFoundError:
            return 0

    @property
    def has_full_tail(self) -> bool:
        """Return whether the next append writes the entries in memory to the file."""
        return len(self._tail[1]) + self.entry_bytes > self._tail_bytes_max

    def append_entry(self, entry: bytes) -> None:
        """Add an entry at the end."""
        tail = self._tail[1]
        tail += entry
        self.count += 1
        if len(tail) > self._tail_bytes_max:
            try:
                self.write_out()
            except OSError as problem:
                if problem.errno in OUT_OF_RESOURCES:
                    return  # the tail waits in memory until the disk has space
                self.count -= 1
                del tail[-self.entry_bytes :]
                raise

    def entries(self, first: int, end: int) -> bytes:
        """Return the bytes of the entries from `first` to before `end`."""
        before, tail = self._tail
        parts: list[bytes] = []
        if first < min(end, before):
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                wanted = (min(end, before) - first) * self.entry_bytes
                parts.append(os.pread(fd, wanted, first * self.entry_bytes))
            finally:
                os.close(fd)
            first = before
        if first < end:
            at = (first - before) * self.entry_bytes
            parts.append(bytes(tail[at : at + (end - first) * self.entry_bytes]))
        return b"".join(parts)

    def count_up_to(self, target: int, key: EntryKey) -> int:
        """Return the number of entries with a key of at most `target`. The keys must rise.

        `key` reads the key of the entry that begins at a position of a buffer.
        """
        before, tail = self._tail
        entry_bytes = self.entry_bytes
        if tail and (before == 0 or key(tail, 0) <= target):
            return before + _bisect(tail, len(tail) // entry_bytes, entry_bytes, target, key)
        if not before:
            return 0
        block_entries = max(_BLOCK_BYTES // entry_bytes, 1)
        # The last block whose first key is at most the target.
        low, high = 0, (before - 1) // block_entries
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while low < high:
                middle = (low + high + 1) // 2
                first = os.pread(fd, entry_bytes, middle * block_entries * entry_bytes)
                if key(first, 0) <= target:
                    low = middle
                else:
                    high = middle - 1
            in_block = min(block_entries, before - low * block_entries)
            block = os.pread(fd, in_block * entry_bytes, low * block_entries * entry_bytes)
        finally:
            os.close(fd)
        return low * block_entries + _bisect(block, in_block, entry_bytes, target, key)

    def cut(self, count: int) -> None:
        """Keep only the first `count` entries."""
        if count >= self.count:
            return
        before, tail = self._tail
        if count >= before:
            self._tail = (before, tail[: (count - before) * self.entry_bytes])
        else:
            self._tail = (count, bytearray())
            os.truncate(self.path, count * self.entry_bytes)
        self.count = count

    def drop_torn_entry(self) -> None:
        """Remove an incomplete last entry of the file."""
        if self.bytes_on_disk() % self.entry_bytes:
            os.truncate(self.path, self.count * self.entry_bytes)

    def write_out(self) -> None:
        """Write the entries in memory to the file, without a sync.

        The file then ends after them.
        """
        before, tail = self._tail
        if not tail and self.bytes_on_disk() == self.count * self.entry_bytes:
            return
        with opened(self.path, os.O_RDWR | os.O_CREAT) as fd:
            write_all(fd, bytes(tail), before * self.entry_bytes)
            os.ftruncate(fd, self.count * self.entry_bytes)
        self._tail = (self.count, bytearray())

    def flush(self) -> None:
        """Write and sync all entries (blocks)."""
        self.close()
        # A missing file has no entries.
        with suppress(FileNotFoundError), opened(self.path, os.O_RDWR) as fd:
            os.fdatasync(fd)

    def close(self) -> None:
        """Write the entries in memory to the file. The object can still be used."""
        if self._tail[1] or os.path.exists(self.path):
            self.write_out()

    def rename_to(self, path: Path) -> None:
        """Rename an existing file atomically, without a sync of the directory."""
        self.write_out()
        if os.path.exists(self.path):
            os.rename(self.path, path)
        self.path = path

    def delete(self) -> None:
        """Remove the file if it exists."""
        self._tail = (0, bytearray())
        self.count = 0
        self.path.unlink(missing_ok=True)


def _bisect(
    buffer: bytes | bytearray, count: int, entry_bytes: int, target: int, key: EntryKey
) -> int:
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if key(buffer, middle * entry_bytes) <= target:
            low = middle + 1
        else:
            high = middle
    return low
