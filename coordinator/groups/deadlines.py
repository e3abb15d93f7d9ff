"""A heap of many deadlines, most of which are postponed before they expire.

Heartbeats postpone a member's deadline a hundred times before it is reached. Therefore a
postponement only records the new time, and the heap is updated when the old time is reached. Times
are monotonic milliseconds.
"""

import heapq
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

_REBUILD_BEYOND = 64
Key = TypeVar("Key", bound=Hashable)


class Deadlines(Generic[Key]):
    """Deadlines by key, each of which expires once."""

    __slots__ = ("_at_ms", "_heap", "_pushed", "_queued_ms")

    def __init__(self) -> None:
        self._at_ms: dict[Key, int] = {}
        self._queued_ms: dict[Key, int] = {}  # the time of the valid heap entry of each key
        self._heap: list[tuple[int, int, Key]] = []
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._at_ms)

    def __contains__(self, key: Key) -> bool:
        return key in self._at_ms

    def set(self, key: Key, at_ms: int) -> None:
        """Set or change the deadline of a key."""
        self._at_ms[key] = at_ms
        queued_ms = self._queued_ms.get(key)
        if queued_ms is None or at_ms < queued_ms:
            self._push(key, at_ms)

    def cancel(self, key: Key) -> None:
        """Remove the deadline of a key."""
        self._at_ms.pop(key, None)

    def pop_due(self, now_ms: int) -> Iterator[Key]:
        """Yield and remove the expired keys, the earliest first.

        The caller may set and cancel deadlines between two keys.
        """
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, key = heapq.heappop(self._heap)
            if self._queued_ms.get(key) != queued_ms:
                continue  # replaced by an entry with an earlier time
            del self._queued_ms[key]
            at_ms = self._at_ms.get(key)
            if at_ms is None:
                continue
            if at_ms > queued_ms:  # push it back, even if expired, since others may be earlier
                self._push(key, at_ms)
                continue
            del self._at_ms[key]
            yield key

    @property
    def next_ms(self) -> int | None:
        """Return a time before which no key expires, or None without deadlines."""
        return self._heap[0][0] if self._heap else None

    def _push(self, key: Key, at_ms: int) -> None:
        self._queued_ms[key] = at_ms
        self._pushed += 1
        heapq.heappush(self._heap, (at_ms, self._pushed, key))
        if len(self._heap) > _REBUILD_BEYOND + 2 * len(self._at_ms):
            self._queued_ms = dict(self._at_ms)
            self._heap = [(at, i, key) for i, (key, at) in enumerate(self._at_ms.items())]
            self._pushed = len(self._heap)
            heapq.heapify(self._heap)
