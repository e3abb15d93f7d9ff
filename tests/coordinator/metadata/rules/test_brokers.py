"""Test registrations and deaths of brokers, with their effects on ISRs (KIP-903, KIP-966)."""

from dataclasses import replace

import pytest

from oncelog.coordinator.metadata.commands import (
    UNCLEAN,
    AllocateProducerIds,
    BeginControlledShutdown,
    CreateTopics,
    ElectLeaders,
    FailReplicas,
    FenceBroker,
    NewTopic,
    RegisterBroker,
    SetClusterId,
    SetDefaults,
    UnfenceBroker,
    encode_command,
)
from oncelog.wire.errors import ErrorCode

from ....node.counted_calls import calls_of
from ..metadata_cluster import MetadataCluster, topic_id


def lists(cluster: MetadataCluster) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    partition = cluster.partition()
    return partition.leader, partition.isr, partition.elr


@pytest.fixture
def cluster() -> MetadataCluster:
    """Return a cluster of three brokers with the topic `t`."""
    cluster = MetadataCluster()
    cluster.topic()
    return cluster


def test_broker_epoch_is_the_log_index_and_is_kept_by_the_same_incarnation() -> None:
    cluster = MetadataCluster(())
    command = RegisterBroker(7, bytes(16), "boot", "localhost", 9092, "rack-a", "test-cluster")
    assert cluster.do(command).broker_epoch == cluster.index
    assert cluster.do(command).broker_epoch == cluster.index - 1
    broker = cluster.state.brokers[7]
    assert (broker.host, broker.port, broker.rack) == ("localhost", 9092, "rack-a")
    assert broker.is_fenced and not cluster.state.is_active(7)


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (RegisterBroker(-1, bytes(16), "b", "h", 1), ErrorCode.INVALID_REGISTRATION),
        (RegisterBroker(2**31, bytes(16), "b", "h", 1), ErrorCode.INVALID_REGISTRATION),
        (RegisterBroker(1, b"short", "b", "h", 1), ErrorCode.INVALID_REGISTRATION),
        (RegisterBroker(1, bytes(16), "b", "h", 65536), ErrorCode.INVALID_REGISTRATION),
        (RegisterBroker(1, bytes(16), "b", "h", -1), ErrorCode.INVALID_REGISTRATION),
        (
            RegisterBroker(1, bytes(16), "b", "h", 1, None, "another"),
            ErrorCode.INCONSISTENT_CLUSTER_ID,
        ),
    ],
)
def test_broker_registration_that_is_malformed_or_foreign_is_refused(
    command: RegisterBroker, error: ErrorCode
) -> None:
    cluster = MetadataCluster(())
    result = cluster.do(command)
    assert result.error == error and result.message
    assert not cluster.state.brokers


@pytest.mark.parametrize(
    ("number", "expected_epoch", "is_accepted"),
    [
        (3, "current", True),
        (3, "former", False),
        (3, "future", False),
        (3, "none", False),
        (3, "any", True),  # a journal from before registrations had an expectation
        (2, "former", True),  # this is the present incarnation, asking again
        (1, "former", False),
        (1, "none", False),  # the same command that registered the broker, late or repeated
    ],
)
def test_broker_registration_replaces_only_the_expected_incarnation(
    number: int, expected_epoch: str, is_accepted: bool
) -> None:
    cluster = MetadataCluster(())
    former = cluster.do(_registration(1, -1)).broker_epoch
    current = cluster.do(_registration(2, former)).broker_epoch
    assert cluster.unfence(7).error == ErrorCode.NONE
    epochs = {"current": current, "former": former, "future": 99, "none": -1, "any": None}
    stands = cluster.state.brokers[7]
    result = cluster.do(_registration(number, epochs[expected_epoch]))
    if is_accepted:
        assert result.error == ErrorCode.NONE
        assert result.broker_epoch == (current if number == 2 else cluster.index)
    else:
        assert (result.error, result.broker_epoch) == (ErrorCode.STALE_BROKER_EPOCH, current)
        assert result.message == f"Broker 7 has the epoch {current}, not {epochs[expected_epoch]}."
    assert (cluster.state.brokers[7] == stands) == (not is_accepted or number == 2)


