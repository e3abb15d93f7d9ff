"""Test that a replica is in no list of candidates when its failed log may be emptied."""

import pytest

from oncelog.coordinator.metadata.cluster_model import NO_LEADER, PartitionRegistration
from oncelog.coordinator.metadata.commands import FailReplicas
from oncelog.coordinator.metadata.elections import Election, ElectionRules, settle

from ..metadata_cluster import MetadataCluster, topic_id

FAILED = 2


def candidates(record: PartitionRegistration) -> tuple[tuple[int, ...], ...]:
    return record.isr, record.elr, record.last_known_elr


def report(cluster: MetadataCluster, node: int = FAILED) -> None:
    failed = FailReplicas(node, cluster.epoch(node), ((topic_id("t"), 0),))
    assert cluster.do(failed).error == 0


def damaged_in_the_elr(replicas: tuple[int, ...], *, unclean: bool = False) -> MetadataCluster:
    """Return a partition led by 1 whose eligible replica 2 has reported a damaged log."""
    cluster = MetadataCluster(unclean=unclean)
    cluster.topic("t", replicas)
    cluster.set_isr(1, FAILED)
    cluster.set_isr(1)
    assert candidates(cluster.partition()) == ((1,), (FAILED,), ())
    report(cluster)
    return cluster


def test_failed_replica_is_not_elected_when_the_leader_loses_its_directory() -> None:
    """The log of 2 is already empty. The lost records are lost, but 1 and 3 may have others."""
    cluster = damaged_in_the_elr((1, 2, 3))
    assert candidates(cluster.partition()) == ((1,), (), ())
    cluster.start(1, lost_directory=True)
    assert cluster.partition().leader == 1


def test_failed_replica_is_not_preferred_by_an_unclean_election() -> None:
    cluster = damaged_in_the_elr((1, 3, 2), unclean=True)
    cluster.die(1)
    assert cluster.partition().leader == 3


def test_failed_replica_reported_without_a_leader_is_dropped_by_a_second_report() -> None:
    cluster = MetadataCluster(min_isr=3)
    cluster.topic()
    cluster.die(1, FAILED, 3)
    cluster.register(FAILED)
    report(cluster)
    assert candidates(cluster.partition()) == ((), (1, 3), (FAILED,))
    cluster.start(3)
    assert candidates(cluster.partition()) == ((3,), (1,), (FAILED,))
    report(cluster)
    assert candidates(cluster.partition()) == ((3,), (1,), ())


@pytest.mark.parametrize("election", [Election.ONLINE, Election.UNCLEAN])
@pytest.mark.parametrize(
    ("before", "after"),
    [  # as (leader, ISR, ELR, last known ELR)
        ((1, (1, 2), (), ()), (1, (1,), (), ())),
        ((1, (1,), (2,), ()), (1, (1,), (), ())),
        ((1, (1,), (), (2,)), (1, (1,), (), ())),  # a record of an older release
        ((1, (1,), (), (2, 3)), (1, (1,), (), (3,))),
        ((1, (1,), (3,), (2,)), (1, (1,), (3,), ())),
        ((2, (2, 1), (3,), ()), (1, (1,), (3,), ())),
        ((2, (2,), (1,), (3,)), (1, (1,), (), (3,))),
        ((2, (2,), (), ()), (2, (2,), (), ())),  # no other replica may lead
        ((2, (2,), (), (3,)), (2, (2,), (), (3,))),
    ],
)
def test_report_of_a_failed_log_leaves_the_node_in_a_list_only_as_the_leader(
    before: tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    after: tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...]],
    election: Election,
) -> None:
    leader, isr, elr, last_known_elr = before
    record = PartitionRegistration(
        (1, 2, 3), isr, leader, elr=elr, last_known_elr=last_known_elr
    )  # fmt: skip
    settled = settle(
        record,
        ElectionRules((1, 2, 3), 3, election),
        isr=tuple(node for node in isr if node != FAILED),
        untrusted=FAILED,
        failed=FAILED,
    )
    assert (settled.leader, *candidates(settled)) == after
    assert settled.leader_epoch == (settled.leader != FAILED)


@pytest.mark.parametrize("elr", [(FAILED,), (FAILED, 3), (3,), ()])
def test_report_of_a_failed_log_without_a_leader_keeps_a_candidate(elr: tuple[int, ...]) -> None:
    last_known_elr = () if FAILED in elr else (FAILED,)
    record = PartitionRegistration(
        (1, 2, 3), (), NO_LEADER, elr=elr, last_known_elr=last_known_elr, last_known_leader=1
    )
    rules = ElectionRules((), 3, Election.ONLINE)
    settled = settle(record, rules, untrusted=FAILED, failed=FAILED)
    assert settled.leader == NO_LEADER
    assert FAILED in (*settled.elr, *settled.last_known_elr)
