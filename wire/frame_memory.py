"""Memory for received frames, which is reused.

New memory for a large frame costs a mapping, page faults and a zero fill. Together they are a tenth
of a broker's work for batches of 1 MB. Python tells whether a frame is still in use, because a
bytearray with a view refuses to be resized.
"""

import mmap
from collections import deque
from contextlib import suppress

STAGING_BYTES = 64 * 1024
LARGE_KEPT_BYTES_MAX = 4 * 1024 * 1024
_KEPT_BYTES_MIN = 128 * 1024  # the C library takes less memory from its heap, without a mapping
_UNIT_BYTES = 256 * 1024  # so that frames of similar size can reuse the memory


class FrameMemory:
    """The memory that all receivers of one event loop share.

    staging: the buffer for received bytes. The receivers can share the buffer, because each
    receiver removes its bytes immediately, even if a frame is incomplete.
    """

    __slots__ = ("_large", "_large_bytes", "staging")

    def __init__(self) -> None:
        self.staging = memoryview(bytearray(STAGING_BYTES))
        self._large: deque[bytearray] = deque()
        self._large_bytes = 0

    def large(self, size_bytes: int) -> bytearray:
        """Return memory of at least `size_bytes` bytes.

        Memory of _KEPT_BYTES_MIN to LARGE_KEPT_BYTES_MAX is reused once it has no more views.
        """
        kept = self._large
        for _ in range(len(kept)):
            memory = kept.popleft()
            kept.append(memory)
            if size_bytes <= len(memory) and _is_free(memory):
                return memory
        # Larger memory would displace all others.
        if not _KEPT_BYTES_MIN <= size_bytes <= LARGE_KEPT_BYTES_MAX:
            return bytearray(size_bytes)
        if size_bytes > _UNIT_BYTES:
            size_bytes = -(-size_bytes // _UNIT_BYTES) * _UNIT_BYTES
        memory = bytearray(size_bytes)
        kept.append(memory)
        self._large_bytes += len(memory)
        while self._large_bytes > LARGE_KEPT_BYTES_MAX:  # drop the least recently used one
            self._large_bytes -= len(kept.popleft())
        return memory


def reserved(size_bytes: int) -> memoryview:
    """Return memory of which the kernel provides each page when it is first written."""
    memory = mmap.mmap(-1, size_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):  # a huge page would be provided for the first byte
        with suppress(OSError):  # of a kernel without huge pages
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return memoryview(memory)


def _is_free(memory: bytearray) -> bool:
    try:
        memory.append(memory.pop())  # within the allocated size, so nothing moves
    except BufferError:
        return False
    return True