def test_broker_registration_that_expects_an_unknown_epoch_is_refused() -> None:
    cluster = MetadataCluster(())
    result = cluster.do(_registration(1, 5))
    assert (result.error, result.broker_epoch) == (ErrorCode.STALE_BROKER_EPOCH, -1)
    assert not cluster.state.brokers


def _registration(number: int, expected_broker_epoch: int | None) -> RegisterBroker:
    incarnation = bytes([number]) * 16
    return RegisterBroker(
        7, incarnation, "boot", "localhost", 9092, None, "", expected_broker_epoch
    )


@pytest.mark.parametrize("command", [UnfenceBroker, FenceBroker, BeginControlledShutdown])
def test_broker_command_with_another_epoch_is_refused_without_a_change(
    cluster: MetadataCluster, command: type
) -> None:
    before = cluster.state.snapshot()
    assert cluster.do(command(1, cluster.epoch(1) + 1)).error == ErrorCode.STALE_BROKER_EPOCH
    assert cluster.do(command(9, 1)).error == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert cluster.state.snapshot() == before


def test_dead_leader_is_replaced_by_the_next_in_sync_replica(cluster: MetadataCluster) -> None:
    assert lists(cluster) == (1, (1, 2, 3), ())
    cluster.die(1)
    assert lists(cluster) == (2, (2, 3), ())
    partition = cluster.partition()
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 1)


def test_dead_follower_leaves_the_isr_without_a_new_leader_epoch(
    cluster: MetadataCluster,
) -> None:
    cluster.die(3)
    assert lists(cluster) == (1, (1, 2), ())
    partition = cluster.partition()
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)


def test_replica_that_leaves_an_isr_at_its_minimum_becomes_eligible(
    cluster: MetadataCluster,
) -> None:
    cluster.die(3, 1)
    assert lists(cluster) == (2, (2,), (1,))  # one member is below min.insync.replicas of 2
    cluster.die(2)
    assert lists(cluster) == (-1, (), (1, 2))
    assert cluster.partition().last_known_leader == 2
    assert cluster.partition().leader_epoch == 2
    cluster.start(3)  # broker 3 was neither in the ISR nor among the eligible replicas
    assert lists(cluster) == (-1, (), (1, 2))
    cluster.register(1)
    cluster.register(2)
    cluster.unfence(2)
    assert lists(cluster) == (2, (2,), (1,))
    assert cluster.partition().leader_epoch == 3
    assert cluster.partition().last_known_leader == -1


def test_eligible_replica_is_elected_without_waiting_for_the_last_leader(
    cluster: MetadataCluster,
) -> None:
    cluster.die(3, 1, 2)
    cluster.start(1)
    assert lists(cluster) == (1, (1,), (2,))


def test_partition_with_min_isr_one_keeps_only_its_last_leader_eligible() -> None:
    cluster = MetadataCluster(min_isr=1)
    cluster.topic()
    cluster.die(1, 2)
    assert lists(cluster) == (3, (3,), ())
    cluster.die(3)
    assert lists(cluster) == (-1, (), (3,))
    cluster.start(1)
    cluster.start(2)
    assert lists(cluster) == (-1, (), (3,))
    cluster.start(3)
    assert lists(cluster) == (3, (3,), ())


def test_broker_that_restarts_quickly_has_its_old_incarnation_fenced_first(
    cluster: MetadataCluster,
) -> None:
    first = cluster.epoch(1)
    second = cluster.register(1)
    assert second > first
    assert lists(cluster) == (2, (2, 3), ())
    cluster.register(3)  # a follower
    assert lists(cluster) == (2, (2,), (3,))
    cluster.unfence(1)
    cluster.unfence(3)
    assert lists(cluster) == (2, (2,), (3,))
    assert cluster.partition().leader_epoch == 1


def test_only_replica_that_returns_leads_again_in_a_new_leader_epoch() -> None:
    cluster = MetadataCluster()
    cluster.topic("t", (1,))
    cluster.start(1)
    assert lists(cluster) == (1, (1,), ())
    assert cluster.partition().leader_epoch == 2  # no leader, then the same broker


