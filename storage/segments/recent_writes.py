"""The batches written last, while they are still in memory: followers read them from there.

A large batch that a leader has received is fetched twice within moments, and again by consumers at
the tail. Reading it back costs a system call, fresh memory and a copy each time. Small batches are
read back: their copy is cheaper than to look for them.
"""

from ...wire.record_batch import Buffer
from .segment import Segment

RECENT_BYTES_MIN = 32 * 1024
RECENT_BYTES_MAX = 5 * 512 * 1024  # two batches of 1 MB, as the memory of large frames is cut


class RecentWrites:
    """The recent writes to active segments, shared by all logs of a broker.

    A batch that compaction replaces, or a cut removes, is never in it. A batch keeps all the
    memory that it came in, maybe a request of 100 MB around 32 kB. So that memory is counted, once
    for all batches in it; and one beyond the limit is not kept.
    """

    __slots__ = ("_bytes", "_max_bytes", "_memories", "_written", "min_bytes")

    def __init__(
        self, max_bytes: int = RECENT_BYTES_MAX, min_bytes: int = RECENT_BYTES_MIN
    ) -> None:
        """Bound all memory kept by `max_bytes`; a batch is worth a `note` from `min_bytes` on."""
        self.min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._written: dict[tuple[Segment, int], Buffer] = {}  # by position, the oldest first
        self._memories: dict[int, int] = {}  # by identity, how many batches lie in each
        self._bytes = 0

    def note(self, segment: Segment, position: int, batch: Buffer) -> None:
        """Keep a batch that was just written, and that no code will write to any more."""
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
        """Return what a read of the file would, if that is one batch kept here; else None."""
        batch = self._written.get((segment, position))
        if batch is None or len(batch) > max_bytes:
            return None
        if len(batch) != available_bytes:
            following = self._written.get((segment, position + len(batch)))
            if following is None or len(batch) + len(following) <= max_bytes:
                return None
        return batch

    def discard(self, segment: Segment) -> None:
        """Forget a segment that was cut, is not active, or is of a log that is not served."""
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
