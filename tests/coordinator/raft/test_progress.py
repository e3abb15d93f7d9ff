"""Test the messages that a leader sends to one follower."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.coordinator.raft.messages import KINDS, AppendEntries, AppendReply
from oncelog.coordinator.raft.progress import ProgressState, ProgressTracker
from oncelog.coordinator.raft.settings import RaftSettings
from oncelog.coordinator.raft.wal.group_log import GroupLog
from oncelog.coordinator.raft.wal.records import NO_STATE

COMMAND = bytes(200)
ENTRIES = 12_000


def _leader_of(entries: int) -> tuple[ProgressTracker, list[AppendEntries]]:
    """Return a leader with `entries` entries, and the messages sent to its empty follower 2."""
    journal: Any = SimpleNamespace(append_entry=lambda *_: None)
    recovered: Any = SimpleNamespace(state=NO_STATE._replace(term=1, is_voter=True), log=lambda: [])
    log = GroupLog(1, journal, recovered)
    for index in range(1, entries + 1):
        log.add(COMMAND, index, 1)
    sent: list[AppendEntries] = []
    context: Any = SimpleNamespace(
        others=(2,),
        majority=2,
        core=SimpleNamespace(term=1, commit_index=0, no_op_index=1, handle=lambda *_: None),
        log=log,
        settings=RaftSettings(),
        post=lambda peer, message: sent.append(message),
    )
    tracker = ProgressTracker(context, lambda loaded: None)
    tracker.begin(0)
    return tracker, sent


def test_raft_follower_that_lags_is_sent_all_entries_a_window_at_a_time() -> None:
    tracker, sent = _leader_of(ENTRIES)
    last_index = 0
    while last_index < ENTRIES:
        sent.clear()
        tracker.pump(sends_commits=False)
        entries = sum(len(append.entries) for append in sent)
        assert 0 < entries * len(COMMAND) <= (512 + 64) << 10
        last_index += entries
        tracker.on_reply(2, AppendReply(1, True, last_index + 1, True), 0)
    assert last_index == ENTRIES


def test_raft_message_numbers_never_change() -> None:
    assert " ".join(cls.__name__ for cls in KINDS.values()) == (
        "AppendEntries AppendReply Commit VoteRequest Vote PreVoteRequest PreVote TimeoutNow"
        " NewerTerm SnapshotChunk SnapshotReply Census CensusAnswer BrokenPromise"
    )


P = ProgressState
EVENTS: dict[str, Callable[[ProgressTracker], object]] = {
    "acknowledged": lambda tracker: tracker.on_reply(2, AppendReply(1, True, 5, True), 0),
    "refused": lambda tracker: tracker.on_reply(2, AppendReply(1, False, 3, True), 0),
    "link lost": lambda tracker: tracker.lost(2),
    "link found": lambda tracker: tracker.found(2),
    "heartbeat": lambda tracker: tracker.heartbeat(),
}
# The state after each event. A probe is sent at once if there is something to send.
STATE_AFTER = {
    P.PROBE: (P.REPLICATE, P.PROBE_SENT, P.PROBE_SENT, P.PROBE, P.PROBE_SENT),
    P.PROBE_SENT: (P.REPLICATE, P.PROBE_SENT, P.PROBE_SENT, P.PROBE, P.PROBE_SENT),
    P.REPLICATE: (P.REPLICATE, P.PROBE_SENT, P.PROBE_SENT, P.PROBE, P.REPLICATE),
    P.SNAPSHOT: (P.SNAPSHOT, P.SNAPSHOT, P.SNAPSHOT, P.SNAPSHOT, P.SNAPSHOT),
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", P)
def test_raft_follower_progress_has_the_expected_state_after_each_event(
    state: ProgressState, event: str
) -> None:
    tracker, _ = _leader_of(entries=9)
    progress = tracker.by_peer[2]
    if state is P.SNAPSHOT:
        progress.begin_snapshot().index = 8
    elif state is not P.REPLICATE:
        progress.probe(1, paused=state is P.PROBE_SENT)
    EVENTS[event](tracker)
    assert progress.state is STATE_AFTER[state][list(EVENTS).index(event)]


@pytest.mark.parametrize("next_index", [9, 10])
def test_raft_snapshot_that_is_acknowledged_is_followed_by_entries(next_index: int) -> None:
    tracker, _ = _leader_of(entries=9)
    tracker.by_peer[2].begin_snapshot().index = 8
    tracker.on_reply(2, AppendReply(1, True, next_index, True), 0)
    assert tracker.by_peer[2].state is P.REPLICATE and tracker.by_peer[2].transfer is None


def test_raft_follower_is_probed_above_its_match_index_if_the_leader_cannot_read_the_snapshot() -> (
    None
):
    tracker, _ = _leader_of(entries=9)
    progress = tracker.by_peer[2]
    tracker.on_reply(2, AppendReply(1, True, 5, True), 0)
    progress.begin_snapshot()
    progress.end_snapshot()  # the file could not be read
    tracker.heartbeat()
    assert progress.next_index > progress.match_index == 4
