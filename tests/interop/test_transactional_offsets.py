"""Offsets in transactions with client libraries, unchanged: they count from the commit on, an abort
drops them, readers of stable offsets wait, zombies are refused, and none of it depends on who is
the group's coordinator."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from oncelog.client.admin import Admin
from oncelog.deploy.local_cluster import Cluster
from oncelog.wire.errors import ErrorCode, error_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore"),  # the libraries' own
]
IN, OUT = "in", "out"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3) as running:
        for topic in (IN, OUT):
            running.ask(
                lambda admin, topic=topic: admin.create_topic(
                    topic, partitions=2, replication_factor=3
                )
            )
            running.wait_for_isr(topic, 3)
        yield running


def committed(cluster: Cluster, group: str, *, stable: bool = True) -> dict[int, int]:
    """Offsets by partition of the input."""
    found = cluster.ask(lambda admin: admin.groups.committed(group, stable=stable))
    return {partition: value.offset for (_, partition), value in found.items()}


# -- three libraries: each commits offset 5, and aborts offset 9


def with_confluent(bootstrap: str, group: str) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"id {group}"})
    try:
        producer.init_transactions(30)
        for offset, ends in ((5, producer.commit_transaction), (9, producer.abort_transaction)):
            producer.begin_transaction()
            producer.produce(OUT, b"made of it")
            where = [TopicPartition(IN, 0, offset)]
            producer.send_offsets_to_transaction(where, consumer.consumer_group_metadata(), 30)
            ends(30)
    finally:
        consumer.close()


def with_kafka_python(bootstrap: str, group: str) -> None:
    from kafka import KafkaProducer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"id {group}")
    try:
        producer.init_transactions()
        for offset, ends in ((5, producer.commit_transaction), (9, producer.abort_transaction)):
            producer.begin_transaction()
            producer.send(OUT, b"made of it")
            where = {TopicPartition(IN, 0): OffsetAndMetadata(offset, "", -1)}
            producer.send_offsets_to_transaction(where, group)
            ends()
    finally:
        producer.close()


def with_aiokafka(bootstrap: str, group: str) -> None:
    from aiokafka import AIOKafkaProducer, TopicPartition

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"id {group}")
        await producer.start()
        try:
            for offset, ends in ((5, producer.commit_transaction), (9, producer.abort_transaction)):
                await producer.begin_transaction()
                await producer.send(OUT, b"made of it")
                await producer.send_offsets_to_transaction({TopicPartition(IN, 0): offset}, group)
                await ends()
        finally:
            await producer.stop()

    asyncio.run(run())


LIBRARIES: dict[str, Callable[[str, str], None]] = {
    "confluent": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_commit_counts_and_an_abort_does_not(cluster: Cluster, library: str) -> None:
    LIBRARIES[library](cluster.bootstrap, f"of {library}")
    assert committed(cluster, f"of {library}") == {0: 5}


# -- what others see of an open transaction


@contextmanager
def open_transaction(cluster: Cluster, group: str, *, offset: int = 5):
    """A producer that has sent its offsets; it aborts if it has not ended."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": f"id {group}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    where = [TopicPartition(IN, 0, offset)]
    producer.send_offsets_to_transaction(where, consumer.consumer_group_metadata(), 30)
    try:
        yield producer
    finally:
        consumer.close()


def is_unstable(cluster: Cluster, group: str) -> bool:
    """As the coordinator has it, without the patience of `Admin` for such answers."""

    async def ask(admin: Admin) -> bool:
        coordinator = await admin.view.broker(await admin.find_coordinator(group))
        asked = {"group_id": group, "topics": [{"name": IN, "partition_indexes": [0]}]}
        answer = await coordinator.call(9, {"groups": [asked], "require_stable": True})
        if answer.groups[0].error_code:
            raise error_for(answer.groups[0].error_code)
        (partition,) = answer.groups[0].topics[0].partitions
        return partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT

    return cluster.ask(lambda admin: admin.view.retrying(lambda: ask(admin), timeout_ms=20_000))


@pytest.mark.parametrize("commits", [True, False])
def test_stable_readers_wait_for_the_end(cluster: Cluster, commits: bool) -> None:
    group = f"waits {commits}"
    with open_transaction(cluster, group) as producer:
        assert is_unstable(cluster, group)
        assert committed(cluster, group, stable=False) == {}
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
        assert committed(cluster, group) == ({0: 5} if commits else {})
        assert not is_unstable(cluster, group)


@pytest.mark.parametrize("commits", [True, False])
def test_pending_offsets_outlive_the_groups_coordinator(cluster: Cluster, commits: bool) -> None:
    group = f"moves {commits}"
    with open_transaction(cluster, group) as producer:
        killed = cluster.kill(f"group:{group}")
        assert is_unstable(cluster, group), "the new coordinator has read them from its log"
        (producer.commit_transaction if commits else producer.abort_transaction)(60)
        assert committed(cluster, group) == ({0: 5} if commits else {})
    cluster.start(killed)
    for topic in (IN, OUT, "__consumer_offsets"):
        cluster.wait_for_isr(topic, 3)
    assert committed(cluster, group) == ({0: 5} if commits else {})


def test_a_member_that_was_replaced_commits_nothing(cluster: Cluster) -> None:
    """KIP-447: its generation is over, and the transaction fails."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "of generations"}
    first = Consumer(settings | {"client.id": "first"})
    second = Consumer(settings | {"client.id": "second"})
    try:
        first.subscribe([IN])
        until(lambda: first.poll(0.1) or first.assignment())
        old = first.consumer_group_metadata()
        second.subscribe([IN])
        until(lambda: first.poll(0.1) or second.poll(0.1) or second.assignment())
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "transactional.id": "of a zombie"}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        with pytest.raises(KafkaException) as refused:
            producer.send_offsets_to_transaction([TopicPartition(IN, 0, 7)], old, 30)
        assert refused.value.args[0].name() == "ILLEGAL_GENERATION"
        assert refused.value.args[0].txn_requires_abort()
        producer.abort_transaction(30)
        producer.begin_transaction()
        now = first.consumer_group_metadata()
        producer.send_offsets_to_transaction([TopicPartition(IN, 0, 8)], now, 30)
        producer.commit_transaction(30)
    finally:
        second.close()
        first.close()
    assert committed(cluster, "of generations")[0] == 8


def until(holds: Callable[[], object], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline


def test_fenced_offsets_are_refused(cluster: Cluster) -> None:
    """A second producer with the same id ends the first one's transaction, offsets and all."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    with open_transaction(cluster, "fences", offset=3) as old:
        new = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "id fences"})
        new.init_transactions(30)
        assert committed(cluster, "fences") == {}
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "fences"})
        with pytest.raises(KafkaException) as refused:
            old.send_offsets_to_transaction(
                [TopicPartition(IN, 0, 4)], consumer.consumer_group_metadata(), 30
            )
        assert refused.value.args[0].name() in ("_FENCED", "INVALID_PRODUCER_EPOCH")
        assert refused.value.args[0].fatal()
        consumer.close()
    assert committed(cluster, "fences") == {}
