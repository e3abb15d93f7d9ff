"""Test ISR changes and requested leader elections (KIP-497, 841, 903, 460)."""

import pytest

from oncelog.coordinator.metadata.commands import (
    PREFERRED,
    UNCLEAN,
    AlterPartition,
    BeginControlledShutdown,
    ElectLeaders,
    IsrProposal,
)
from oncelog.wire.errors import ErrorCode

from ..metadata_cluster import MetadataCluster


@pytest.fixture
def cluster() -> MetadataCluster:
    cluster = MetadataCluster((1, 2, 3, 4))
    cluster.topic()
    return cluster


def test_isr_is_shrunk_and_expanded_by_the_leader(cluster: MetadataCluster) -> None:
    error, item = cluster.propose(1, 2)
    assert error == 0 and item is not None and item.error == 0
    assert (item.leader, item.leader_epoch, item.isr, item.partition_epoch) == (1, 0, (1, 2), 1)
    assert item.min_insync_replicas == 2
    cluster.set_isr(1)
    assert cluster.partition().elr == (2,)
    cluster.set_isr(1, 3)  # large enough to commit without 2
    assert cluster.partition().elr == ()
    assert cluster.partition().leader_epoch == 0


def test_isr_change_to_the_same_isr_changes_no_epoch(cluster: MetadataCluster) -> None:
    revision = cluster.state.revision
    cluster.set_isr(1, 2, 3)
    assert cluster.partition().partition_epoch == 0 and cluster.state.revision == revision


def test_isr_change_by_a_former_leader_incarnation_gets_stale_broker_epoch(
    cluster: MetadataCluster,
) -> None:
    error, item = cluster.propose(1, broker_epoch=cluster.epoch(1) - 1)
    assert error == ErrorCode.STALE_BROKER_EPOCH and item is None
    error, item = cluster.propose(1, sender=9)
    assert error == ErrorCode.STALE_BROKER_EPOCH and item is None


