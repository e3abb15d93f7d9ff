"""Test elections, votes, and disturbances that must not cause an election."""

import copy
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.raft import RaftEngine, RaftSettings

from ...simulation import raft_simulation
from ...simulation.raft_simulation import SETTINGS, Cluster

# no node is handed the lead
STEADY = replace(SETTINGS, preferred_leader_delay_ms=10**9, first_leader_delay_ms=10**9)


def started(seed: int = 1, **options: Any) -> tuple[Cluster, int]:
    return raft_simulation.started(seed, **{"settings": STEADY, **options})


def term(cluster: Cluster, i: int) -> int:
    return cluster.nodes[i].engine.groups[0].term


@pytest.mark.parametrize("size", [1, 3, 4, 5])
def test_raft_election_in_a_new_cluster_takes_under_a_second(size: int) -> None:
    """A leader is elected within 0.8 s."""
    cluster = Cluster(size, size=size)
    assert cluster.run(0.8, cluster.leaders_settled)
    cluster.check_end()


@pytest.mark.parametrize("seed", range(6))
def test_raft_group_of_a_new_cluster_soon_tolerates_the_loss_of_its_leader(seed: int) -> None:
    """Soon after its start, a new cluster has a majority of voters without the leader.

    Found by tests/simulation, seed 54. A new node asks its peers for their logs (a census) before
    it may vote, and repeated this late. Then the leader was wiped, and the group had no leader any
    more. Slow heartbeats must not delay the census.
    """
    slow = replace(
        STEADY,
        heartbeat_interval_ms=900,
        election_timeout_min_ms=3_000,
        election_timeout_max_ms=5_000,
    )
    cluster = Cluster(seed, groups=1, settings=slow)
    # The first vote requests are sent before there are links.
    cluster.network.cut = {(a, b) for a in cluster.ids for b in cluster.ids if a != b}
    cluster.run(0.05)
    cluster.network.cut.clear()
    assert cluster.run(20, cluster.leaders_settled)
    cluster.run(0.3)
    assert all(node.engine.groups[0].status().is_voter for node in cluster.nodes.values())


@pytest.mark.parametrize(
    ("node_id", "voters", "sentence"),
    [
        (1, [1, 2], "two voters have no majority without each other"),
        (1, [1, 2, 3, 4, 5, 6], "1, 3, 4 or 5 voters, not 6"),
        (1, [2, 3, 4], "must be listed exactly once"),
        (1, [1, 1, 2], "must be listed exactly once"),
        (1, [], "must be listed exactly once"),
    ],
)
def test_raft_membership_that_cannot_work_is_refused_with_advice(
    node_id: int, voters: list[int], sentence: str
) -> None:
    """The error is a sentence that says how to correct the membership."""
    with pytest.raises(ValueError, match=sentence):
        RaftEngine(
            node_id=node_id,
            voters=voters,
            directory=Path("/nowhere"),
            send=lambda peer, frame: True,
            loop=None,  # type: ignore[arg-type]
            executor=None,  # type: ignore[arg-type]
            random=random.Random(1),
        )


def test_raft_settings_that_contradict_one_another_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        RaftSettings(heartbeat_interval_ms=0)
    with pytest.raises(ValueError, match="three heartbeat"):
        RaftSettings(heartbeat_interval_ms=300)
    with pytest.raises(ValueError, match="must exceed"):
        RaftSettings(election_timeout_max_ms=600)
    with pytest.raises(ValueError, match="at least two commands"):
        RaftSettings(segment_bytes=1 << 20)


@pytest.mark.parametrize("one_way", [True, False])
def test_raft_follower_after_a_partition_does_not_depose_the_leader(one_way: bool) -> None:
    """With pre-vote, a follower that was cut off raises no term while it asks for votes."""
    cluster, leader = started()
    victim = next(i for i in cluster.ids if i != leader)
    before = term(cluster, leader)
    for i in cluster.ids:
        if i != victim:
            cluster.network.cut.add((i, victim))
            if not one_way:
                cluster.network.cut.add((victim, i))
    cluster.run(10)
    assert cluster.leader(0) == leader
    cluster.network.cut.clear()
    cluster.run(2)
    assert cluster.leader(0) == leader
    assert term(cluster, leader) == term(cluster, victim) == before


