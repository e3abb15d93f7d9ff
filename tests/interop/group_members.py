"""Group members of each client library, each of which polls in a thread of its own."""

import asyncio
import threading
from typing import Any

from ..waiting import until

TOPIC = "shared"
PARTITIONS = 4
HEARTBEAT_MS, SESSION_MS = 100, 6000
NEWER = {  # for brokers: sessions and heartbeats of the newer protocol
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.min.session.timeout.ms": "4000",
    "group.consumer.assignment.interval.ms": "100",
}


class Member:
    """A subscribed consumer that polls in its own thread.

    `history` lists its assignments in order. client: its client.id, with which the member id of a
    classic member begins.
    """

    def __init__(
        self,
        bootstrap: str,
        group: str,
        *,
        instance: str | None = None,
        cooperative: bool = False,
        client: str | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.group = group
        self.client = client
        self.instance = instance
        self.cooperative = cooperative
        self.history: list[frozenset[int]] = []
        self.read: list[tuple[int, int]] = []  # partition, offset
        self.committed = 0  # counts its commits
        self.acknowledged: dict[int, int] = {}  # its last committed offset of each partition
        self.errors: list[Any] = []  # its errors from polls
        self._end = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run_guarded, daemon=True)
        self._thread.start()

    def _settings(self) -> dict[str, Any]:
        """Return the settings of kafka-python and aiokafka consumers."""
        return {
            "bootstrap_servers": self.bootstrap,
            "group_id": self.group,
            "group_instance_id": self.instance,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
        }

    @property
    def assigned(self) -> frozenset[int]:
        """Return the partitions that are assigned now."""
        if self._failure is not None:
            raise AssertionError(f"{type(self).__name__} failed") from self._failure
        return self.history[-1] if self.history else frozenset()

    def stop(self) -> None:
        """Close the consumer. A dynamic member leaves its group then, a static one does not."""
        self._end.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "it does not close"

    def note(self, partitions: frozenset[int]) -> None:
        """Add the assigned partitions to the history if they have changed."""
        if partitions != (self.history[-1] if self.history else frozenset()):
            self.history.append(partitions)

    def _run_guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._failure = error

    def _run(self) -> None:
        raise NotImplementedError


class Confluent(Member):
    def _protocol(self) -> dict[str, Any]:
        return {
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": "cooperative-sticky" if self.cooperative else "range",
        }

    def _subscription(self) -> str:
        return TOPIC

    def _run(self) -> None:
        from confluent_kafka import Consumer

        named = {"group.instance.id": self.instance, "client.id": self.client}
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **self._protocol(),
            }
            | {key: name for key, name in named.items() if name is not None}
        )
        consumer.subscribe([self._subscription()])
        self._use(consumer)
        consumer.close()

    def _use(self, consumer: Any) -> None:
        """Read records and commit their offsets until the member is stopped."""
        from confluent_kafka import KafkaException

        owes_commit = False
        while not self._end.is_set():
            messages = consumer.consume(100, timeout=0.05)
            self.errors += [m.error() for m in messages if m.error()]
            self.read += [  # type: ignore[misc]
                (m.partition(), m.offset()) for m in messages if not m.error()
            ]
            self.note(frozenset(p.partition for p in consumer.assignment()))
            owes_commit |= bool(messages)
            if owes_commit:
                try:
                    places = consumer.commit(asynchronous=False)
                    self.acknowledged |= {p.partition: p.offset for p in places if not p.error}
                    self.committed += 1
                    owes_commit = False
                except KafkaException:
                    pass  # a rebalance; a later commit follows, or the records are read again


class ConsumerProtocol(Confluent):
    """A confluent-kafka member with group.protocol=consumer (KIP-848)."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        *,
        instance: str | None = None,
        assignor: str | None = None,
        subscription: str = TOPIC,
        client: str | None = None,
    ) -> None:
        self.assignor = assignor
        self.subscription = subscription
        super().__init__(bootstrap, group, instance=instance, client=client)

    def _protocol(self) -> dict[str, Any]:
        chosen = {} if self.assignor is None else {"group.remote.assignor": self.assignor}
        return {"group.protocol": "consumer", **chosen}

    def _subscription(self) -> str:
        return self.subscription


class KafkaPython(Member):
    def _run(self) -> None:
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.errors import KafkaError

        consumer = KafkaConsumer(
            TOPIC,
            **self._settings(),
            partition_assignment_strategy=[RangePartitionAssignor],
        )
        consumer.partitions_for_topic(TOPIC)  # needed for an assignment
        while not self._end.is_set():
            batches = consumer.poll(timeout_ms=50)
            self.read += [(r.partition, r.offset) for rows in batches.values() for r in rows]
            self.note(frozenset(p.partition for p in consumer.assignment()))
            if batches:
                try:
                    consumer.commit()
                    self.committed += 1
                except KafkaError:
                    pass
        consumer.close()


class Aiokafka(Member):
    def _run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.errors import KafkaError

        consumer = AIOKafkaConsumer(
            TOPIC,
            **self._settings(),
            partition_assignment_strategy=(RangePartitionAssignor,),
        )
        await consumer.start()
        while not self._end.is_set():
            batches = await consumer.getmany(timeout_ms=50)
            self.read += [(r.partition, r.offset) for rows in batches.values() for r in rows]
            self.note(frozenset(p.partition for p in consumer.assignment()))
            if batches:
                try:
                    await consumer.commit()
                    self.committed += 1
                except KafkaError:
                    pass
        await consumer.stop()


LIBRARIES: dict[str, type[Member]] = {
    "confluent-kafka": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}


def share(*members: Member) -> None:
    """Wait until each member owns at least one partition, and each partition has one owner."""

    def holds() -> bool:
        given = [m.assigned for m in members]
        return all(given) and sorted(p for each in given for p in each) == list(range(PARTITIONS))

    until(holds, lambda: f"they have {[sorted(m.assigned) for m in members]}")