def test_broker_that_lost_power_is_removed_from_the_elr(cluster: MetadataCluster) -> None:
    cluster.die(3, 2)
    assert lists(cluster) == (1, (1,), (2,))
    cluster.start(2, lost_power=True)
    assert lists(cluster) == (1, (1,), ())
    cluster.die(1)
    assert lists(cluster) == (-1, (), (1,))


def test_broker_that_lost_power_unnoticed_leaves_the_isr_and_the_elr(
    cluster: MetadataCluster,
) -> None:
    cluster.die(3)
    cluster.start(1, lost_power=True)
    assert lists(cluster) == (2, (2,), ())


def test_last_eligible_replica_that_lost_power_stays_in_the_elr(cluster: MetadataCluster) -> None:
    cluster.die(1, 2, 3)
    assert lists(cluster) == (-1, (), (2, 3))
    cluster.register(2, lost_power=True)
    assert lists(cluster) == (-1, (), (3,))
    cluster.register(3, lost_power=True)
    assert lists(cluster) == (-1, (), (3,))
    cluster.unfence(2)
    assert lists(cluster) == (-1, (), (3,))
    cluster.unfence(3)
    assert lists(cluster) == (3, (3,), ())


def last_known_elr(cluster: MetadataCluster) -> tuple[int, ...]:
    return cluster.partition().last_known_elr


def after_power_cuts(*nodes: int, min_isr: int) -> MetadataCluster:
    """Return a cluster with a partition on brokers 1, 2 and 3.

    The brokers in `nodes` have lost power one after another.
    """
    cluster = MetadataCluster(min_isr=min_isr)
    cluster.topic()
    for node in nodes:
        cluster.start(node, lost_power=True)
    return cluster


def test_broker_with_an_empty_directory_never_becomes_the_last_known_replica() -> None:
    """The data directory of broker 3 is replaced, while all brokers lose power."""
    cluster = after_power_cuts(min_isr=2)
    cluster.register(1, lost_power=True)
    assert lists(cluster) == (2, (2, 3), ()) and last_known_elr(cluster) == ()
    cluster.register(2, lost_power=True)
    assert lists(cluster) == (3, (3,), ()) and last_known_elr(cluster) == (2,)
    cluster.register(3, lost_power=True, lost_directory=True)
    assert lists(cluster) == (-1, (), ()) and last_known_elr(cluster) == (2,)
    for node in (3, 1):
        cluster.unfence(node)
        assert lists(cluster) == (-1, (), ())
    cluster.unfence(2)
    assert lists(cluster) == (2, (2,), ()) and last_known_elr(cluster) == ()


def test_last_known_replicas_are_kept_until_a_smaller_isr_is_committed() -> None:
    cluster = after_power_cuts(1, 2, min_isr=3)
    assert lists(cluster) == (3, (3,), ()) and last_known_elr(cluster) == (2, 1)
    cluster.start(3, lost_directory=True)
    assert lists(cluster) == (2, (2,), ()) and last_known_elr(cluster) == (1,)
    cluster.set_isr(2, 3)
    assert last_known_elr(cluster) == (1,)
    cluster.set_isr(2, 3, 1)
    assert lists(cluster) == (2, (2, 3, 1), ()) and last_known_elr(cluster) == ()


def test_election_waits_for_the_last_known_replica_that_left_last() -> None:
    """Broker 1 has lost records. Later 2 and 3 lost power, and broker 3 its directory as well."""
    cluster = after_power_cuts(1, min_isr=3)
    cluster.die(2, 3)
    cluster.register(2, lost_power=True)
    cluster.register(3, lost_power=True, lost_directory=True)
    assert lists(cluster) == (-1, (), ()) and last_known_elr(cluster) == (2, 1)
    for node in (1, 3):
        cluster.unfence(node)
        assert lists(cluster) == (-1, (), ())
    cluster.unfence(2)
    assert lists(cluster) == (2, (2,), ()) and last_known_elr(cluster) == (1,)


def test_last_known_replica_that_loses_its_directory_is_removed() -> None:
    cluster = after_power_cuts(1, 2, min_isr=3)
    cluster.start(1, lost_directory=True)
    assert last_known_elr(cluster) == (2,)
    cluster.start(3, lost_directory=True)
    assert lists(cluster) == (2, (2,), ())