def test_raft_leader_in_a_ring_of_nodes_stays_the_leader() -> None:
    """Each node receives only from its neighbours, so some nodes ask in vain for votes."""
    cluster, leader = started(3, size=5)
    before = term(cluster, leader)
    ring = {(a, b) for a in cluster.ids for b in cluster.ids if (a - b) % 5 in (1, 4)}
    cluster.network.cut = {(a, b) for a in cluster.ids for b in cluster.ids if a != b} - ring
    cluster.run(20)
    assert cluster.leader(0) == leader
    assert term(cluster, leader) == before
    command = cluster.submit(leader, 0)
    cluster.run(1)
    assert command in cluster.history.acknowledged


def test_raft_leader_without_answers_of_a_majority_resigns() -> None:
    """The leader's heartbeats still arrive, so no follower becomes a candidate.

    Without the resignation, clients of the leader would wait forever.
    """
    cluster, leader = started()
    resigned: list[int] = []
    cluster.nodes[leader].engine.groups[0].on_resigned(lambda: resigned.append(leader))
    cluster.network.cut |= {(i, leader) for i in cluster.ids if i != leader}
    command = cluster.submit(leader, 0, timeout_ms=60_000)
    cluster.run(3)
    assert resigned == [leader]
    assert command in cluster.history.unknown | cluster.history.acknowledged
    assert cluster.leader(0) not in (None, leader)
    cluster.check_end()


def test_raft_follower_with_a_closed_link_to_its_leader_starts_an_election_sooner() -> None:
    """Without a report of the closed link the follower waits for the election timeout."""
    times = {}
    for hint in (True, False):
        cluster, leader = started(4)
        cluster.run(1)
        node = cluster.nodes.pop(leader)
        node.loop.is_alive = False
        cluster.disks[leader].crash(power=False)
        died = cluster.world.now
        if hint:
            for other in cluster.nodes.values():
                other.engine.peer_down(leader)
        assert cluster.run(5, lambda cluster=cluster: cluster.leader(0) is not None)
        times[hint] = cluster.world.now - died
    assert times[True] < 0.15
    assert times[False] > 0.4


def test_raft_follower_with_a_closed_link_to_a_live_leader_starts_no_election() -> None:
    """The other follower still hears from the leader, so it refuses the pre-vote."""
    cluster, leader = started()
    follower = next(i for i in cluster.ids if i != leader)
    before = term(cluster, leader)
    for _ in range(20):
        cluster.nodes[follower].engine.peer_down(leader)
        cluster.run(0.05)
    assert (cluster.leader(0), term(cluster, leader)) == (leader, before)


def test_raft_leadership_transfer_leaves_no_gap_in_the_log() -> None:
    """The leader sends TimeoutNow only when it knows that the target has all entries."""
    cluster, leader = started()
    for _ in range(50):
        cluster.submit(leader, 0)
    target = next(i for i in cluster.ids if i != leader)
    moved: list[bool] = []
    begin = cluster.world.now
    cluster.nodes[leader].engine.groups[0].begin_transfer(target, moved.append)
    refused = cluster.submit(leader, 0)
    assert cluster.run(1, lambda: cluster.leader(0) == target)
    assert cluster.world.now - begin < 0.1
    assert moved == [True]
    assert refused in cluster.history.refused
    assert len(cluster.history.acknowledged) == 50
    cluster.check_end()


def test_raft_leadership_transfer_to_an_unable_target_keeps_the_leader() -> None:
    """The leader ends the attempt, and accepts commands again."""
    cluster, leader = started()
    target = next(i for i in cluster.ids if i != leader)
    cluster.network.cut |= {(leader, target), (target, leader)}
    command = cluster.submit(leader, 0)
    moved: list[bool] = []
    group = cluster.nodes[leader].engine.groups[0]
    group.begin_transfer(target, moved.append)
    group.begin_transfer(target, moved.append)
    cluster.run(2)
    assert moved == [False, False]
    again = cluster.submit(leader, 0)
    cluster.run(1)
    assert {command, again} <= cluster.history.acknowledged


def test_raft_groups_settle_on_their_preferred_leaders() -> None:
    """The groups have different preferred leaders, which lead again after a restart."""
    cluster = Cluster(2, size=3, groups=6)

    def spread() -> bool:
        return all(cluster.leader(g) == cluster.ids[g % 3] for g in cluster.groups)

    assert cluster.run(15, spread)
    cluster.crash(2)
    assert cluster.run(5, cluster.leaders_settled)
    cluster.start(2)
    assert cluster.run(20, spread)
    cluster.check_end()


