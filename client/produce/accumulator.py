"""The unfinished records of a producer, with batches by partition, linger and retries.

The file does no I/O. `now_ms` is monotonic. A partition has a queue of batches and a few batches in
flight. To keep the order, a batch that must be sent again returns to its place. While that batch
waits or is in flight again, no other batch of its partition is sent. Places are counted apart from
sequence numbers, which restart at 0.

A broker that does not know a producer id accepts any first sequence number (Kafka's broker, too).
Therefore a partition has only one batch in flight until its leader has acknowledged a batch of the
id. Otherwise the second batch could be accepted before the first.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from ...wire.batch_builder import BatchBuilder, Headers
from ...wire.errors import KafkaError, RequestTimedOut
from ...wire.identifiers import TopicPartition
from ...wire.record_rows import SizedRows
from .delivery import Delivery, Outcome

IN_FLIGHT_MAX = 5  # brokers remember five batches (KAFKA-5494)


@dataclass(slots=True, eq=False)
class ProducerBatch:
    """A batch of records of one partition."""

    topic: str
    partition: int
    created_ms: int
    deadline_ms: int
    place: tuple[int, ...] = ()  # among all batches; the parts of a split batch have longer places
    builder: BatchBuilder = field(default_factory=BatchBuilder)
    outcome: Outcome = field(default_factory=Outcome)
    producer_id: int = -1
    base_sequence: int = -1
    attempts: int = 0
    not_before_ms: int = 0
    encoded: bytearray | None = None
    is_given_up: bool = False  # expired or abandoned: its answer is ignored
    is_doubtful: bool = False  # an answer was lost: the log may have it
    problem: KafkaError | None = None  # the error of the last attempt

    def __repr__(self) -> str:
        return f"a batch of {self.builder.count} records of {self.topic}/{self.partition}"

    @property
    def size_bytes(self) -> int:
        """The memory that the records of the batch take, in bytes."""
        return self.builder.size_bytes


@dataclass(slots=True)
class _PartitionQueue:
    waiting: deque[ProducerBatch] = field(default_factory=deque[ProducerBatch])
    in_flight: list[ProducerBatch] = field(default_factory=list[ProducerBatch])
    known_id: int | None = None  # the producer id that the leader has acknowledged

    @property
    def is_retrying(self) -> bool:
        return any(b.attempts > 1 for b in self.in_flight) or any(b.attempts for b in self.waiting)


class Accumulator:
    def __init__(
        self,
        *,
        batch_bytes: int,
        linger_ms: int,
        delivery_timeout_ms: int,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        assert in_flight_max >= 1
        self._batch_bytes, self._linger_ms = batch_bytes, linger_ms
        self._delivery_timeout_ms, self._in_flight_max = delivery_timeout_ms, in_flight_max
        self._queues: dict[TopicPartition, _PartitionQueue] = {}
        self._open: dict[TopicPartition, ProducerBatch] = {}
        self._begun = 0
        # leaders must have acknowledged it; None: not required
        self.producer_id: int | None = None
        self.unfinished_bytes = 0  # the memory of undecided records

    def __bool__(self) -> bool:
        return any(
            q.waiting or any(not b.is_given_up for b in q.in_flight) for q in self._queues.values()
        )

    @property
    def obstacle(self) -> KafkaError | None:
        """Return the last error of a batch that is being retried, or None without one."""
        tried = (b for q in self._queues.values() for b in (*q.in_flight, *q.waiting))
        return next((b.problem for b in tried if b.problem is not None), None)

    @property
    def has_in_flight(self) -> bool:
        """Whether any batch awaits its answer."""
        return any(q.in_flight for q in self._queues.values())

    def add(
        self,
        where: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp: int,
        size_bytes: int,
    ) -> Delivery | None:
        """Add a record to the open batch of the partition `where`, and return its delivery.

        Return None if a new batch is needed. size_bytes: the most that the record can take.
        """
        batch = self._open.get(where)
        if batch is None:
            return None
        builder = batch.builder
        before, index = builder.size_bytes, builder.count
        if index and before + size_bytes > self._batch_bytes:
            return None
        builder.append(timestamp, key, value, headers)
        self.unfinished_bytes += builder.size_bytes - before
        return Delivery(batch.outcome, index)

    def append_rows(
        self, topic: str, partition: int, rows: SizedRows, at: int, now_ms: int
    ) -> tuple[Outcome, int, int]:
        """Add rows from index `at` on to the open batch of a partition, at least one, as many as
        fit.

        Returns the outcome of the batch, the index of the first row in that outcome, and the number
        of rows.
        """
        where = (topic, partition)
        batch = self._open.get(where) or self.begin(where, now_ms)
        before = batch.builder.size_bytes
        taken = batch.builder.extend(rows, at, self._batch_bytes)
        if not taken:  # the batch was full
            self.begin(where, now_ms)
            return self.append_rows(topic, partition, rows, at, now_ms)
        self.unfinished_bytes += batch.builder.size_bytes - before
        return batch.outcome, batch.builder.count - taken, taken

    def begin(self, where: TopicPartition, now_ms: int) -> ProducerBatch:
        """Open and return a new batch of the partition `where`, after its last batch is full."""
        self._begun += 1
        batch = ProducerBatch(*where, now_ms, now_ms + self._delivery_timeout_ms, (self._begun,))
        self._queues.setdefault(where, _PartitionQueue()).waiting.append(batch)
        self._open[where] = batch
        self.unfinished_bytes += batch.size_bytes
        return batch

    def next_ready_ms(
        self,
        now_ms: int,
        *,
        is_flushing: bool = False,
        may_leave: Callable[[TopicPartition], bool] | None = None,
    ) -> int | None:
        """Return the ms until a batch may be sent (0 for now).

        Return None if no partition with a waiting batch may send before an answer. is_flushing:
        send without linger. may_leave: returns whether batches of a partition may be sent.
        """
        times = [
            max(0, self._ready_at(where, queue, is_flushing) - now_ms)
            for where, queue in self._candidates(may_leave)
        ]
        return min(times, default=None)

    def take(
        self,
        now_ms: int,
        *,
        is_flushing: bool = False,
        may_leave: Callable[[TopicPartition], bool] | None = None,
    ) -> list[ProducerBatch]:
        """Return the batches to send now, at most one per partition, and mark them as in flight.

        The arguments are those of `next_ready_ms`.
        """
        taken: list[ProducerBatch] = []
        for where, queue in self._candidates(may_leave):
            if self._ready_at(where, queue, is_flushing) > now_ms:
                continue
            batch = queue.waiting.popleft()
            if self._open.get(where) is batch:
                del self._open[where]
            batch.attempts += 1
            queue.in_flight.append(batch)
            taken.append(batch)
        return taken

    def _candidates(
        self, may_leave: Callable[[TopicPartition], bool] | None
    ) -> Iterator[tuple[TopicPartition, _PartitionQueue]]:
        for where, queue in self._queues.items():
            if queue.waiting and self._has_room(queue) and (may_leave is None or may_leave(where)):
                yield where, queue

    def is_oldest_in_flight(self, batch: ProducerBatch) -> bool:
        """Return whether no earlier batch of the same partition is undecided."""
        queue = self._queues[(batch.topic, batch.partition)]
        undecided = [*queue.in_flight, *(b for b in queue.waiting if b.attempts)]
        return all(b is batch or b.place > batch.place for b in undecided)

    def is_known(self, batch: ProducerBatch) -> bool:
        """Return whether the leader has acknowledged a batch of this producer id before."""
        queue = self._queues.get((batch.topic, batch.partition))
        return queue is not None and queue.known_id == batch.producer_id

    def finish(self, batch: ProducerBatch, *, is_written: bool = False) -> None:
        """Remove a batch that was written or has failed, or an abandoned batch after its answer.

        is_written: the leader has acknowledged the batch, so it knows the producer id.
        """
        queue = self._queues.get((batch.topic, batch.partition))
        if queue is not None and batch in queue.in_flight:
            queue.in_flight.remove(batch)
            if is_written:
                queue.known_id = batch.producer_id
        if not batch.is_given_up:
            self.unfinished_bytes -= batch.size_bytes

    def retry(self, batch: ProducerBatch, now_ms: int, backoff_ms: int) -> None:
        """Put a batch back to its place in the queue, to be sent again after the backoff."""
        self._queues[(batch.topic, batch.partition)].in_flight.remove(batch)
        batch.not_before_ms = now_ms + backoff_ms
        self._put_back([batch])

    def replace(self, batch: ProducerBatch, parts: list[ProducerBatch], now_ms: int) -> None:
        """Put the parts of a batch that was too large into the queue, in place of the batch.

        The parts go before records that were never sent. Each part counts as sent once.
        """
        self.finish(batch)
        for number, part in enumerate(parts):
            part.place = (*batch.place, number)
            part.attempts, part.not_before_ms = 1, now_ms
            self.unfinished_bytes += part.size_bytes
        self._put_back(parts)

    def _put_back(self, batches: list[ProducerBatch]) -> None:
        queue = self._queues[(batches[0].topic, batches[0].partition)]
        tried = [b for b in queue.waiting if b.attempts] + batches
        fresh = [b for b in queue.waiting if not b.attempts]
        tried.sort(key=lambda b: b.place)
        queue.waiting = deque([*tried, *fresh])

    def too_late(self, batches: Iterable[ProducerBatch]) -> KafkaError:
        """Return the error of expired batches, which names the error of their last attempt."""
        known = next((batch.problem for batch in batches if batch.problem is not None), None)
        words = f"not acknowledged within {self._delivery_timeout_ms} ms"
        return RequestTimedOut(words if known is None else f"{words}; the last answer: {known}")

    def expire(self, now_ms: int) -> list[ProducerBatch]:
        """Remove and return expired batches.

        An expired batch in flight keeps its place until its answer, so that no other batch
        overtakes it.
        """
        gone: list[ProducerBatch] = []
        for where, queue in self._queues.items():
            late = [b for b in queue.waiting if b.deadline_ms <= now_ms]
            self.discard(where, late)
            flying = [b for b in queue.in_flight if b.deadline_ms <= now_ms and not b.is_given_up]
            for batch in flying:
                batch.is_given_up = True
                self.unfinished_bytes -= batch.size_bytes
            gone += flying + late
        return gone

    def renumber(self, where: TopicPartition, first: ProducerBatch) -> None:
        """Remove the sequence numbers of a refused batch and of the waiting batches after it.

        The batches get new numbers when they are sent.
        """
        for batch in self._queues[where].waiting:
            if batch.place >= first.place:
                batch.base_sequence, batch.is_doubtful = -1, False

    def give_up_waiting(self) -> list[ProducerBatch]:
        """Remove and return all waiting batches."""
        gone: list[ProducerBatch] = []
        for where, queue in self._queues.items():
            leaving = list(queue.waiting)
            self.discard(where, leaving)
            gone += leaving
        return gone

    def take_all(self) -> list[ProducerBatch]:
        """Remove and return all batches, also batches in flight, and ignore their answers."""
        gone = [b for q in self._queues.values() for b in (*q.in_flight, *q.waiting)]
        gone = [b for b in gone if not b.is_given_up]
        for batch in gone:
            batch.is_given_up = True
        self._queues.clear()
        self._open.clear()
        self.unfinished_bytes = 0
        return gone

    def discard(self, where: TopicPartition, batches: list[ProducerBatch]) -> None:
        """Remove waiting batches of the partition `where`."""
        for batch in batches:
            self._queues[where].waiting.remove(batch)
            if self._open.get(where) is batch:
                del self._open[where]
            self.unfinished_bytes -= batch.size_bytes

    def _has_room(self, queue: _PartitionQueue) -> bool:
        if queue.is_retrying or self.producer_id not in (None, queue.known_id):
            return not queue.in_flight
        return len(queue.in_flight) < self._in_flight_max

    def _ready_at(self, where: TopicPartition, queue: _PartitionQueue, is_flushing: bool) -> int:
        first = queue.waiting[0]
        if first.attempts:
            return first.not_before_ms
        is_full = self._open.get(where) is not first
        return first.created_ms + (0 if is_full or is_flushing else self._linger_ms)