def test_partition_with_lost_directories_on_all_replicas_is_led_by_the_last_known_replica() -> None:
    cluster = after_power_cuts(1, 2, min_isr=3)
    cluster.register(3, lost_directory=True)
    assert lists(cluster) == (2, (2,), ()) and last_known_elr(cluster) == (1,)
    for node in (1, 2, 3):
        cluster.register(node, lost_directory=True)
    assert lists(cluster) == (-1, (), (2,)) and last_known_elr(cluster) == ()
    cluster.unfence(2)
    assert lists(cluster) == (2, (2,), ())


def test_unclean_election_prefers_the_last_known_replica(cluster: MetadataCluster) -> None:
    cluster.set_isr(1, 3)
    cluster.start(3, lost_power=True)
    cluster.die(1)
    assert lists(cluster) == (-1, (), (1,)) and last_known_elr(cluster) == (3,)
    cluster.do(ElectLeaders(UNCLEAN))
    assert lists(cluster) == (3, (3,), ()) and last_known_elr(cluster) == ()


@pytest.mark.parametrize("lost_directory", [False, True])
def test_broker_registration_of_an_old_release_has_its_directory_id_in_the_boot_id(
    cluster: MetadataCluster, lost_directory: bool
) -> None:
    for node in (1, 2, 3):
        broker = cluster.state.brokers[node]
        boot_id = f"{broker.boot_id}/{broker.directory_id.hex()}"
        cluster.state.put_broker(replace(broker, directory_id=b"", boot_id=boot_id))
    for node in (1, 2):
        cluster.start(node, lost_power=True)
    cluster.register(3, lost_power=True, lost_directory=lost_directory)
    cluster.unfence(3)
    assert lists(cluster)[0] == (2 if lost_directory else 3)


def test_broker_registration_without_a_directory_id_counts_as_the_same_directory() -> None:
    cluster = after_power_cuts(1, 2, min_isr=2)
    known = cluster.state.brokers[3]
    cluster.do(RegisterBroker(3, b"another process ", "boot-0", "127.0.0.1", 9003))
    assert known.directory_id and lists(cluster) == (-1, (), (3,))


def test_unclean_election_happens_only_where_enabled() -> None:
    cluster = MetadataCluster(min_isr=1)
    cluster.topic("clean")
    cluster.topic("unclean", (1, 2, 3), configs={"unclean.leader.election.enable": "true"})
    for name in ("clean", "unclean"):
        cluster.set_isr(1, name=name)
    cluster.die(1)
    assert cluster.partition("clean").leader == -1
    partition = cluster.partition("unclean")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), ())
    assert partition.leader_epoch == 1


def test_unclean_election_waits_for_any_live_replica() -> None:
    cluster = MetadataCluster(min_isr=1, unclean=True)
    cluster.topic()
    cluster.set_isr(1)
    cluster.die(2, 3, 1)
    assert cluster.partition().leader == -1
    cluster.start(3)
    assert lists(cluster) == (3, (3,), ())


def test_broker_in_controlled_shutdown_loses_its_leaders_and_is_not_elected() -> None:
    cluster = MetadataCluster()
    cluster.topic("t", (1, 2, 3))
    cluster.topic("alone", (1,))
    assert cluster.do(BeginControlledShutdown(1, cluster.epoch(1))).error == 0
    assert lists(cluster) == (2, (2, 3), ())
    assert cluster.partition("alone").leader == -1  # and not the stopping broker again
    assert not cluster.state.leads_any(1)
    error, item = cluster.propose(2, 3, 1)
    assert error == 0 and item is not None and item.error == ErrorCode.INELIGIBLE_REPLICA
    before = cluster.state.revision
    assert cluster.do(BeginControlledShutdown(1, cluster.epoch(1))).error == 0
    assert cluster.state.revision == before
    cluster.die(1)
    broker = cluster.state.brokers[1]
    assert broker.is_fenced and not broker.is_shutting_down
    cluster.start(1)
    assert cluster.partition("alone").leader == 1


