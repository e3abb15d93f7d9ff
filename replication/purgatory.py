"""The purgatory of waiting requests, which are produces and fetches that wait for bytes.

A produce waits for the high watermark (acks=all), or for a sync that its topic requires (acks=1).
An operation waits on several partitions at the same time. An event names a partition (any hashable
key) and returns the operations that the event completed. The cost of an event is proportional to
these operations. An event for fetches also costs a step for each watcher of the partition, even if
the watcher needs more bytes. A completed fetch stays among the watchers of its partitions, maybe
thousands, until `unlink`. A fetch of a fetch session is not among the watchers, since `standing`
records the events of its partitions. All deadlines are in one heap. An operation that completes
early stays in the heaps as a dead entry. If more than half of a heap is dead it is rebuilt, so
memory is bounded by the number of waiting operations (Kafka purges in the same way). A dead
operation must release its context, which may be a large request.

Times are monotonic milliseconds.
"""

import heapq
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from ..wire.errors import ErrorCode
from .delayed_operations import DelayedFetch, DelayedProduce
from .standing_fetches import StandingFetches

_REBUILD_BEYOND = 64


Operation = TypeVar("Operation", DelayedProduce, DelayedFetch, DelayedProduce | DelayedFetch)


class Purgatory:
    """All waiting operations of one broker."""

    __slots__ = ("_deadlines", "_fetches", "_produces", "standing", "waiting_count")

    def __init__(self) -> None:
        self._deadlines: _LazyHeap[DelayedProduce | DelayedFetch] = _LazyHeap()
        self._produces: dict[Hashable, _LazyHeap[DelayedProduce]] = {}
        self._fetches: dict[Hashable, dict[DelayedFetch, int]] = {}
        self.standing = StandingFetches()
        self.waiting_count = 0

    @property
    def next_deadline_ms(self) -> int | None:
        """Return the time of the next `expire`, or None if nothing waits."""
        return self._deadlines.first_priority()

    # -- produce

    def watch_produce(self, operation: DelayedProduce) -> None:
        """Add a produce with at least one offset that is not committed, or not synced, yet.

        `outcomes` already has the results of the other partitions.
        """
        for key, offset in operation.required.items():
            if key not in operation.outcomes:
                queue = self._produces.get(key)
                if queue is None:
                    queue = self._produces[key] = _LazyHeap()
                queue.push(offset, operation)
        self._deadlines.push(operation.deadline_ms, operation)
        self.waiting_count += 1

    def advance(self, key: Hashable, high_watermark: int) -> list[DelayedProduce]:
        """Return the produces that this high watermark completes.

        These produces never fail with NOT_ENOUGH_REPLICAS_AFTER_APPEND, because the high watermark
        does not rise while the ISR is below its minimum (KIP-966).
        """
        return self._settle(key, high_watermark, ErrorCode.NONE)

    def fail_produces(self, key: Hashable, error: int) -> list[DelayedProduce]:
        """Set an error for a partition in its waiting produces, because the leadership was lost.

        Returns the produces that this completes. The others still wait on other partitions.
        """
        return self._settle(key, 1 << 63, error)

    def _settle(self, key: Hashable, high_watermark: int, error: int) -> list[DelayedProduce]:
        queue = self._produces.get(key)
        if queue is None:
            return []
        freed: list[DelayedProduce] = []
        while (operation := queue.pop_up_to(high_watermark)) is not None:
            operation.outcomes[key] = error
            if len(operation.outcomes) == len(operation.required):
                self._finish(operation, freed)
        if not queue:
            del self._produces[key]
        return freed

    # -- fetch

    def watch_fetch(self, operation: DelayedFetch) -> None:
        """Add a fetch that waits for missing_bytes (at least 1) after its offsets."""
        for key, offset in operation.offsets.items():
            self._fetches.setdefault(key, {})[operation] = offset
        self._deadlines.push(operation.deadline_ms, operation)
        self.waiting_count += 1

    def made_visible(
        self,
        key: Hashable,
        upper_offset: int,
        added_bytes: int,
        stable_offset: Callable[[], int] | None = None,
    ) -> list[DelayedFetch]:
        """Return the fetches that have enough bytes after the limit of reads has risen.

        upper_offset: the new limit. stable_offset(): the limit of read_committed consumers, by
        default the same. added_bytes: an estimate of the bytes that became readable, since a
        completed fetch reads again.
        """
        enough: list[DelayedFetch] = []
        if key in self.standing.places:
            enough = self.standing.made_visible(key, upper_offset, added_bytes, stable_offset)
        watchers = self._fetches.get(key)
        if not watchers:
            return self._finish_fetches(enough) if enough else enough
        stable = -1
        for operation, offset in watchers.items():
            if operation.is_done:
                continue
            readable = added_bytes
            hidden = operation.hidden_bytes
            if hidden is not None and stable_offset is not None:
                if stable < 0:
                    stable = stable_offset()
                if offset >= stable:
                    hidden[key] = hidden.get(key, 0) + added_bytes
                    continue
                readable += hidden.pop(key, 0)
            if offset < upper_offset:
                operation.missing_bytes -= readable
                if operation.missing_bytes <= 0:
                    enough.append(operation)
        return self._finish_fetches(enough)

    def wake_fetches(self, key: Hashable) -> list[DelayedFetch]:
        """Complete all fetches of a partition, after a change of leader, epoch or log start."""
        freed = self.wake_standing(key)
        waiting = (each for each in self._fetches.get(key, ()) if not each.is_done)
        return freed + self._finish_fetches(waiting)

    def wake_standing(self, key: Hashable) -> list[DelayedFetch]:
        """Complete the fetches of all fetch sessions on a partition with a new leader or epoch.

        If the sessions were not told, they would not read the partition again.
        """
        return self._finish_fetches(self.standing.look_at(key))

    def free_fetch(self, operation: DelayedFetch) -> list[DelayedFetch]:
        """Complete a fetch early, with the bytes that are available now, and return it in a list.

        The list is empty if the fetch was already complete. A fetch session of the fetch stays
        open.
        """
        return [] if operation.is_done else self._finish_fetches([operation])

    # -- both

    def cancel(self, operation: DelayedProduce | DelayedFetch) -> None:
        """Drop an operation, because its connection is closed."""
        if not operation.is_done:
            self.unlink(operation)
            self._finish(operation, [])
            operation.context = None

    def expire(self, now_ms: int) -> list[DelayedProduce | DelayedFetch]:
        """Return the expired operations.

        Partitions of an expired produce that are not acknowledged get REQUEST_TIMED_OUT.
        """
        expired: list[DelayedProduce | DelayedFetch] = []
        while (operation := self._deadlines.pop_up_to(now_ms)) is not None:
            if isinstance(operation, DelayedProduce):
                self.unlink(operation)
                for key in operation.required:
                    operation.outcomes.setdefault(key, ErrorCode.REQUEST_TIMED_OUT)
            operation.is_done = True
            self.waiting_count -= 1
            expired.append(operation)
        return expired

    def _finish(self, operation: Operation, freed: list[Operation]) -> None:
        operation.is_done = True
        self.waiting_count -= 1
        self._deadlines.note_dead()
        freed.append(operation)

    def _finish_fetches(self, operations: Iterable[DelayedFetch]) -> list[DelayedFetch]:
        freed: list[DelayedFetch] = []
        for operation in operations:
            self._finish(operation, freed)
        return freed

    def unlink(self, operation: DelayedProduce | DelayedFetch) -> None:
        """Remove an operation from the lists of its partitions.

        The caller calls this for each completed fetch, when the fetch is answered.
        """
        if isinstance(operation, DelayedFetch):
            for key in operation.offsets:
                watchers = self._fetches[key]
                del watchers[operation]
                if not watchers:
                    del self._fetches[key]
            return
        operation.is_done = True  # set before the count, since a rebuild must see it
        for key in operation.required:
            if key not in operation.outcomes:
                queue = self._produces[key]
                queue.note_dead()
                if not queue:
                    del self._produces[key]


