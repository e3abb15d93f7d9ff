"""Memory for received frames, which is used again.

A large frame in memory of its own costs a new mapping, its page faults and zeroes that are
overwritten at once: a tenth of a broker's work on batches of 1 MB. Python tells whether a frame is
still in use: a bytearray of which a view exists refuses to be resized.
"""

from collections import deque

STAGING_BYTES = 64 * 1024
LARGE_KEPT_BYTES_MAX = 4 * 1024 * 1024
_UNIT_BYTES = 256 * 1024  # so that a frame can reuse another's memory


class FrameMemory:
    """The memory that all receivers of one event loop share.

    staging: the buffer where bytes arrive, for one receiver after the other, since each takes its
    bytes out at once, parts of frames included.
    """

    __slots__ = ("_large", "_large_bytes", "staging")

    def __init__(self) -> None:
        self.staging = memoryview(bytearray(STAGING_BYTES))
        self._large: deque[bytearray] = deque()
        self._large_bytes = 0

    def large(self, size_bytes: int) -> bytearray:
        """Return at least so many bytes of any content; they are free again with the last view."""
        kept = self._large
        for _ in range(len(kept)):
            memory = kept.popleft()
            kept.append(memory)
            if size_bytes <= len(memory) and _is_free(memory):
                return memory
        if size_bytes > LARGE_KEPT_BYTES_MAX:  # it would displace all the others
            return bytearray(size_bytes)
        memory = bytearray(-(-size_bytes // _UNIT_BYTES) * _UNIT_BYTES)
        kept.append(memory)
        self._large_bytes += len(memory)
        while self._large_bytes > LARGE_KEPT_BYTES_MAX:  # the one used longest ago goes
            self._large_bytes -= len(kept.popleft())
        return memory


def _is_free(memory: bytearray) -> bool:
    try:
        memory.append(memory.pop())  # within what is allocated: nothing moves
    except BufferError:
        return False
    return True