def test_producer_id_blocks_are_consecutive_and_never_repeated() -> None:
    cluster = MetadataCluster()
    first = cluster.do(AllocateProducerIds(1, cluster.epoch(1)))
    second = cluster.do(AllocateProducerIds(2, cluster.epoch(2)))
    assert (first.first_producer_id, first.producer_id_count) == (0, 1000)
    assert (second.first_producer_id, second.producer_id_count) == (1000, 1000)
    stale = cluster.do(AllocateProducerIds(1, cluster.epoch(1) - 1))
    assert stale.error == ErrorCode.STALE_BROKER_EPOCH
    cluster.state.next_producer_id = 2**63 - 100
    exhausted = cluster.do(AllocateProducerIds(1, cluster.epoch(1)))
    assert exhausted.error == ErrorCode.UNKNOWN_SERVER_ERROR and exhausted.message


def test_cluster_id_cannot_be_changed_but_the_defaults_can() -> None:
    cluster = MetadataCluster()
    refused = cluster.do(SetClusterId("another", {}))
    assert refused.error == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert cluster.state.cluster_id == "test-cluster"
    revision = cluster.state.revision
    assert cluster.do(SetDefaults(dict(cluster.state.defaults))).error == 0
    assert cluster.state.revision == revision
    assert cluster.do(SetDefaults({"num.partitions": "6"})).error == 0
    assert cluster.state.default_number("num.partitions") == 6


def test_default_min_isr_that_is_lowered_empties_the_elr() -> None:
    cluster = MetadataCluster(min_isr=2)
    cluster.topic()
    cluster.die(3, 2)
    assert cluster.partition().elr == (2,)
    cluster.do(SetDefaults({"min.insync.replicas": "1"}))
    assert cluster.partition().elr == ()


def test_broker_that_leads_2000_partitions_is_fenced_by_one_small_command() -> None:
    cluster = MetadataCluster(())
    for node in (1, 2, 3):
        cluster.start(node)
    state = cluster.state
    for name in ("a", "b"):
        command = CreateTopics((NewTopic(name, topic_id(name), 3000, 3),))
        state.apply(encode_command(command), 100, 1)
    leaders = [p.leader for topic in state.topics.values() for p in topic.partitions]
    assert leaders.count(1) == 2000
    command = encode_command(FenceBroker(1, cluster.epoch(1)))
    assert len(command) < 30
    results = []
    calls = calls_of(lambda: results.append(state.apply(command, 200, 1)))
    assert results[0].error == 0
    assert not state.leads_any(1)
    assert calls < 6000 * 60  # steps, although broker 1 is in all 6000 ISRs


def test_replica_with_a_failed_log_leaves_the_isr_and_raises_the_leader_epoch(
    cluster: MetadataCluster,
) -> None:
    """Without a new epoch the leader would count the former log end of a replica that is empty."""
    failed = FailReplicas(2, cluster.epoch(2), ((topic_id("t"), 0),))
    for _ in range(2):  # the second time broker 2 is not in the ISR any more
        before = cluster.partition("t")
        cluster.do(failed)
        after = cluster.partition("t")
        assert (after.leader, after.leader_epoch) == (1, before.leader_epoch + 1)
        assert 2 not in after.isr
    before = cluster.partition("t")
    cluster.do(FailReplicas(3, cluster.epoch(3), ((topic_id("t"), 0),)))
    before = cluster.partition("t")
    cluster.do(FailReplicas(1, cluster.epoch(1), ((topic_id("t"), 0),)))
    assert cluster.partition("t") == before  # the last one leads on: there is no other


def test_failed_replica_outside_the_isr_is_removed_from_the_elr(
    cluster: MetadataCluster,
) -> None:
    """If the replica stayed in the ELR, it could be elected without being able to serve."""
    cluster.set_isr(1, 2)
    cluster.set_isr(1)
    assert lists(cluster) == (1, (1,), (2,))
    cluster.do(FailReplicas(2, cluster.epoch(2), ((topic_id("t"), 0),)))
    assert lists(cluster) == (1, (1,), ())
    cluster.die(1)
    assert lists(cluster) == (-1, (), (1,))
