"""Test offsets in transactions with unchanged client libraries.

Offsets take effect at the commit, and an abort drops them. Fetches of stable offsets wait for the
end of the transaction, and zombies are refused.
"""

from collections.abc import Iterator
from contextlib import closing

import pytest

from oncelog.client.admin import Admin
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.wire.errors import ErrorCode, error_for

from ..waiting import until
from .readers import WITH_LIBRARIES, new_topic
from .recorded.requests import TransactionalRequests, error_of
from .transactional_producers import PRODUCERS, Confluent

pytestmark = WITH_LIBRARIES
IN, OUT = "in", "out"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3) as running:
        for topic in (IN, OUT):
            new_topic(running, topic, 2)
        yield running


def committed(cluster: Cluster, group: str, *, stable: bool = True) -> dict[int, int]:
    """Return the group's committed offsets in the input topic by partition."""
    named = [(IN, 0), (IN, 1)]  # else a pending offset alone is no reason to wait
    found = cluster.ask(lambda admin: admin.groups.committed(group, named, stable=stable))
    return {partition: value.offset for (_, partition), value in found.items()}


@pytest.mark.in_turn
@pytest.mark.parametrize("library", PRODUCERS)
def test_transactional_offsets_are_committed_by_a_commit_and_dropped_by_an_abort(
    cluster: Cluster, library: str
) -> None:
    group = f"of {library}"
    with closing(PRODUCERS[library](cluster.bootstrap, f"id {group}")) as producer:
        for offset, end in ((5, producer.commit), (9, producer.abort)):
            producer.begin()
            producer.send(OUT, b"made of it")
            producer.send_offset(group, IN, offset)
            end()
    assert committed(cluster, group) == {0: 5}


# -- how others see an open transaction


def open_transaction(cluster: Cluster, group: str, *, offset: int = 5) -> Confluent:
    """Return a producer that has sent offsets in a transaction and not ended it."""
    producer = Confluent(cluster.bootstrap, f"id {group}")
    producer.begin()
    producer.send_offset(group, IN, offset)
    return producer


def is_unstable(cluster: Cluster, group: str) -> bool:
    """Return whether OffsetFetch fails with UNSTABLE_OFFSET_COMMIT. `Admin` would retry it."""

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
def test_offset_fetch_of_stable_offsets_is_unstable_until_the_transaction_ends(
    cluster: Cluster, commits: bool
) -> None:
    group = f"waits {commits}"
    producer = open_transaction(cluster, group)
    assert is_unstable(cluster, group)
    assert committed(cluster, group, stable=False) == {}
    (producer.commit if commits else producer.abort)()
    assert committed(cluster, group) == ({0: 5} if commits else {})
    assert not is_unstable(cluster, group)


@pytest.mark.in_turn
@pytest.mark.parametrize("commits", [True, False])
def test_pending_transactional_offsets_are_kept_when_the_group_coordinator_is_killed(
    cluster: Cluster, commits: bool
) -> None:
    group = f"moves {commits}"
    producer = open_transaction(cluster, group)
    killed = cluster.kill(f"group:{group}")
    try:
        assert is_unstable(cluster, group), "the new coordinator has read them from its log"
        (producer.commit if commits else producer.abort)()
        assert committed(cluster, group) == ({0: 5} if commits else {})
    finally:
        cluster.start(killed)
        for topic in (IN, OUT, "__consumer_offsets"):
            cluster.wait_for_isr(topic, 3)
    assert committed(cluster, group) == ({0: 5} if commits else {})


def test_transactional_offsets_with_an_ended_generation_are_refused(cluster: Cluster) -> None:
    """The generation of the member has ended, and the transaction fails (KIP-447)."""
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


def test_transactional_offsets_of_a_fenced_producer_are_refused(cluster: Cluster) -> None:
    """A second producer with the same transactional id aborts the first one's transaction."""
    from confluent_kafka import KafkaException

    old = open_transaction(cluster, "fences", offset=3)
    Confluent(cluster.bootstrap, "id fences")
    assert committed(cluster, "fences") == {}
    with pytest.raises(KafkaException) as refused:
        old.send_offset("fences", IN, 4)
    assert refused.value.args[0].name() in ("_FENCED", "INVALID_PRODUCER_EPOCH")
    assert refused.value.args[0].fatal()
    assert committed(cluster, "fences") == {}


# -- request by request


class OffsetRequests:
    """A producer that commits offsets of the input's partition 0 in requests of any version.

    Each method returns the error code.
    """

    def __init__(self, cluster: Cluster, name: str, version: int) -> None:
        nodes = {entry.node_id: (entry.host, entry.port) for entry in cluster.file.nodes}
        self._requests = TransactionalRequests(nodes, offset_partitions=8)
        self.name = self.group = name
        answer = self._requests.insist(lambda: self._requests.init(name, version))
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    @property
    def identity(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    def add_offsets(self) -> int:
        return error_of(
            self._requests.answered(
                lambda: self._requests.add_offsets(self.name, 3, self.identity, self.group)
            )
        )

    def commit_offset(self, offset: int, version: int) -> int:
        return error_of(
            self._requests.answered(
                lambda: self._requests.commit_offset(
                    self.name, version, self.identity, self.group, IN, offset
                )
            )
        )

    def end(self, version: int, *, commits: bool = True) -> int:
        answer = self._requests.answered(
            lambda: self._requests.end(self.name, version, self.identity, commits)
        )
        if version >= 5 and not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code


def test_txn_offset_commit_v5_without_add_offsets_commits_with_the_transaction(
    cluster: Cluster,
) -> None:
    """TxnOffsetCommit 5 adds the group to the transaction. Each end raises the epoch (KIP-890)."""
    requests = OffsetRequests(cluster, "new client", 5)
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
def test_txn_offset_commit_that_arrives_late_opens_no_transaction(
    cluster: Cluster, version: int
) -> None:
    """A new transaction would have no end, so readers of stable offsets would wait forever."""
    requests = OffsetRequests(cluster, f"late {version}", 4)
    assert requests.add_offsets() == 0
    assert requests.commit_offset(4, version) == 0
    assert requests.end(3) == 0
    assert requests.end(3) == 0, "the same again, once its markers are written"
    assert committed(cluster, requests.group) == {0: 4}
    late = requests.commit_offset(5, version)
    assert late == (ErrorCode.INVALID_TXN_STATE if version < 4 else ErrorCode.TRANSACTION_ABORTABLE)
    assert not is_unstable(cluster, requests.group)
    assert committed(cluster, requests.group) == {0: 4}


def test_txn_offset_commit_without_a_transaction_is_refused(cluster: Cluster) -> None:
    requests = OffsetRequests(cluster, "never begun", 4)
    assert requests.commit_offset(5, 3) == ErrorCode.INVALID_TXN_STATE
    requests.producer_id += 1
    assert requests.commit_offset(5, 3) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert committed(cluster, requests.group) == {}
