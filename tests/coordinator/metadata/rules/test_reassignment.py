"""Reassignments (KIP-455): started, completed by the ISR, replaced, cancelled."""

import pytest

from oncelog.coordinator.metadata.commands import AlterPartitionReassignments, Reassignment
from oncelog.coordinator.metadata.results import Item
from oncelog.wire.errors import ErrorCode

from ..metadata_cluster import MetadataCluster


@pytest.fixture
def cluster() -> MetadataCluster:
    cluster = MetadataCluster((1, 2, 3, 4, 5))
    cluster.topic()
    return cluster


def reassign(cluster: MetadataCluster, *replicas: int, may_change: bool = True) -> Item:
    command = AlterPartitionReassignments((Reassignment("t", 0, replicas),), may_change)
    (item,) = cluster.do(command).items
    return item


def take_back(cluster: MetadataCluster) -> Item:
    (item,) = cluster.do(AlterPartitionReassignments((Reassignment("t", 0, None),))).items
    return item


def test_new_replicas_come_first_and_old_ones_go_when_all_are_in_sync(
    cluster: MetadataCluster,
) -> None:
    assert reassign(cluster, 4, 5, 1).error == 0
    partition = cluster.partition()
    assert partition.replicas == (4, 5, 1, 2, 3)
    assert (partition.adding, partition.removing) == ((4, 5), (2, 3))
    assert partition.isr == (1, 2, 3) and partition.leader == 1
    assert list(cluster.state.reassigning_partitions()) == [("t", 0)]
    cluster.set_isr(1, 2, 3, 4)
    assert cluster.partition().is_reassigning
    cluster.set_isr(1, 2, 3, 4, 5)
    partition = cluster.partition()
    assert partition.replicas == (4, 5, 1) and set(partition.isr) == {1, 4, 5}
    assert not partition.is_reassigning and partition.leader == 1
    assert partition.leader_epoch == 1, "so that nothing fetched by who was dropped counts"
    assert not list(cluster.state.reassigning_partitions())


def test_a_leader_that_is_removed_learns_of_its_successor(cluster: MetadataCluster) -> None:
    reassign(cluster, 4, 2, 3)
    error, item = cluster.propose(1, 2, 3, 4)
    assert error == 0 and item is not None
    assert item.error == ErrorCode.NEW_LEADER_ELECTED
    assert (item.leader, item.leader_epoch) == (4, 1)
    assert cluster.partition().replicas == (4, 2, 3)


def test_another_order_or_fewer_replicas_need_no_waiting(cluster: MetadataCluster) -> None:
    reassign(cluster, 3, 1, 2)
    assert cluster.partition().replicas == (3, 1, 2) and cluster.partition().leader == 1
    reassign(cluster, 3)
    partition = cluster.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((3,), (3,), 3)
    assert partition.leader_epoch == 1


def test_more_replicas_join_one_by_one(cluster: MetadataCluster) -> None:
    reassign(cluster, 1, 2, 3, 4, 5)
    assert cluster.partition().adding == (4, 5)
    cluster.set_isr(1, 2, 3, 5)
    cluster.set_isr(1, 2, 3, 4, 5)
    assert len(cluster.partition().replicas) == 5


def test_replaced_reassignment_can_be_cancelled_to_the_first_state(
    cluster: MetadataCluster,
) -> None:
    reassign(cluster, 4, 2, 3)
    reassign(cluster, 5, 2, 3)
    partition = cluster.partition()
    assert partition.replicas == (5, 2, 3, 1, 4)
    assert (partition.adding, partition.removing) == ((4, 5), (1, 4))
    assert take_back(cluster).error == 0
    assert set(cluster.partition().replicas) == {1, 2, 3}
    assert not cluster.partition().is_reassigning


def test_taking_back_drops_new_members_of_the_isr(cluster: MetadataCluster) -> None:
    reassign(cluster, 4, 5, 3)
    cluster.set_isr(1, 2, 3, 4)
    assert take_back(cluster).error == 0
    partition = cluster.partition()
    assert set(partition.replicas) == {1, 2, 3} and set(partition.isr) == {1, 2, 3}


def test_taking_back_keeps_enough_holders_of_committed_data(cluster: MetadataCluster) -> None:
    reassign(cluster, 4, 5, 3)
    cluster.set_isr(1, 4, 2)
    cluster.set_isr(1, 4)
    item = take_back(cluster)
    assert item.error == ErrorCode.INVALID_REPLICA_ASSIGNMENT and item.message
    cluster.die(1)
    assert cluster.partition().isr == (4,) and cluster.partition().elr == (1,)
    assert take_back(cluster).error == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.die(4)
    assert cluster.partition().elr == (4, 1)
    assert take_back(cluster).error == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.partition().is_reassigning


def test_taking_back_keeps_an_eligible_holder_while_few_are_in_sync(
    cluster: MetadataCluster,
) -> None:
    reassign(cluster, 4, 2, 3)
    cluster.set_isr(1, 4)
    cluster.die(4)
    assert (cluster.partition().isr, cluster.partition().elr) == ((1,), (4,))
    assert take_back(cluster).error == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.set_isr(1, 2)
    assert take_back(cluster).error == 0
    assert set(cluster.partition().replicas) == {1, 2, 3}


def test_taking_back_uncleanly_where_that_is_allowed() -> None:
    cluster = MetadataCluster((1, 2, 3), min_isr=1, unclean=True)
    cluster.topic("t", (1,))
    reassign(cluster, 2, 3)
    cluster.set_isr(1, 2)
    cluster.set_isr(1, 2)
    cluster.die(1)
    assert cluster.partition().isr == (2,)
    assert take_back(cluster).error == ErrorCode.INVALID_REPLICA_ASSIGNMENT  # 1 is dead
    cluster.start(1)
    assert take_back(cluster).error == 0
    partition = cluster.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((1,), (1,), 1)


def test_invalid_reassignments_are_refused(cluster: MetadataCluster) -> None:
    for replicas in ((), (1, 1), (1, 9)):
        item = reassign(cluster, *replicas)
        assert item.error == ErrorCode.INVALID_REPLICA_ASSIGNMENT and item.message
    assert take_back(cluster).error == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    command = AlterPartitionReassignments(
        (Reassignment("none", 0, (1,)), Reassignment("t", 1, (1,)), Reassignment("t", -1, (1,)))
    )
    errors = {item.error for item in cluster.do(command).items}
    assert errors == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    command = AlterPartitionReassignments((Reassignment("t", 0, (1,)), Reassignment("t", 0, None)))
    errors = {item.error for item in cluster.do(command).items}
    assert errors == {ErrorCode.INVALID_REQUEST}
    item = reassign(cluster, 1, 2, may_change=False)
    assert item.error == ErrorCode.INVALID_REPLICATION_FACTOR and item.message
    assert reassign(cluster, 1, 2, 4, may_change=False).error == 0


def test_a_fenced_broker_may_be_a_target(cluster: MetadataCluster) -> None:
    cluster.die(4)
    assert reassign(cluster, 4, 2, 3).error == 0
    assert cluster.partition().adding == (4,)
