"""Test that heartbeats without news take a short path with the same results."""

import itertools
from functools import partial
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.coordinator.raft import messages as m
from oncelog.coordinator.raft.follower import Follower
from oncelog.coordinator.raft.group import RaftGroup
from oncelog.coordinator.raft.library import LEADER
from oncelog.coordinator.raft.progress import ProgressTracker
from oncelog.coordinator.raft.wal.records import RaftSnapshot, encode_snapshot

from ...simulation.raft_simulation import Cluster
from .test_rules import Alone

STEPS_MAX = 12
TERMS, INDEXES = st.integers(1, 3), st.integers(0, 4)
APPENDS = st.builds(
    m.AppendEntries,
    TERMS,
    INDEXES,
    INDEXES,
    st.integers(0, 2),
    st.lists(st.tuples(st.integers(1, 2), st.just(b"\0x")), max_size=2),
)
REPLIES = st.builds(m.AppendReply, st.integers(1, 2), st.booleans(), INDEXES, st.booleans())
PAUSES_S = st.sampled_from([0.0, 0.01, 0.15])


def turns_from_now(alone: Alone, patch: pytest.MonkeyPatch) -> list[float]:
    """Replace `advance` by a function that adds the time of its call to the returned list."""
    advanced: list[float] = []
    patch.setattr(alone.group, "advance", advanced.append)
    return advanced


def without_short_path(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Follower, "take_quietly", lambda *_: False)
    patch.setattr(ProgressTracker, "take_quietly", lambda *_: False)
    patch.setattr(ProgressTracker, "is_idle", lambda *_: False)
    heartbeat = RaftGroup.heartbeat
    patch.setattr(RaftGroup, "heartbeat", lambda *now: heartbeat(*now) or True)


def seen(alone: Alone) -> dict[str, Any]:
    """Return the observable state of the group and its sent messages."""
    group: Any = alone.group
    core, log, election = group._core, group._log, group._election
    peers = group._tracker.by_peer
    return {
        "sent": alone.sent,
        "fatal": [type(error) for error in alone.fatal],
        "core": (core.term, core.state, core.leader_id, core.commit_index),
        "log": (log.last_index, log.durable_index, group.applied_index, group.is_leader),
        "election": (election.deadline_ms, election._last_contact_ms),
        "verified": group._follower.verified,
        "followers": {
            peer: (core.match_index(peer), each.next_index, each.state, each.last_contact_ms)
            for peer, each in peers.items()
        },
    }


def states_after(
    messages: list[tuple[int, m.Message, float]], *, leads: bool
) -> list[dict[str, Any]]:
    """Return the observable states of a new node, one after each (peer, message, pause)."""
    alone = Alone()
    alone.answer_census()
    if leads:
        alone.become_leader()
    found: list[dict[str, Any]] = []
    for peer, message, pause_s in messages:
        alone.say(peer, message)
        alone.run(pause_s)
        found.append(seen(alone))
        alone.sent.clear()
    return found


def compare(messages: list[tuple[int, m.Message, float]], *, leads: bool) -> None:
    short = states_after(messages, leads=leads)
    with pytest.MonkeyPatch.context() as patch:
        without_short_path(patch)
        assert short == states_after(messages, leads=leads)


@settings(deadline=None)
@given(st.lists(st.tuples(st.just(2), APPENDS, PAUSES_S), max_size=STEPS_MAX))
def test_raft_follower_with_the_short_path_for_unchanged_heartbeats_answers_as_without_it(
    messages,
) -> None:
    repeated = [each for message in messages for each in (message, message)]
    compare(repeated, leads=False)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([2, 3]), REPLIES, PAUSES_S), max_size=STEPS_MAX))
def test_raft_leader_with_the_short_path_for_unchanged_heartbeats_behaves_as_without_it(
    messages,
) -> None:
    repeated = [each for message in messages for each in (message, message)]
    compare(repeated, leads=True)


