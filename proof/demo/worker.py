"""One worker of the demo, which consumes, transforms and produces exactly once.

    python -m oncelog.proof.demo.worker '{"connection": ..., "name": ..., ...}'

The worker uses confluent-kafka, and nothing here is special to oncelog. One transaction atomically
writes an enriched flight for each polled flight, the changed sums, and the offsets. The worker's
state (the sums so far) is read with the offsets, so the worker may die at any point.

The worker reports each step on stdout, as a line of JSON. The steps are began, sending (the
offsets), committing, committed or aborted. With the reports faults can be aimed, and the judge
knows the outcomes.

Three mistakes are easy to make. The group metadata with the offsets must be that of the generation
in which the partitions were assigned. librdkafka drops the member id when the session is lost, and
metadata without a member id is not verified. After an abort the consumer has to rewind. A call may
never return, because librdkafka 2.16 waits for ever when the group's coordinator was away for some
seconds (its issue 5511), and ignores the timeout (5456). Therefore a stuck worker ends itself, and
its successor finds a consistent state.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from ...deploy.cluster.secured.connection import client_config
from .enrichment import Flight, RunningSums, added, enrich, sum_record
from .flights import airlines

GROUP = "enrichment"
BATCH_RECORDS_MAX = 600
CONSUME_TIMEOUT_S = 0.1
STUCK_S = 8
FATAL = 3  # exit code that makes the parent restart it
CONSUMER: dict[str, Any] = {
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "auto.offset.reset": "latest",  # only when the log has lost records that we had read
    "heartbeat.interval.ms": 300,
    "fetch.wait.max.ms": 50,
    "fetch.error.backoff.ms": 50,
}
PRODUCER: dict[str, Any] = {
    "linger.ms": 2,
    "message.timeout.ms": 10_000,
    "transaction.timeout.ms": 20_000,
}
BOTH: dict[str, Any] = {
    "socket.timeout.ms": 3_000,
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "metadata.recovery.strategy": "none",  # brokers that are all dead for a moment come back
    "log_level": 2,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    connection: str  # see deploy/cluster/secured/connection.py
    source: str
    enriched: str
    sums: str
    is_fenced: bool  # False: offsets are sent without the group's metadata, as before KIP-447
    name: str = ""  # of the worker: its transactional id
    incarnation: int = 0  # how often it has been started
    parent: int = 0  # pid of the parent, which may be gone before it can ask


@dataclass(slots=True)
class Work:
    """The next offset of one partition after a transaction, and the sums that it changes there."""

    until: int = 0  # the next offset
    changed: dict[tuple[str, int], tuple[int, int, int]] = field(default_factory=dict)


class Worker:
    def __init__(self, settings: WorkerSettings) -> None:
        self.settings = settings
        common = {**client_config(settings.connection), "client.id": settings.name, **BOTH}
        group = {**common, **CONSUMER, "group.id": GROUP}
        self.consumer = Consumer({**group, "session.timeout.ms": 2_500})
        self.producer = Producer({**common, **PRODUCER, "transactional.id": settings.name})
        self.airlines = airlines()
        self.is_over = False
        self._next: dict[int, int] = {}
        self._sums: dict[int, RunningSums] = {}
        self._membership: Any = None
        if not settings.is_fenced:  # a consumer that never joins: it names the group, but no member
            self._membership = Consumer(group).consumer_group_metadata()
        self._count = 0
        self.idle_s = 0  # seconds since the last progress, those in state T left out

    def run(self) -> None:
        """Process flights until `is_over`, then leave the group."""
        self._insist(self.producer.init_transactions)
        self.consumer.subscribe(
            [self.settings.source], on_assign=self._assigned, on_revoke=self._revoked
        )
        while not self.is_over and os.getppid() == self.settings.parent:
            self.idle_s = 0
            messages = self.consumer.consume(BATCH_RECORDS_MAX, CONSUME_TIMEOUT_S)
            if fitting := [message for message in messages if self._is_next(message)]:
                self._transact(fitting)
        self.consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Begin to read newly assigned partitions from their committed offsets."""
        if self.settings.is_fenced:
            self._membership = consumer.consumer_group_metadata()
        consumer.assign(self._load(partitions))

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._next, self._sums = {}, {}

    def _load(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Load the committed offset and the sums of each partition.

        The request is repeated while a transaction is open.
        """
        self._next, self._sums = {}, {}
        if not partitions:
            return []
        for committed in self._insist(self.consumer.committed, partitions, 5.0):
            if committed.error:
                raise KafkaException(committed.error)
            self._next[committed.partition] = max(committed.offset, 0)
            self._sums[committed.partition] = RunningSums.from_text(committed.metadata)
        source = self.settings.source
        return [TopicPartition(source, p, offset) for p, offset in self._next.items()]

    def _is_next(self, message: Any) -> bool:
        """Return whether a polled record is new, in a partition that is still assigned."""
        if message.error() is not None:
            print(message.error(), file=sys.stderr, flush=True)
            return False
        return message.offset() >= self._next.get(message.partition(), sys.maxsize)

    def _transact(self, messages: list[Any]) -> None:
        self._count += 1
        name = f"{self.settings.name}.{self.settings.incarnation}.{self._count}"
        try:
            self.producer.begin_transaction()
            work = self._produce(name, messages)
            tell("began", name, len(messages), {p: done.until for p, done in work.items()})
            self.producer.flush()
            offsets = [
                TopicPartition(
                    self.settings.source, p, done.until, metadata=self._sums[p].to_text()
                )
                for p, done in work.items()
            ]
            tell("sending", name)
            self._insist(self.producer.send_offsets_to_transaction, offsets, self._membership)
            tell("committing", name)
            self._insist(self.producer.commit_transaction)
        except KafkaException as problem:
            if not problem.args[0].txn_requires_abort():
                raise
            self._insist(self.producer.abort_transaction)
            tell("aborted", name, problem.args[0].name())
            for partition in self._load(self.consumer.assignment()):
                self.consumer.seek(partition)
        else:
            tell("committed", name)

    def _produce(self, name: str, messages: list[Any]) -> dict[int, Work]:
        work: dict[int, Work] = {}
        for message in messages:
            partition, offset, value = message.partition(), message.offset(), message.value()
            flight = Flight.of(value)
            made = enrich(partition, offset, name, value, added(flight, self.airlines))
            self.producer.produce(self.settings.enriched, made, message.key(), partition)
            group, sums = self._sums[partition].add(flight)
            done = work.setdefault(partition, Work())
            done.changed[group] = sums
            done.until = self._next[partition] = offset + 1
        for partition, done in work.items():
            for group, sums in done.changed.items():
                key, value = sum_record(group, done.until, sums)
                self.producer.produce(self.settings.sums, value, key, partition)
        return work

    def _insist(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Make a call, repeat it after each retriable error, and return its result."""
        while True:
            self.idle_s = 0
            try:
                return call(*arguments)
            except KafkaException as problem:
                if not problem.args[0].retriable():
                    raise


def watch(worker: Worker) -> None:
    """End the process if the worker makes no progress."""
    while worker.idle_s < STUCK_S:
        time.sleep(1)
        worker.idle_s += 1
    tell("ended", "stuck")
    os._exit(FATAL)


def tell(*event: Any) -> None:
    """Print one report as a line of JSON, for the parent process."""
    # immediately, since the process may be killed next
    os.write(1, json.dumps(event).encode() + b"\n")


def main() -> int:
    """Run the worker until SIGTERM. Return FATAL if producer or consumer cannot continue."""
    worker = Worker(WorkerSettings(**json.loads(sys.argv[1])))

    def end(*_: Any) -> None:
        worker.is_over = True

    signal.signal(signal.SIGTERM, end)
    threading.Thread(target=watch, args=(worker,), daemon=True).start()
    try:
        worker.run()
    except KafkaException as problem:
        tell("ended", problem.args[0].name())
        print(problem, file=sys.stderr, flush=True)
        return FATAL
    return 0


if __name__ == "__main__":
    sys.exit(main())
