"""The fetch sessions of a broker, and the choice of sessions to evict (KIP-227).

By Kafka's rule a session that was unused for EVICTION_MS is evicted first. Otherwise the smallest
session is evicted if it is smaller than the new session and older than EVICTION_MS, so sessions do
not evict each other all the time. A client without a session names all its partitions in every
fetch. Kafka does not limit the total number of partitions, but this cache does.
"""

from collections.abc import Callable, Iterator

from .fetch_session import FetchSession

EVICTION_MS = 120_000
PARTITIONS_MAX = 250_000  # take about 150 MB


class FetchSessionCache:
    """All sessions by id, in the order of their last use."""

    __slots__ = ("_by_use", "_slots", "partition_count", "partitions_max")

    def __init__(self, slots: int, partitions_max: int = PARTITIONS_MAX) -> None:
        self._slots, self.partitions_max = slots, partitions_max
        self._by_use: dict[int, FetchSession] = {}
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._by_use)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._by_use.values())

    def get(self, session_id: int) -> FetchSession | None:
        """Return the session if it is open, else None."""
        return self._by_use.get(session_id)

    def open(
        self, size: int, now_ms: int, draw_id: Callable[[], int], *, uses_topic_ids: bool
    ) -> tuple[FetchSession | None, list[FetchSession]]:
        """Open a session of `size` partitions, and evict others if needed.

        Returns the session, or None if the cache is full, and the evicted sessions. draw_id:
        returns a new random number from 1 to 2**31 - 1 each time.
        """
        evicted: list[FetchSession] = []
        if not self._has_room(size):
            if size > self.partitions_max:
                return None, evicted
            for victim in self._victims(size, now_ms):
                self.close(victim)
                evicted.append(victim)
                if self._has_room(size):
                    break
            else:
                return None, evicted
        session_id = draw_id()
        while session_id in self._by_use:
            session_id = draw_id()
        session = FetchSession(session_id, now_ms, uses_topic_ids=uses_topic_ids)
        self._by_use[session_id] = session
        self._count(session, size)
        return session, evicted

    def touch(self, session: FetchSession, now_ms: int) -> bool:
        """Record the use of a session and its current number of partitions.

        Returns whether the number of partitions in all sessions is within the limit of the cache.
        """
        del self._by_use[session.session_id]
        self._by_use[session.session_id] = session
        session.last_used_ms = now_ms
        session.is_evictable = now_ms - session.created_ms > EVICTION_MS
        self._count(session, len(session.partitions))
        return self.partition_count <= self.partitions_max

    def close(self, session: FetchSession) -> None:
        """Close a session. The caller removes its links (`FetchSession.unlink`)."""
        if not session.is_closed:
            session.is_closed = True
            del self._by_use[session.session_id]
            self.partition_count -= session.size

    def _count(self, session: FetchSession, size: int) -> None:
        self.partition_count += size - session.size
        session.size = size

    def _has_room(self, size: int) -> bool:
        return len(self) < self._slots and self.partition_count + size <= self.partitions_max

    def _victims(self, size: int, now_ms: int) -> Iterator[FetchSession]:
        """Yield the sessions that may be evicted for a new session of `size` partitions.

        Sessions unused for EVICTION_MS come first. Sessions smaller than `size` follow, the
        smallest first, if they have been used for longer than EVICTION_MS. The caller must close
        each session before it requests the next, else the same session is yielded for ever.
        """
        while (oldest := next(iter(self._by_use.values()), None)) is not None:
            if now_ms - oldest.last_used_ms <= EVICTION_MS:
                break
            yield oldest
        smaller = (each for each in self._by_use.values() if each.is_evictable and each.size < size)
        yield from sorted(smaller, key=lambda each: (each.size, each.session_id))