Entry = TypeVar("Entry", bound=DelayedProduce | DelayedFetch)


class _LazyHeap(Generic[Entry]):
    """A priority queue of operations.

    An operation that is done stays in the queue until it is popped, or until the heap is rebuilt.
    """

    __slots__ = ("_dead", "_heap", "_pushed")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Entry]] = []
        self._pushed = 0  # the order of insertion breaks ties
        self._dead = 0

    def __bool__(self) -> bool:
        """Return whether the heap has any operation that is not done."""
        return len(self._heap) > self._dead

    def push(self, priority: int, operation: Entry) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (priority, self._pushed, operation))

    def pop_up_to(self, priority: int) -> Entry | None:
        """Remove and return the waiting operation with the lowest priority.

        Returns None if no operation waits with a priority of at most `priority`.
        """
        heap = self._heap
        while heap and heap[0][0] <= priority:
            operation = heapq.heappop(heap)[2]
            if not operation.is_done:
                return operation
            self._dead -= 1
        return None

    def first_priority(self) -> int | None:
        heap = self._heap
        while heap and heap[0][2].is_done:
            heapq.heappop(heap)
            self._dead -= 1
        return heap[0][0] if heap else None

    def note_dead(self) -> None:
        """Record that an operation in the heap has ended without being popped."""
        self._dead += 1
        if self._dead > _REBUILD_BEYOND and self._dead * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].is_done]
            heapq.heapify(self._heap)
            self._dead = 0
