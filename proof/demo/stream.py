"""The demo's producer, which streams the flights through confluent-kafka and records the answers.

The producer is one thread. It sends at a steady rate that leaves enough rows for the remaining
faults. When only a reserve of rows is left, it sends an eighth of the remaining rows in each
`horizon_s`. It sends at full speed while `bursting`, so that a kill hits batches in flight.
"""

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ...deploy.cluster.ends.flag import Flag
from ...deploy.cluster.failure import Failure
from ..judge.contents import NO_OFFSET, Acknowledgement
from . import flights
from .batch_trace import BatchTrace

STEADY_RECORDS_PER_S = 5_000
TRICKLE_HORIZONS = 8  # the reserve lasts for so many horizons
BURST_CHUNK, STEADY_CHUNK = 400, 50
FLUSH_TIMEOUT_S = 60.0
# A short request timeout, so that a stall of a second makes it send again.
CLIENT_SETTINGS: dict[str, Any] = {
    "linger.ms": 5,
    "batch.size": 65536,
    "queue.buffering.max.messages": 50_000,
    "max.in.flight.requests.per.connection": 5,
    "request.timeout.ms": 700,
    "socket.timeout.ms": 1_000,
    "message.timeout.ms": 60_000,
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "debug": "msg",  # for the batches' log lines: batch_trace.py
}


class _TraceHandler(logging.Handler):
    def __init__(self, trace: BatchTrace) -> None:
        super().__init__(logging.DEBUG)
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        self._trace.feed(record.getMessage())


class Stream(threading.Thread):
    """A thread that sends the flights. Other threads may read its counts at any time."""

    def __init__(
        self,
        lines: Sequence[bytes],
        topic: str,
        settings: dict[str, Any],
        *,
        reserve: int,
        horizon_s: float,
        outlives_fatal_errors: bool,
    ) -> None:
        super().__init__(daemon=True)
        self._horizon_s = horizon_s
        self._topic, self._lines, self._reserve = topic, lines, reserve
        self.trace = BatchTrace()
        self.acknowledged: dict[int, Acknowledgement] = {}
        self.failures: Counter[str] = Counter()
        self.fatal: BaseException | None = None
        self.fatal_errors = 0
        self._outlives_fatal_errors = outlives_fatal_errors
        self.handed_over = 0
        self._burst = Flag()
        self.finish = Flag()  # the faults are over: send the rest at full speed
        self.watched: dict[int, float | None] = {}  # partition -> its first acknowledgement
        self._watched_from_row = 0
        self._settings = settings
        self._credit, self._last = 0.0, time.monotonic()

    def watch(self, partitions: Sequence[int]) -> None:
        """Record when each of these partitions acknowledges a row that is sent after this call."""
        self._watched_from_row = self.handed_over
        self.watched = dict.fromkeys(partitions)

    @contextlib.contextmanager
    def bursting(self) -> Iterator[None]:
        """Send at full speed during the `with` block."""
        self._burst.set()
        try:
            yield
        finally:
            self._burst.clear()

    def run(self) -> None:
        """Send all rows, then wait for the last acknowledgements."""
        try:
            self._stream()
        except BaseException as problem:  # the conductor shows it
            self.fatal = problem

    def _stream(self) -> None:
        from confluent_kafka import KafkaError, KafkaException

        producer, flush_until = self._new_producer(), None
        while flush_until is None or (len(producer) and time.monotonic() < flush_until):
            try:
                if self.handed_over < len(self._lines):
                    self._step(producer)
                else:
                    flush_until = flush_until or time.monotonic() + FLUSH_TIMEOUT_S
                    producer.poll(0.05)
            except BufferError:  # the queue is full: wait until it has room
                time.sleep(0.005)
            except KafkaException as problem:
                error = problem.args[0]
                if not error.fatal() and error.code() != KafkaError._FATAL:
                    raise
                producer = self._replace(producer, problem)

    def _step(self, producer: Any) -> None:
        """Send the rows that are due, and process delivery reports."""
        now, total = time.monotonic(), len(self._lines)
        self._credit = min(self._credit + (now - self._last) * self._pace(), STEADY_CHUNK * 4)
        self._last = now
        is_fast = self.finish.is_set() or (
            self._burst.is_set() and total - self.handed_over > self._reserve // 2
        )
        if not is_fast and self._credit < STEADY_CHUNK:
            producer.poll(0.005)
            return
        chunk = BURST_CHUNK if is_fast else STEADY_CHUNK
        self._credit = max(0.0, self._credit - chunk)
        producer.poll(0)
        for row in range(self.handed_over, min(total, self.handed_over + chunk)):
            key, value = flights.record(row, self._lines[row])
            producer.produce(self._topic, value, key, on_delivery=partial(self._delivered, row))
            self.handed_over = row + 1

    def _new_producer(self) -> Any:
        from confluent_kafka import Producer

        logger = logging.getLogger(f"oncelog.demo.{id(self)}")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.handlers[:] = [_TraceHandler(self.trace)]
        return Producer({**CLIENT_SETTINGS, **self._settings}, logger=logger)

    def _replace(self, producer: Any, problem: Exception) -> Any:
        """Return a new producer after a fatal error, or raise Failure if this run allows none.

        An idempotent producer notices that the log was truncated, and refuses to continue.
        """
        self.fatal_errors += 1
        if not self._outlives_fatal_errors:
            raise Failure(
                f"The producer ended with a fatal error, which must not happen: {problem}"
            )
        from confluent_kafka import KafkaException

        producer.purge()
        # The same error again; within a report confluent-kafka raises a SystemError for it.
        with contextlib.suppress(KafkaException, SystemError):
            producer.flush(5)  # reports the purged records
        return self._new_producer()

    def _pace(self) -> float:
        """Return the rate in records per second, which is always above 0.

        The rate is lower if too few rows would be left for the remaining faults.
        """
        left = len(self._lines) - self.handed_over
        trickle = left / (TRICKLE_HORIZONS * self._horizon_s)
        steady = (left - self._reserve) / self._horizon_s
        return min(STEADY_RECORDS_PER_S, max(trickle, steady))

    def _delivered(self, row: int, error: Any, message: Any) -> None:
        if error is not None:
            self.failures[error.name()] += 1
            return
        partition, offset = message.partition(), message.offset()
        known = offset if offset is not None and offset >= 0 else NO_OFFSET
        self.acknowledged[row] = Acknowledgement(partition, known)
        if row >= self._watched_from_row and self.watched.get(partition, 0.0) is None:
            self.watched[partition] = time.monotonic()
