"""The append workload with confluent-kafka, an independent client library.

The process uses one client after another, with blocking calls. Transactional clients use
librdkafka's older protocol (V1). The library does not report how often it repeats an EndTxn, so a
failed commit always has an unknown outcome. Calls of librdkafka may never return (its issues 5456,
5511). In that case the process ends itself with exit code STUCK, and its parent restarts it.
"""

import contextlib
import os
import random
import signal
import threading
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ....deploy.cluster.ends.flag import Flag
from ....deploy.cluster.secured.connection import client_config
from ...judge.history.outcomes import outcome_of_send
from ...judge.history.recorder import Begun, Recorder
from ...judge.history.rows import Handle
from ...judge.history.schema import OpOutcome
from .append import PARTITIONS_READ_MAX
from .incarnations import Tally
from .order import STUCK, WorkerOrder
from .payloads import plain, value_of
from .settings import APPEND

STUCK_S = 30
TRANSACTIONAL_SHARE = 0.75
BOTH: dict[str, Any] = {
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 300,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "metadata.recovery.strategy": "none",  # brokers that are all dead for a moment come back
    "log_level": 0,
}


def work(order: WorkerOrder, recorder: Recorder) -> Tally:
    """Run the load until SIGTERM, or until the parent process is gone. Return the counts."""
    load = _Load(order, recorder)
    threading.Thread(target=load.watch, daemon=True).start()
    while not load.is_over:
        load.one_life()
    return load.tally


class _Load:
    """The load of this process, which runs one client after another."""

    def __init__(self, order: WorkerOrder, recorder: Recorder) -> None:
        self.order, self.recorder = order, recorder
        self.settings = order.settings
        self.rng = random.Random(order.seed)
        self.tally = Tally()
        self.idle_s = 0
        self._end = Flag()
        signal.signal(signal.SIGTERM, lambda *_: self._end.set())

    @property
    def is_over(self) -> bool:
        return self._end.is_set() or os.getppid() != self.order.parent

    def watch(self) -> None:
        """End the process when a call of librdkafka has not returned for STUCK_S."""
        while self.idle_s < STUCK_S:
            time.sleep(1)
            self.idle_s += 1
        os._exit(STUCK)

    def one_life(self) -> None:
        """Create one client, let it work, and close it."""
        self.tally.clients += 1
        end = time.monotonic() + self.rng.uniform(0.2, 1.0) * self.settings.life_ms_max / 1000
        client = _Client(self)
        try:
            client.open()
            while not (self.is_over or client.is_over or time.monotonic() > end):
                self.idle_s = 0
                client.work()
                mean_s = max(self.settings.pause_ms, 1) / 1000
                time.sleep(min(self.rng.expovariate(1 / mean_s), 5 * mean_s))
        except KafkaException as problem:
            self.tally.errors[_name(problem.args[0])] += 1
            time.sleep(0.1)
        except SystemError:
            # a fatal error that the library raises within a callback: the outcome stays unknown
            self.tally.errors["SystemError"] += 1
        finally:
            client.close()


