"""What was written to the logs last, while it is still in memory: followers read it from there.

A large batch that a leader has received is asked for twice within moments, and again by who reads
the tail. Reading it back costs a system call, fresh memory and a copy each time. Small batches are
read back: their copy is cheaper than to look for them.
"""

from ...wire.record_batch import Buffer
from .segment import Segment

RECENT_BYTES_MIN = 32 * 1024
RECENT_BYTES_MAX = 2 * 1024 * 1024


class RecentWrites:
    """Shared by all logs of a broker. Only of active segments: what compaction replaces, or a cut
    takes away, is never in it.
    """

    __slots__ = ("_bytes", "_max_bytes", "_written", "min_bytes")

    def __init__(
        self, max_bytes: int = RECENT_BYTES_MAX, min_bytes: int = RECENT_BYTES_MIN
    ) -> None:
        """max_bytes: of all. min_bytes: of a batch that is worth a `note`."""
        self.min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._written: dict[tuple[Segment, int], Buffer] = {}  # by position, the oldest first
        self._bytes = 0

    def note(self, segment: Segment, position: int, batch: Buffer) -> None:
        """A batch that stands in the file now, and that nobody will write to any more."""
        self._written[segment, position] = batch
        self._bytes += len(batch)
        while self._bytes > self._max_bytes:
            self._drop(next(iter(self._written)))

    def read(
        self, segment: Segment, position: int, available_bytes: int, max_bytes: int
    ) -> Buffer | None:
        """What a read of the file would give, if that is one batch which is here; else None."""
        batch = self._written.get((segment, position))
        if batch is None or len(batch) > max_bytes:
            return None
        if len(batch) != available_bytes:
            following = self._written.get((segment, position + len(batch)))
            if following is None or len(batch) + len(following) <= max_bytes:
                return None
        return batch

    def forget(self, segment: Segment) -> None:
        """It was cut, is not the active one any more, or its log is not served."""
        for key in [key for key in self._written if key[0] is segment]:
            self._drop(key)

    def _drop(self, key: tuple[Segment, int]) -> None:
        self._bytes -= len(self._written.pop(key))


NO_RECENT_WRITES = RecentWrites(0, min_bytes=1 << 62)
