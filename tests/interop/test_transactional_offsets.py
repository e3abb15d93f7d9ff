"""Offsets in transactions with client libraries, unchanged: they count from the commit on, an abort
drops them, readers of stable offsets wait, zombies are refused, and none of it depends on who is
the group's coordinator."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from oncelog.client.admin import Admin
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.wire.errors import ErrorCode, error_for
from oncelog.wire.messages import control

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
    named = [(IN, 0), (IN, 1)]  # else what is only pending yet is no reason to wait
    found = cluster.ask(lambda admin: admin.groups.committed(group, named, stable=stable))
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
        try:
            assert is_unstable(cluster, group), "the new coordinator has read them from its log"
            (producer.commit_transaction if commits else producer.abort_transaction)(60)
            assert committed(cluster, group) == ({0: 5} if commits else {})
        finally:
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


# -- request by request


class Requests:
    """One producer that sends what it is told to, in any version."""

    def __init__(self, cluster: Cluster, transactional_id: str, group: str) -> None:
        self.cluster, self.transactional_id, self.group = cluster, transactional_id, group
        self.producer_id = self.epoch = -1

    def ask(self, key: int, version: int, values: dict, *, of_group: bool = False) -> Any:
        """The answer of the group's coordinator, or of the transaction's."""

        async def send(admin: Admin) -> Any:
            name = self.group if of_group else self.transactional_id
            node = await admin.find_coordinator(name, 0 if of_group else 1)
            body = control.encode_request(key, version, values)
            answer = await (await admin.view.broker(node)).send(key, version, [body])
            return control.decode_response(key, version, answer)

        async def until_taken(admin: Admin) -> Any:
            # A coordinator that has just been elected takes them on new connections only.
            return await admin.view.retrying(lambda: send(admin), timeout_ms=20_000)

        return self.cluster.ask(until_taken)

    def init(self, version: int) -> None:
        values = {"transactional_id": self.transactional_id, "transaction_timeout": 60_000}
        answer = until_settled(
            lambda: self.ask(22, version, values | {"producer_id": -1, "producer_epoch": -1})
        )
        assert answer.error_code == 0
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    @property
    def who(self) -> dict[str, object]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    def add_offsets(self) -> int:
        values = self.who | {"group_id": self.group}
        return until_settled(lambda: self.ask(25, 3, values)).error_code

    def commit_offset(self, offset: int, version: int) -> int:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": None}
        topics = [{"name": IN, "partitions": [partition]}]
        values = {**self.who, "group_id": self.group, "generation_id": -1, "topics": topics}
        (topic,) = self.ask(28, version, values, of_group=True).topics
        return topic.partitions[0].error_code

    def end(self, version: int, *, commits: bool = True) -> int:
        answer = self.ask(26, version, self.who | {"committed": commits})
        if version >= 5 and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code


def until_settled(ask: Callable[[], Any]) -> Any:
    """The first answer other than CONCURRENT_TRANSACTIONS and the like."""
    answer = ask()
    deadline = time.monotonic() + 30
    while answer.error_code and error_for(answer.error_code).retriable:
        assert time.monotonic() < deadline
        answer = ask()
    return answer


def test_a_new_clients_offsets_need_no_asking_first(cluster: Cluster) -> None:
    """KIP-890: TxnOffsetCommit 5 adds the group to the transaction; each end raises the epoch."""
    requests = Requests(cluster, "new client", "of a new client")
    requests.init(5)
    for offset in range(5):
        assert requests.commit_offset(offset, 5) == 0
        old = requests.epoch
        assert requests.end(5, commits=offset != 3) == 0
        assert requests.epoch == old + 1
        assert committed(cluster, requests.group) == {0: 2 if offset == 3 else offset}
    requests.epoch -= 1
    assert requests.commit_offset(9, 5) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert not is_unstable(cluster, requests.group)


@pytest.mark.parametrize("version", [0, 3, 4])
def test_late_offsets_of_an_old_client_open_nothing(cluster: Cluster, version: int) -> None:
    """Without a guard they would: nothing would end them, and readers would wait for ever."""
    requests = Requests(cluster, f"late {version}", f"late {version}")
    requests.init(4)
    assert requests.add_offsets() == 0
    assert requests.commit_offset(4, version) == 0
    assert requests.end(3) == 0
    until_settled(lambda: requests.ask(26, 3, requests.who | {"committed": True}))
    assert committed(cluster, requests.group) == {0: 4}
    late = requests.commit_offset(5, version)
    while late == ErrorCode.CONCURRENT_TRANSACTIONS:  # until its end is complete
        late = requests.commit_offset(5, version)
    assert late == (ErrorCode.INVALID_TXN_STATE if version < 4 else ErrorCode.TRANSACTION_ABORTABLE)
    assert not is_unstable(cluster, requests.group)
    assert committed(cluster, requests.group) == {0: 4}


def test_offsets_without_a_transaction_are_refused(cluster: Cluster) -> None:
    requests = Requests(cluster, "never begun", "never begun")
    requests.init(4)
    assert requests.commit_offset(5, 3) == ErrorCode.INVALID_TXN_STATE
    requests.producer_id += 1
    assert requests.commit_offset(5, 3) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert committed(cluster, requests.group) == {}