class _Client:
    """A client, with a producer and a consumer of assigned partitions."""

    def __init__(self, load: _Load) -> None:
        self._load, self._recorder, self._rng = load, load.recorder, load.rng
        self._settings = settings = load.settings
        self._process = load.recorder.new_process()
        self.is_over = False
        self._id: str | None = None
        options: dict[str, Any] = {"enable.idempotence": True}
        if load.rng.random() < TRANSACTIONAL_SHARE:
            self._id = f"append-{load.order.number}-0"
            options |= {
                "transactional.id": self._id,
                "transaction.timeout.ms": settings.transaction_timeout_ms,
            }
        common = {
            **client_config(load.order.connection),
            "error_cb": self._met,  # without it the next call of any kind would raise the error
            "socket.timeout.ms": settings.request_timeout_ms,
            **BOTH,
        }
        self._timeout_s = settings.patience_ms / 1000
        self._producer = Producer(
            {
                **common,
                **options,
                "linger.ms": 2,
                "message.timeout.ms": min(settings.patience_ms, settings.transaction_timeout_ms),
            }
        )
        self._consumer = Consumer(
            {
                **common,
                "group.id": f"unused-{self._process}",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "fetch.min.bytes": settings.fetch_min_bytes,
                "fetch.wait.max.ms": settings.fetch_wait_ms,
            }
        )
        self._session = 0  # of the consumer
        self._sending_session = 0
        self._begun_at: dict[int, int] = {}
        self._unsettled = 0
        self._failed: KafkaError | None = None

    def _met(self, error: KafkaError) -> None:
        self._load.tally.errors[_name(error)] += 1
        self.is_over |= error.fatal()

    def open(self) -> None:
        if self._id is not None:
            row = self._recorder.initialize_invoked(self._process, self._id)
            try:
                self._producer.init_transactions(self._timeout_s)
            except KafkaException as problem:
                error = _name(problem.args[0])
                self._recorder.initialize_ended(row, OpOutcome.INFO, error=error)
                raise
            self._recorder.initialize_ended(row, OpOutcome.OK)
        self._assign()

    def work(self) -> None:
        if self._rng.random() < self._settings.reassign_share:
            self._assign()
        self._begun_at.clear()
        if self._id is not None:
            self._transact(self._id)
        elif self._rng.random() < 1 / 2:
            self._poll(None)
        else:
            self._send(None)
            self._flush()

    def close(self) -> None:
        self._load.idle_s = 0
        self._consumer.close()
        self._producer.purge()
        with contextlib.suppress(KafkaException, SystemError):  # any call raises a fatal error
            self._producer.flush(1)

    def _transact(self, name: str) -> None:
        settings, rng = self._settings, self._rng
        self._producer.begin_transaction()
        transaction = self._recorder.begin(self._process, name)
        steps = rng.randint(1, settings.steps_max)
        abort_before = rng.randint(1, steps) if rng.random() < settings.abort_share else steps + 1
        self._failed, error = None, None
        try:
            for step in range(1, min(steps, abort_before - 1) + 1):
                if step == 1 or rng.random() < 1 / 2:
                    self._send(transaction)
                else:
                    self._poll(transaction)
            self._flush()
            if abort_before > steps and self._failed is None and not self._unsettled:
                self._commit(transaction)
                return
        except KafkaException as problem:
            error = _name(problem.args[0])
        try:
            self._producer.abort_transaction(self._timeout_s)
        except KafkaException as problem:
            error = error or _name(problem.args[0])
            self.is_over = True
        self._recorder.transaction_ended(transaction, OpOutcome.FAIL, error)
        self._rewind()

    def _commit(self, transaction: Begun) -> None:
        self._recorder.commit_invoked(transaction)
        try:
            self._producer.commit_transaction(self._timeout_s)
        except KafkaException as problem:
            error = _name(problem.args[0])
            self._load.tally.errors[error] += 1
            self._recorder.transaction_ended(transaction, OpOutcome.INFO, error)
            self.is_over = True
        else:
            self._recorder.transaction_ended(transaction, OpOutcome.OK)

    def _send(self, transaction: Begun | None) -> None:
        partition = self._rng.randrange(self._settings.append_partitions)
        name = f"{APPEND}/{partition}"
        for _ in range(self._rng.randint(1, self._settings.records_per_send_max)):
            value = self._recorder.new_value()
            content = plain(value, self._rng.randint(0, self._settings.filler_bytes_max))
            row = self._recorder.send_invoked(
                self._process, name, value, transaction, session=self._sending_session
            )

            def told(error: KafkaError | None, message: Any, row: Handle = row) -> None:
                self._delivered(row, error, message)

            try:
                self._producer.produce(APPEND, content, partition=partition, on_delivery=told)
            except BufferError:
                self._recorder.send_ended(row, OpOutcome.FAIL, error="BufferError")
                continue
            except KafkaException as problem:
                error = _name(problem.args[0])
                self._recorder.send_ended(row, OpOutcome.FAIL, error=error)
                raise
            self._unsettled += 1
        self._producer.poll(0)

    def _delivered(self, row: Handle, error: KafkaError | None, message: Any) -> None:
        self._unsettled -= 1
        if error is None:
            self._recorder.send_ended(row, OpOutcome.OK, offset=message.offset())
            return
        self._failed = error
        self._recorder.send_ended(row, outcome_of_send(error.code(), None), error=_name(error))
        self._sending_session += 1
        self.is_over |= error.fatal()

    def _flush(self) -> None:
        deadline = time.monotonic() + self._timeout_s + 2
        while self._unsettled and time.monotonic() < deadline:
            self._load.idle_s = 0
            self._producer.flush(1)
        # records in flight may be appended after those of the next client's
        self.is_over |= self._unsettled > 0 and self._id is None

    def _assign(self) -> None:
        count = self._settings.append_partitions
        most = min(count, PARTITIONS_READ_MAX)
        chosen = self._rng.sample(range(count), self._rng.randint(1, most))
        wanted = []
        for partition in chosen:
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(APPEND, partition), self._timeout_s
            )
            start = max(low, high - self._rng.randint(0, self._settings.behind_max))
            wanted.append(TopicPartition(APPEND, partition, start))
        self._consumer.assign(wanted)
        self._session += 1
        for each in wanted:
            where = f"{APPEND}/{each.partition}"
            self._recorder.assigned(self._process, self._session, where, each.offset)

    def _poll(self, transaction: Begun | None) -> None:
        call, row = self._recorder.poll_invoked(self._process, transaction)
        messages = self._consumer.consume(500, self._settings.poll_ms / 1000)
        returned_ns = self._recorder.poll_returned(row)
        for message in messages:
            error, partition, offset = message.error(), message.partition(), message.offset()
            if error is not None:
                self._load.tally.errors[_name(error)] += 1
                continue
            assert partition is not None and offset is not None
            self._begun_at.setdefault(partition, offset)
            self._recorder.polled(
                self._process,
                call,
                f"{APPEND}/{partition}",
                offset,
                value_of(message.value()),
                returned_ns=returned_ns,
                transaction=transaction,
                session=self._session,
            )

    def _rewind(self) -> None:
        for partition, offset in self._begun_at.items():
            self._consumer.seek(TopicPartition(APPEND, partition, offset))


def _name(error: KafkaError) -> str:
    return f"{error.name()} ({error.code()})"
