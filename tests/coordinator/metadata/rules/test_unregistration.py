"""Test that a stopped broker can be unregistered, and may register again later."""

import pytest

from oncelog.coordinator.metadata.cluster_state import ClusterState
from oncelog.coordinator.metadata.commands import UnregisterBroker
from oncelog.wire.errors import ErrorCode

from ..metadata_cluster import MetadataCluster


@pytest.fixture
def cluster() -> MetadataCluster:
    cluster = MetadataCluster(min_isr=1)
    cluster.topic("t", (3, 2))
    return cluster


def test_stopped_broker_is_unregistered_once(cluster: MetadataCluster) -> None:
    cluster.die(3)
    assert cluster.do(UnregisterBroker(3)).error == 0
    assert sorted(cluster.state.brokers) == [1, 2]
    again = cluster.do(UnregisterBroker(3))
    assert again.error == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert again.message == "Broker ID 3 is not currently registered"


def test_live_broker_cannot_be_unregistered(cluster: MetadataCluster) -> None:
    refused = cluster.do(UnregisterBroker(3))
    assert refused.error == ErrorCode.INVALID_REQUEST and "Stop it" in (refused.message or "")
    assert 3 in cluster.state.brokers


def test_unregistered_broker_stays_a_replica_and_may_register_again(
    cluster: MetadataCluster,
) -> None:
    cluster.die(2, 3)
    assert cluster.do(UnregisterBroker(3)).error == 0
    partition = cluster.state.partition("t", 0)
    assert partition and partition.replicas == (3, 2) and 3 in (*partition.isr, *partition.elr)
    cluster.start(3)
    partition = cluster.state.partition("t", 0)
    assert partition and partition.leader == 3


@pytest.mark.parametrize("by_snapshot", [False, True])
@pytest.mark.parametrize(("lost_directory", "leader"), [(False, 3), (True, 2)])
def test_unregistered_broker_that_returns_is_elected_only_with_its_old_directory(
    by_snapshot: bool, lost_directory: bool, leader: int
) -> None:
    """Brokers 1 and 2 have lost power.

    Broker 3 has all records, unless its directory was replaced.
    """
    cluster = MetadataCluster(min_isr=3)
    cluster.topic("t", (1, 2, 3))
    for node in (1, 2):
        cluster.start(node, lost_power=True)
    cluster.die(3)
    assert cluster.do(UnregisterBroker(3)).error == 0
    if by_snapshot:
        restored = ClusterState()
        restored.restore(cluster.state.snapshot())
        assert restored.snapshot() == cluster.state.snapshot()
        cluster.state = restored
    cluster.start(3, lost_directory=lost_directory)
    partition = cluster.state.partition("t", 0)
    assert partition and partition.leader == leader
