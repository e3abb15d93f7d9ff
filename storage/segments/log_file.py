"""A .log file of consecutive record batches, and the iteration over them.

The iteration reads only headers (61 bytes a batch), a chunk at a time, and decodes no records.
"""

import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ...wire.errors import CorruptMessage
from ...wire.record_batch import HEADER_BYTES, BatchHeader, Buffer, check_crc, decode_header

# Small batches share a read of this size; for large batches it is little more than the header.
SCAN_CHUNK_BYTES = 16_384
RECOVERY_CHUNK_BYTES = 1 << 20
_SYNC_FILE_RANGE_WRITE = 2


class DamagedSegment(CorruptMessage):
    """The error of a .log file that differs from the written bytes."""


class LogFile:
    """An open file that closes with its last reference.

    A flush or a read in another thread may therefore still use a file that retention or truncation
    has just removed from the log. It needs no lock, and never uses a descriptor that was reused.
    """

    __slots__ = ("fd", "path")

    def __init__(self, path: Path) -> None:
        self.fd = -1
        self.path = path
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)

    def size_on_disk(self) -> int:
        """Return the length of the file in bytes."""
        return os.fstat(self.fd).st_size

    def read(self, position: int, count: int) -> bytes:
        """Read up to `count` bytes from `position`, fewer only at the end of the file."""
        data = os.pread(self.fd, count, position)
        if len(data) == count or not data:
            return data
        parts = [data]  # a signal or a size above 2 GiB may shorten a read
        have = len(data)
        while have < count and (data := os.pread(self.fd, count - have, position + have)):
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all bytes of `data`. After an OSError some bytes may be written."""
        written = os.pwrite(self.fd, data, position)
        if written != len(data):
            rest = memoryview(data)[written:]
            while rest:
                position += written
                written = os.pwrite(self.fd, rest, position)
                rest = rest[written:]

    def truncate(self, size_bytes: int) -> None:
        """Truncate the file to `size_bytes`."""
        os.ftruncate(self.fd, size_bytes)

    def flush(self) -> None:
        """Sync the bytes to the disk (blocks)."""
        os.fdatasync(self.fd)

    def drop_cache(self) -> None:
        """Drop the file from the page cache, if the system supports it (not on macOS)."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def start_write_back(self, position: int, count: int) -> None:
        """Ask the kernel to begin writing these bytes to the disk (Linux only)."""
        if _sync_file_range is not None and count > 0:
            _sync_file_range(self.fd, position, count, _SYNC_FILE_RANGE_WRITE)


def _find_sync_file_range() -> Callable[..., int] | None:
    try:
        function = ctypes.CDLL(None).sync_file_range
    except AttributeError:
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


_sync_file_range = _find_sync_file_range()


def scan_headers(file: LogFile, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the batches between two positions as (position, header). `start` must begin a batch.

    Raises CorruptMessage for an invalid header, or if the last batch does not end at `end`.
    Checksums are not verified.
    """
    chunk, chunk_start = b"", start
    position = start
    while position + HEADER_BYTES <= end:
        if position + HEADER_BYTES > chunk_start + len(chunk):
            chunk = file.read(position, min(SCAN_CHUNK_BYTES, end - position))
            chunk_start = position
            if len(chunk) < HEADER_BYTES:
                break
        header = decode_header(chunk, position - chunk_start)
        if position + header.size_bytes > end:
            break
        yield position, header
        position += header.size_bytes
    if position != end:
        raise CorruptMessage(f"{file.path}: no whole batch begins at {position}")


def scan_batches(
    file: LogFile, start: int, end: int, chunk_bytes: int = RECOVERY_CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield whole batches between two positions as (position, header, batch).

    Ends before a batch that is not completely below `end`. Raises CorruptMessage for an invalid
    header or CRC.
    """
    chunk, chunk_start = memoryview(b""), start
    position = start
    while position + HEADER_BYTES <= end:
        at = position - chunk_start
        if at + HEADER_BYTES > len(chunk):
            chunk = memoryview(file.read(position, min(chunk_bytes, end - position)))
            chunk_start, at = position, 0
        header = decode_header(chunk, at)
        size_bytes = header.size_bytes
        if position + size_bytes > end:
            return
        if at + size_bytes > len(chunk):
            chunk = memoryview(
                file.read(position, min(max(chunk_bytes, size_bytes), end - position))
            )
            chunk_start, at = position, 0
            if len(chunk) < size_bytes:
                raise CorruptMessage(f"{file.path} ends inside a batch at {position}")
        check_crc(chunk, at, header)
        yield position, header, chunk[at : at + size_bytes]
        position += size_bytes


def check_crcs(file: LogFile, start: int, end: int) -> None:
    """Raise CorruptMessage unless all batches between two positions have valid checksums."""
    for _ in scan_batches(file, start, end, SCAN_CHUNK_BYTES):
        pass


def scan_closed(
    file: LogFile, start: int, end: int, offsets: range
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Yield batches like `scan_batches` from a part of a log that must be whole.

    `offsets` is the allowed range. Raises DamagedSegment if a batch ends beyond `end`, or has other
    offsets. No checksum covers a batch's length and base offset, and a wrong length would hide the
    following batches.
    """
    position, next_offset = start, offsets.start
    batches = scan_batches(file, start, end)
    while True:
        try:
            at, header, batch = next(batches)
        except StopIteration:
            break
        except CorruptMessage as problem:
            raise DamagedSegment(f"{file.path}: {problem}") from problem
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise DamagedSegment(
                f"{file.path}: the batch at {at} begins at offset {header.base_offset}, "
                f"after one that ends before {next_offset}"
            )
        position, next_offset = at + len(batch), header.next_offset
        if next_offset > offsets.stop:
            raise DamagedSegment(
                f"{file.path}: the batch at {at} ends with offset {header.last_offset}, "
                f"beyond {offsets.stop - 1}"
            )
        yield at, header, batch
    if position != end:
        raise DamagedSegment(f"{file.path}: no whole batch begins at {position}")
