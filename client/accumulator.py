"""Records on their way: batches by partition, linger, and the order of retries.

Pure; `now_ms` is monotonic. A partition has a queue of batches and a few in flight. Order is kept
in this way: a batch that has to be sent again goes back to its place by sequence number, and while
such a batch waits, or is on its way again, nothing else of its partition leaves.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ..wire.records import Record

RECORD_OVERHEAD_BYTES = 24  # varints, length, header count: an upper guess for the batch's size


@dataclass(slots=True, eq=False)
class Batch:
    """Records of one partition that travel together."""

    topic: str
    partition: int
    created_ms: int
    deadline_ms: int
    records: list[Record] = field(default_factory=list[Record])
    waiters: list[Any] = field(default_factory=list[Any])  # one for each record
    size_bytes: int = 0
    base_sequence: int = -1
    attempts: int = 0
    not_before_ms: int = 0
    encoded: bytes | None = None


@dataclass(slots=True)
class _Queue:
    waiting: deque[Batch] = field(default_factory=deque[Batch])
    in_flight: list[Batch] = field(default_factory=list[Batch])

    @property
    def is_retrying(self) -> bool:
        return any(b.attempts > 1 for b in self.in_flight) or any(b.attempts for b in self.waiting)


class Accumulator:
    """Batches of all partitions."""

    def __init__(
        self, *, batch_bytes: int, linger_ms: int, delivery_timeout_ms: int, in_flight_max: int = 5
    ) -> None:
        assert 1 <= in_flight_max <= 5, "brokers remember five batches (KAFKA-5494)"
        self._batch_bytes, self._linger_ms = batch_bytes, linger_ms
        self._delivery_timeout_ms, self._in_flight_max = delivery_timeout_ms, in_flight_max
        self._queues: dict[tuple[str, int], _Queue] = {}
        self.unfinished_bytes = 0

    def __bool__(self) -> bool:
        return any(q.waiting or q.in_flight for q in self._queues.values())

    @property
    def has_in_flight(self) -> bool:
        """Whether any batch awaits its answer."""
        return any(q.in_flight for q in self._queues.values())

    def append(self, topic: str, partition: int, record: Record, waiter: Any, now_ms: int) -> bool:
        """Add a record; True when a batch became full."""
        queue = self._queues.setdefault((topic, partition), _Queue())
        size = len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES
        last = queue.waiting[-1] if queue.waiting else None
        if last is None or last.attempts or last.size_bytes + size > self._batch_bytes:
            last = Batch(topic, partition, now_ms, now_ms + self._delivery_timeout_ms)
            queue.waiting.append(last)
        offset = len(last.records)  # within the batch; the broker gives the real one
        last.records.append(
            Record(offset, record.timestamp, record.key, record.value, record.headers)
        )
        last.waiters.append(waiter)
        last.size_bytes += size
        self.unfinished_bytes += size
        return last.size_bytes >= self._batch_bytes or len(queue.waiting) > 1

    def next_ready_ms(self, now_ms: int) -> int | None:
        """Milliseconds until some batch may leave (0: now); None when none waits to be sent."""
        times = [
            max(0, self._ready_at(queue) - now_ms)
            for queue in self._queues.values()
            if queue.waiting and self._has_room(queue)
        ]
        return min(times, default=None)

    def take(self, now_ms: int, *, is_flushing: bool = False) -> list[Batch]:
        """The batches that leave now, at most one of a partition; they are in flight from here."""
        taken: list[Batch] = []
        for queue in self._queues.values():
            if not queue.waiting or not self._has_room(queue):
                continue
            if self._ready_at(queue) > now_ms and not (
                is_flushing and queue.waiting[0].not_before_ms <= now_ms
            ):
                continue
            batch = queue.waiting.popleft()
            batch.attempts += 1
            queue.in_flight.append(batch)
            taken.append(batch)
        return taken

    def is_oldest_in_flight(self, batch: Batch) -> bool:
        """Whether no earlier batch of its partition is undecided."""
        queue = self._queues[(batch.topic, batch.partition)]
        undecided = [*queue.in_flight, *(b for b in queue.waiting if b.attempts)]
        return all(b is batch or b.base_sequence >= batch.base_sequence for b in undecided)

    def finish(self, batch: Batch) -> None:
        """The batch is decided, well or badly."""
        self._queues[(batch.topic, batch.partition)].in_flight.remove(batch)
        self.unfinished_bytes -= batch.size_bytes

    def retry(self, batch: Batch, now_ms: int, backoff_ms: int) -> None:
        """Put a batch back to its place."""
        queue = self._queues[(batch.topic, batch.partition)]
        queue.in_flight.remove(batch)
        batch.not_before_ms = now_ms + backoff_ms
        tried = [b for b in queue.waiting if b.attempts] + [batch]
        fresh = [b for b in queue.waiting if not b.attempts]
        tried.sort(key=lambda b: b.base_sequence)
        queue.waiting = deque([*tried, *fresh])

    def expire(self, now_ms: int) -> list[Batch]:
        """Take out batches whose time is over.

        With a batch that was sent before go all of its partition that were sent: their numbers
        follow on a gap, and their fate is as unknown.
        """
        gone: list[Batch] = []
        for queue in self._queues.values():
            late = [b for b in queue.waiting if b.deadline_ms <= now_ms]
            if any(b.attempts for b in late):
                late = [b for b in queue.waiting if b.attempts or b in late]
            for batch in late:
                queue.waiting.remove(batch)
                self.unfinished_bytes -= batch.size_bytes
            gone += late
        return gone

    def give_up_sent(self) -> list[Batch]:
        """Take out all waiting batches that were ever sent: a new producer id is coming."""
        gone: list[Batch] = []
        for queue in self._queues.values():
            gone += [b for b in queue.waiting if b.attempts]
            queue.waiting = deque(b for b in queue.waiting if not b.attempts)
        self.unfinished_bytes -= sum(b.size_bytes for b in gone)
        return gone

    def take_all(self) -> list[Batch]:
        """Take out everything: the producer has come to its end."""
        gone = [b for q in self._queues.values() for b in (*q.in_flight, *q.waiting)]
        self._queues.clear()
        self.unfinished_bytes = 0
        return gone

    def _has_room(self, queue: _Queue) -> bool:
        if queue.is_retrying:
            return not queue.in_flight
        return len(queue.in_flight) < self._in_flight_max

    def _ready_at(self, queue: _Queue) -> int:
        first = queue.waiting[0]
        if first.attempts:
            return first.not_before_ms
        is_full = first.size_bytes >= self._batch_bytes or len(queue.waiting) > 1
        return first.created_ms if is_full else first.created_ms + self._linger_ms