def test_raft_group_without_any_entry_is_led_by_its_preferred_leader_immediately() -> None:
    """A later change of the coordinator would cost V1 producers their connections."""
    cluster = Cluster(2, size=3, groups=6)

    def spread() -> bool:
        return all(cluster.leader(g) == cluster.ids[g % 3] for g in cluster.groups)

    assert cluster.run(2.5, spread)  # less than preferred_leader_delay_ms, elections included
    leader = cluster.led_by(1)
    cluster.submit(leader, 1)
    cluster.run(1)
    cluster.crash(2)
    assert cluster.run(5, cluster.leaders_settled)
    cluster.start(2)
    assert not cluster.run(2.5, lambda: cluster.leader(1) == 2)
    assert cluster.run(20, lambda: cluster.leader(1) == 2)
    cluster.check_end()


def test_raft_voter_that_was_wiped_loses_no_committed_entry() -> None:
    """A node that lags and a wiped node must not elect a leader together."""
    cluster, leader = started()
    wiped, lagging = (i for i in cluster.ids if i != leader)
    cluster.isolate(lagging)
    commands = {cluster.submit(leader, 0) for _ in range(5)}
    cluster.run(1)
    assert commands <= cluster.history.acknowledged
    cluster.crash(wiped, wipe=True)
    cluster.crash(leader)
    cluster.network.cut.clear()
    cluster.start(wiped)
    cluster.run(10)
    assert cluster.leader(0) is None, "these two must wait for the third"
    assert not cluster.nodes[wiped].engine.groups[0].status().is_voter
    cluster.start(leader)
    assert cluster.run(10, cluster.all_vote)
    cluster.check_end()


def test_raft_voter_that_was_wiped_counts_for_no_commit_until_its_log_has_caught_up() -> None:
    """If it counted earlier, it and a deposed leader could commit other entries."""
    cluster, leader = started()
    wiped, third = (i for i in cluster.ids if i != leader)
    cluster.crash(wiped, wipe=True)
    cluster.crash(third)  # the census cannot finish without this node
    cluster.start(wiped)
    command = cluster.submit(leader, 0, timeout_ms=60_000)
    cluster.run(3)
    group = cluster.nodes[wiped].engine.groups[0]
    assert not group.status().is_voter
    assert command not in cluster.history.acknowledged
    cluster.start(third)
    assert cluster.run(10, cluster.all_vote)
    cluster.check_end()


def test_raft_voter_that_was_restored_counts_for_no_commit_until_its_log_has_caught_up() -> None:
    """A voter that was restored from an old copy once counted before it had caught up."""
    cluster, leader = started(size=5, settings=replace(STEADY, snapshot_entries=10**6))
    restored, *others = (i for i in cluster.ids if i != leader)
    for _ in range(20):
        cluster.submit(leader, 0)
    cluster.run(1)
    cluster.crash(restored)
    older = copy.deepcopy(cluster.disks[restored]._segments)
    cluster.start(restored)
    cluster.run(2)
    for _ in range(20):
        cluster.submit(leader, 0)
    cluster.run(1)
    cluster.crash(restored)
    cluster.disks[restored]._segments = older
    cluster.crash(others[0])  # its census cannot end
    cluster.start(restored)
    group = cluster.nodes[restored].engine.groups[0]
    assert cluster.run(2, lambda: not group.status().is_voter), "it knows, and its disk does"
    assert cluster.leader(0) == leader
    counted = cluster.nodes[leader].engine.groups[0]._core
    assert cluster.run(2, lambda: group.applied_index >= 40), "it is sent the log"
    assert counted.match_index(restored) == 0
    cluster.crash(others[1])
    command = cluster.submit(leader, 0, timeout_ms=60_000)
    cluster.run(0.4)
    assert command not in cluster.history.acknowledged, "two of five are no majority"
    cluster.crash(restored)
    cluster.start(restored)
    assert not cluster.nodes[restored].engine.groups[0].status().is_voter
    cluster.start(others[0])
    cluster.start(others[1])
    assert cluster.run(10, cluster.all_vote)
    cluster.check_end()


def test_raft_leader_acknowledged_only_by_nonvoters_resigns() -> None:
    """A follower without a vote answers, but counts for no majority."""
    cluster, leader = started()
    wiped, third = (i for i in cluster.ids if i != leader)
    cluster.crash(wiped, wipe=True)
    cluster.crash(third)
    cluster.start(wiped)
    assert cluster.run(5, lambda: cluster.leader(0) is None)
    cluster.start(third)
    assert cluster.run(10, lambda: cluster.all_vote() and cluster.leader(0) is not None)
    cluster.check_end()