def test_raft_heartbeat_without_a_change_is_acknowledged_immediately(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = Alone()
    alone.answer_census()
    term = 5
    alone.say(2, m.AppendEntries(term, 0, 0, 0, [(term, b"\0x")]))
    alone.run(0.1)
    alone.say(2, m.AppendEntries(term, 1, 1, term, []))
    alone.run(0.1)
    assert alone.group.applied_index == 1
    alone.sent.clear()
    advanced = turns_from_now(alone, monkeypatch)
    alone.say(2, m.AppendEntries(term, 1, 1, term, []))
    assert alone.sent == [(2, m.AppendReply(term, True, 2, True))]
    assert advanced == []


def test_raft_leader_of_current_followers_only_sends_heartbeats_until_they_are_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = Alone()
    alone.answer_census()
    term = alone.become_leader()
    for peer in (2, 3):
        alone.say(peer, m.AppendReply(term, True, 2, True))
    alone.run(0.2)
    assert alone.group.is_leader
    advanced = turns_from_now(alone, monkeypatch)
    alone.sent.clear()
    for _ in range(3):
        alone.run(0.15)
        for peer in (2, 3):
            alone.say(peer, m.AppendReply(term, True, 2, True))
    assert advanced == []
    assert len(alone.take(m.AppendEntries, 2)) >= 2
    assert alone.group._core.state == LEADER
    alone.run(3)  # no follower answers any more
    assert alone.group._core.state != LEADER


def test_raft_acknowledgement_of_an_already_applied_entry_causes_no_further_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The acknowledgement changes nothing, since the entry is already committed and applied."""
    alone = Alone()
    alone.answer_census()
    term = alone.become_leader()
    for peer in (2, 3):
        alone.say(peer, m.AppendReply(term, True, 2, True))
    alone.run(0.1)
    outcomes: list[Any] = []
    alone.group.propose(b"x", 1_000, lambda result, error: outcomes.append(error))
    alone.run(0.05)
    alone.say(2, m.AppendReply(term, True, 3, True))
    alone.run(0.01)
    assert outcomes == [None]
    advanced = turns_from_now(alone, monkeypatch)
    alone.say(3, m.AppendReply(term, True, 3, True))
    alone.run(0.01)
    assert advanced == []
    assert alone.group.status().voters[-1].log_end == 3


def test_raft_leadership_transfer_without_an_answer_times_out() -> None:
    """A timer that only `advance` checks must expire while heartbeats take the short path."""
    alone = Alone()
    alone.answer_census()
    term = alone.become_leader()
    for peer in (2, 3):
        alone.say(peer, m.AppendReply(term, True, 2, True))
    alone.run(0.1)
    moved: list[bool] = []
    alone.group.begin_transfer(2, moved.append)
    for _ in range(10):
        alone.run(0.15)
        for peer in (2, 3):
            alone.say(peer, m.AppendReply(term, True, 2, True))
    assert moved == [False]
    assert len(alone.take(m.TimeoutNow)) == 1


def delay_publishing(node: Any, world: Any, seconds: float) -> None:
    """Delay the publishing of a snapshot, which is the second disk job of its restore."""
    run_blocking, jobs = node.engine.jobs.run_blocking, itertools.count(1)

    def run(job: Any, done: Any) -> None:
        if next(jobs) >= 2:
            node.loop.call_at(world.now + seconds, run_blocking, job, done)
        else:
            run_blocking(job, done)

    node.engine.jobs.run_blocking = run


def test_raft_entries_committed_during_a_snapshot_restore_are_applied() -> None:
    """The heartbeats after the snapshot tell the follower nothing new."""
    alone, term = Alone(), 5
    group: Any = alone.group
    alone.answer_census()
    entries = [(term, b"\0%d" % number) for number in range(5)]
    alone.say(2, m.AppendEntries(term, 1, 0, 0, entries))
    alone.run(0.3)
    delay_publishing(alone, alone.world, 0.5)
    content = msgpack.packb([3, [b"%d" % number for number in range(3)]])
    data = encode_snapshot(0, RaftSnapshot(3, term, content))
    alone.say(2, m.SnapshotChunk(term, 3, term, 0, len(data), data))
    alone.run(0.35)
    alone.say(2, m.Commit(term, 5))
    alone.run(0.5)
    for _ in range(10):
        alone.say(2, m.AppendEntries(term, 5, 5, term, []))
        alone.run(0.15)
    assert (group.commit_index, group.applied_index) == (5, 5)


def has_leader(cluster: Cluster) -> bool:
    return cluster.leader(0) is not None


def elected_while_it_restores(cluster: Cluster) -> bool:
    """Return whether a follower was elected while it restored a snapshot.

    The leader's whole log becomes a snapshot, which is sent to a follower. The leader dies, and
    returns before the follower publishes the snapshot.
    """
    cluster.run(8, partial(has_leader, cluster))
    for _ in range(6):
        cluster.submit(cluster.leader(0) or 1, 0)
    cluster.run(1)
    leader = cluster.leader(0)
    if leader is None:
        return False
    restoring, _ = (node for node in cluster.ids if node != leader)
    groups: dict[int, Any] = {n: cluster.nodes[n].engine.groups[0] for n in cluster.ids}
    cluster.submit(leader, 0)
    last_index = groups[leader]._log.last_index
    cluster.run(0.05, lambda: groups[restoring]._log.last_index == last_index)
    cluster.network.cut |= {(leader, restoring), (restoring, leader)}
    cluster.run(0.1)
    groups[leader]._applier.make_snapshot(retain=False)
    cluster.run(0.1)
    delay_publishing(cluster.nodes[restoring], cluster.world, 3.0)
    cluster.network.cut.clear()
    cluster.nodes[leader].engine.peer_up(restoring)
    cluster.run(0.3, lambda: groups[restoring]._applier._is_restoring)
    if not groups[restoring]._applier._is_restoring:
        return False
    cluster.crash(leader)
    cluster.run(2.0, lambda: any(groups[n].leads for n in cluster.ids if n != leader))
    is_elected = groups[restoring].leads
    cluster.start(leader)
    cluster.run(3.5)
    return is_elected


def test_raft_node_elected_during_a_snapshot_restore_serves() -> None:
    """The followers have all its entries, so their answers change nothing."""
    elected = 0
    for seed in range(40):
        cluster = Cluster(seed, groups=1)
        elected += elected_while_it_restores(cluster)
        assert cluster.run(20, partial(has_leader, cluster)), cluster.describe()
        if elected == 3:
            return
    pytest.fail("no seed has led there")