def test_isr_change_of_an_unknown_topic_or_partition_is_refused(cluster: MetadataCluster) -> None:
    proposal = IsrProposal(bytes(16), 0, 0, 0, ((1, cluster.epoch(1)),))
    result = cluster.do(AlterPartition(1, cluster.epoch(1), (proposal,)))
    assert result.items[0].error == ErrorCode.UNKNOWN_TOPIC_ID
    proposal = IsrProposal(cluster.state.topics["t"].topic_id, 7, 0, 0, ((1, cluster.epoch(1)),))
    result = cluster.do(AlterPartition(1, cluster.epoch(1), (proposal,)))
    assert result.items[0].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("arguments", "isr", "error"),
    [
        ({"leader_epoch": -1}, (1, 2), ErrorCode.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 1}, (1, 2), ErrorCode.FENCED_LEADER_EPOCH),
        ({"partition_epoch": -1}, (1, 2), ErrorCode.INVALID_UPDATE_VERSION),
        ({"partition_epoch": 1}, (1, 2), ErrorCode.INVALID_UPDATE_VERSION),
        ({"sender": 2}, (1, 2), ErrorCode.INVALID_REQUEST),
        ({}, (), ErrorCode.INVALID_REQUEST),
        ({}, (2, 3), ErrorCode.INVALID_REQUEST),
        ({}, (1, 2, 2), ErrorCode.INVALID_REQUEST),
        ({}, (1, 2, 4), ErrorCode.INVALID_REQUEST),
        ({}, (1, 99), ErrorCode.INVALID_REQUEST),
        ({"member_epochs": {2: 1}}, (1, 2), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_isr_change_with_any_wrong_field_is_refused(
    cluster: MetadataCluster, arguments: dict, isr: tuple[int, ...], error: ErrorCode
) -> None:
    top, item = cluster.propose(*isr, **arguments)
    assert top == 0 and item is not None
    assert item.error == error and item.message
    assert item.isr == cluster.partition().isr == (1, 2, 3)
    assert item.partition_epoch == cluster.partition().partition_epoch


def test_isr_expansion_is_accepted_with_a_member_of_unknown_broker_epoch(
    cluster: MetadataCluster,
) -> None:
    """After a fail-over the leader does not know the broker epochs of its ISR (KIP-903)."""
    cluster.set_isr(1, 2)
    error, item = cluster.propose(1, 2, 3, member_epochs={2: -1})
    assert error == 0 and item is not None and item.error == 0
    assert cluster.partition().isr == (1, 2, 3)
    cluster.set_isr(1, 2)
    _, item = cluster.propose(1, 2, 3, member_epochs={3: -1})
    assert item is not None and item.error == ErrorCode.INELIGIBLE_REPLICA, "who enters is known"


def test_isr_expansion_with_a_fenced_or_stopping_replica_is_refused(
    cluster: MetadataCluster,
) -> None:
    cluster.die(3)
    _, item = cluster.propose(1, 2, 3)
    assert item is not None and item.error == ErrorCode.INELIGIBLE_REPLICA
    assert "fenced" in str(item.message)
    cluster.do(BeginControlledShutdown(2, cluster.epoch(2)))
    _, item = cluster.propose(1, 2)
    assert item is not None and item.error == ErrorCode.INELIGIBLE_REPLICA
    assert "shutting down" in str(item.message)


def test_isr_change_repeated_after_its_refusal_is_refused_again(cluster: MetadataCluster) -> None:
    cluster.set_isr(1, 2)
    old_epoch = cluster.partition().partition_epoch
    cluster.die(3)
    _, item = cluster.propose(1, 2, 3)
    assert item is not None and item.error == ErrorCode.INELIGIBLE_REPLICA
    assert item.partition_epoch == old_epoch + 1
    cluster.unfence(3)  # the same incarnation, which was only out of contact
    _, item = cluster.propose(1, 2, 3, partition_epoch=old_epoch)
    assert item is not None and item.error == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.partition().isr == (1, 2)
    cluster.set_isr(1, 2, 3)


def test_preferred_leader_election_elects_the_preferred_replica_if_in_sync(
    cluster: MetadataCluster,
) -> None:
    cluster.die(1)
    cluster.start(1)
    assert list(cluster.state.imbalanced_partitions()) == [("t", 0)]
    item = elect(cluster, PREFERRED, ("t", 0))
    assert item.error == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE and item.message
    cluster.set_isr(2, 3, 1)
    assert elect(cluster, PREFERRED, ("t", 0)).error == 0
    assert cluster.partition().leader == 1 and cluster.partition().leader_epoch == 2
    assert not list(cluster.state.imbalanced_partitions())
    assert elect(cluster, PREFERRED, ("t", 0)).error == ErrorCode.ELECTION_NOT_NEEDED


def test_unclean_election_on_request_elects_any_live_replica(cluster: MetadataCluster) -> None:
    assert elect(cluster, UNCLEAN, ("t", 0)).error == ErrorCode.ELECTION_NOT_NEEDED
    cluster.set_isr(1)
    cluster.set_isr(1, 2)
    cluster.set_isr(1)
    cluster.die(1, 2, 3)
    item = elect(cluster, UNCLEAN, ("t", 0))
    assert item.error == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE and item.message
    cluster.start(3)  # neither in the ISR nor in the ELR
    assert cluster.partition().leader == -1
    assert elect(cluster, UNCLEAN, ("t", 0)).error == 0
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.elr) == (3, (3,), ())


def test_leader_election_of_an_unknown_partition_or_type_is_refused(
    cluster: MetadataCluster,
) -> None:
    for key in (("none", 0), ("t", 1), ("t", -1)):
        item = elect(cluster, PREFERRED, key)
        assert item.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    result = cluster.do(ElectLeaders(2, (("t", 0),)))
    assert result.error == ErrorCode.INVALID_REQUEST and not result.items


def test_leader_election_of_all_partitions_omits_those_already_preferred(
    cluster: MetadataCluster,
) -> None:
    cluster.topic("u", (2, 1), (1, 2))
    cluster.die(1)
    cluster.start(1)
    cluster.set_isr(2, 3, 1, name="t")
    result = cluster.do(ElectLeaders(PREFERRED))
    assert [(item.name, item.partition, item.error) for item in result.items] == [
        ("t", 0, ErrorCode.NONE),
        ("u", 1, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ]


def elect(cluster: MetadataCluster, election_type: int, key: tuple[str, int]):
    (item,) = cluster.do(ElectLeaders(election_type, (key,))).items
    return item
