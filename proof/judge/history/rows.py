"""Rows that survive a kill of their writer, in a file mapped into memory, chunk by chunk.

A row is packed directly into the mapping, which takes about a microsecond and no system call. The
row is in the page cache immediately, so `kill -9` loses no row. A row can be changed in place as
long as its handle exists. Only chunks that are being filled, or to which a handle refers, are
mapped, so the memory is limited by the operations in progress.
"""

import mmap
import os
from pathlib import Path
from typing import NamedTuple

from .schema import Table

CHUNK_ROWS = mmap.ALLOCATIONGRANULARITY  # a chunk then begins at a multiple of the granularity


class Handle(NamedTuple):
    """The place of a row that may still be changed."""

    buffer: mmap.mmap | bytearray
    position: int


class RecordedRows:
    """The rows of one table by one recorder, in memory if there is no path."""

    def __init__(self, table: Table, path: Path | None) -> None:
        self.table, self.path = table, path
        self.count = 0
        self._file = -1
        self._chunk: mmap.mmap | bytearray = bytearray()
        self._position = self._end = 0
        self._memory: list[bytearray] = []

    def append(self, *values: int) -> Handle:
        """Add a row, with its values in the order of the columns."""
        if self._position == self._end:
            self._next_chunk()
        buffer, position = self._chunk, self._position
        self.table.row.pack_into(buffer, position, *values, 1)
        self._position = position + self.table.row.size
        self.count += 1
        return Handle(buffer, position)

    def change(self, handle: Handle, **values: int) -> None:
        """Set columns of a row. The keywords are the columns' names."""
        places = self.table.places
        for name, value in values.items():
            at, packer = places[name]
            packer.pack_into(handle.buffer, handle.position + at, value)

    def read(self, handle: Handle, name: str) -> int:
        """Return the value of a column of a row."""
        at, packer = self.table.places[name]
        return packer.unpack_from(handle.buffer, handle.position + at)[0]

    def content(self) -> bytes:
        """Return the bytes of all rows, for a recorder in memory."""
        row_bytes = self.table.row.size
        return b"".join(self._memory)[: self.count * row_bytes]

    def close(self) -> None:
        """Truncate the file after its last row, and close it.

        A row whose handle exists may be changed even after this.
        """
        if self._file >= 0:
            os.ftruncate(self._file, self.count * self.table.row.size)
            os.close(self._file)
            self._file = -1
        self._position = self._end = 0

    def _next_chunk(self) -> None:
        size_bytes = CHUNK_ROWS * self.table.row.size
        if self.path is None:
            self._chunk = bytearray(size_bytes)
            self._memory.append(self._chunk)
        else:
            if self._file < 0:
                self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            start = self.count * self.table.row.size
            os.ftruncate(self._file, start + size_bytes)
            self._chunk = mmap.mmap(self._file, size_bytes, offset=start)
        self._position, self._end = 0, size_bytes
