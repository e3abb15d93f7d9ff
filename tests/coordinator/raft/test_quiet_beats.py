"""Heartbeats of a cluster without work take a short path; nobody can tell it from the long one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.coordinator.raft import messages as m
from oncelog.coordinator.raft.follower import Follower
from oncelog.coordinator.raft.library import LEADER
from oncelog.coordinator.raft.progress import ProgressTracker

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


def without_short_path(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Follower, "is_quiet_beat", lambda *_: False)
    patch.setattr(ProgressTracker, "is_quiet_reply", lambda *_: False)


def seen(alone: Alone) -> dict[str, Any]:
    """All that anybody can know of the group."""
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


def told(messages: list[tuple[int, m.Message, float]], *, leads: bool) -> list[dict[str, Any]]:
    """What is seen of a new node after each of these messages: (peer, message, pause)."""
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
    short = told(messages, leads=leads)
    with pytest.MonkeyPatch.context() as patch:
        without_short_path(patch)
        assert short == told(messages, leads=leads)


@settings(deadline=None)
@given(st.lists(st.tuples(st.just(2), APPENDS, PAUSES_S), max_size=STEPS_MAX))
def test_a_follower_answers_as_without_the_short_path(messages) -> None:
    repeated = [each for message in messages for each in (message, message)]
    compare(repeated, leads=False)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([2, 3]), REPLIES, PAUSES_S), max_size=STEPS_MAX))
def test_a_leader_goes_on_as_without_the_short_path(messages) -> None:
    repeated = [each for message in messages for each in (message, message)]
    compare(repeated, leads=True)


def test_a_heartbeat_that_changes_nothing_is_acknowledged_at_once(
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
    advanced: list[float] = []
    monkeypatch.setattr(alone.group, "advance", advanced.append)
    alone.say(2, m.AppendEntries(term, 1, 1, term, []))
    assert alone.sent == [(2, m.AppendReply(term, True, 2, True))]
    assert advanced == []


def test_a_leader_whose_followers_have_all_does_nothing_but_beat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = Alone()
    alone.answer_census()
    term = alone.become_leader()
    for peer in (2, 3):
        alone.say(peer, m.AppendReply(term, True, 2, True))
    alone.run(0.2)
    assert alone.group.is_leader
    advanced: list[float] = []
    monkeypatch.setattr(alone.group, "advance", advanced.append)
    alone.sent.clear()
    for _ in range(3):
        alone.run(0.15)
        for peer in (2, 3):
            alone.say(peer, m.AppendReply(term, True, 2, True))
    assert advanced == []
    assert len(alone.take(m.AppendEntries, 2)) >= 2
    assert alone.group._core.state == LEADER
    alone.run(3)  # nobody answers any more
    assert alone.group._core.state != LEADER


def test_a_transfer_that_nobody_takes_ends_in_its_time() -> None:
    """What only the group's turn looks at goes on, however quiet its followers are."""
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
