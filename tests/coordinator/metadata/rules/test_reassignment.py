"""Test the start, completion, replacement and cancellation of reassignments (KIP-455)."""

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


def test_reassignment_removes_old_replicas_after_all_new_replicas_are_in_sync(
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


def test_reassignment_that_removes_the_leader_answers_with_the_new_leader(
    cluster: MetadataCluster,
) -> None:
    reassign(cluster, 4, 2, 3)
    error, item = cluster.propose(1, 2, 3, 4)
    assert error == 0 and item is not None
    assert item.error == ErrorCode.NEW_LEADER_ELECTED
    assert (item.leader, item.leader_epoch) == (4, 1)
    assert cluster.partition().replicas == (4, 2, 3)


def test_reassignment_to_another_order_or_fewer_replicas_completes_immediately(
    cluster: MetadataCluster,
) -> None:
    reassign(cluster, 3, 1, 2)
    assert cluster.partition().replicas == (3, 1, 2) and cluster.partition().leader == 1
    reassign(cluster, 3)
    partition = cluster.partition()
    assert (partition.replicas, partition.isr, partition.leader) == ((3,), (3,), 3)
    assert partition.leader_epoch == 1


def test_reassignment_to_more_replicas_completes_when_all_are_in_sync(
    cluster: MetadataCluster,
) -> None:
    reassign(cluster, 1, 2, 3, 4, 5)
    assert cluster.partition().adding == (4, 5)
    cluster.set_isr(1, 2, 3, 5)
    cluster.set_isr(1, 2, 3, 4, 5)
    assert len(cluster.partition().replicas) == 5


def test_reassignment_that_was_replaced_is_cancelled_to_the_original_replicas(
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


def test_reassignment_that_is_cancelled_removes_new_replicas_from_the_isr(
    cluster: MetadataCluster,
) -> None:
    reassign(cluster, 4, 5, 3)
    cluster.set_isr(1, 2, 3, 4)
    assert take_back(cluster).error == 0
    partition = cluster.partition()
    assert set(partition.replicas) == {1, 2, 3} and set(partition.isr) == {1, 2, 3}


def test_reassignment_cancel_without_enough_old_in_sync_replicas_is_refused(
    cluster: MetadataCluster,
) -> None:
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


def test_reassignment_cancel_that_would_drop_an_eligible_replica_is_refused(
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


def test_reassignment_cancel_with_unclean_elections_enabled_needs_a_live_old_replica() -> None:
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


def test_reassignment_with_an_invalid_replica_list_or_partition_is_refused(
    cluster: MetadataCluster,
) -> None:
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


def test_reassignment_to_a_fenced_broker_is_accepted(cluster: MetadataCluster) -> None:
    cluster.die(4)
    assert reassign(cluster, 4, 2, 3).error == 0
    assert cluster.partition().adding == (4,)
