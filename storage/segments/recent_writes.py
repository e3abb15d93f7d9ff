"""The latest batches, which followers read from memory.

Two followers, and consumers at the end of the log, fetch a large batch within moments. Each read
from the file would cost a system call, new memory and a copy. Small batches are read from the file,
because their copy is cheaper than a lookup.
"""

from ...wire.record_batch import Buffer
from .segment import Segment

RECENT_BYTES_MIN = 32 * 1024
RECENT_BYTES_MAX = 5 * 512 * 1024  # two batches of 1 MB, with the memory of their frames


class RecentWrites:
    """The recent writes to active segments, shared by all logs of a broker.

    A batch that compaction replaced or a truncation removed is never included. A batch keeps all
    the memory of its request, maybe 100 MB for a batch of 32 kB. Therefore that memory is counted,
    once for all its batches, and memory above the limit is not kept.
    """

    __slots__ = ("_bytes", "_max_bytes", "_memories", "_written", "min_bytes")

    def __init__(
        self, max_bytes: int = RECENT_BYTES_MAX, min_bytes: int = RECENT_BYTES_MIN
    ) -> None:
        """Limit all kept memory to `max_bytes`. Only batches from `min_bytes` on are kept."""
        self.min_bytes = min_bytes
        self._max_bytes = max_bytes
        # By segment and position, the oldest first.
        self._written: dict[tuple[Segment, int], Buffer] = {}
        self._memories: dict[int, int] = {}  # the number of batches for each memory
        self._bytes = 0

    def note(self, segment: Segment, position: int, batch: Buffer) -> None:
        """Keep a batch that was just written and will not change any more."""
        memory, size_bytes = _memory_of(batch)
        if size_bytes > self._max_bytes:
            return
        self._written[segment, position] = batch
        batch_count = self._memories.get(memory, 0)
        self._memories[memory] = batch_count + 1
        if not batch_count:
            self._bytes += size_bytes
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._written)))

    def read(
        self, segment: Segment, position: int, available_bytes: int, max_bytes: int
    ) -> Buffer | None:
        """Return one batch if a read of the file would return exactly this batch, else None."""
        batch = self._written.get((segment, position))
        if batch is None or len(batch) > max_bytes:
            return None
        if len(batch) != available_bytes:
            following = self._written.get((segment, position + len(batch)))
            if following is None or len(batch) + len(following) <= max_bytes:
                return None
        return batch

    def discard(self, segment: Segment) -> None:
        """Drop the batches of a segment that was truncated, is inactive, or is no longer served."""
        for key in [key for key in self._written if key[0] is segment]:
            self._drop(key)

    def _drop(self, key: tuple[Segment, int]) -> None:
        batch = self._written.pop(key)
        memory, size_bytes = _memory_of(batch)
        self._memories[memory] -= 1
        if not self._memories[memory]:
            del self._memories[memory]
            self._bytes -= size_bytes


def _memory_of(batch: Buffer) -> tuple[int, int]:
    """Return the identity (while the batch exists) and the size of a batch's memory."""
    memory = batch.obj if isinstance(batch, memoryview) else batch
    return id(memory), memoryview(memory).nbytes


NO_RECENT_WRITES = RecentWrites(0, min_bytes=1 << 62)
