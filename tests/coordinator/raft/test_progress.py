"""What a leader sends to one follower before it is answered."""

from types import SimpleNamespace
from typing import Any

from oncelog.coordinator.raft.messages import Append, AppendReply
from oncelog.coordinator.raft.progress import ProgressTracker
from oncelog.coordinator.raft.settings import RaftSettings
from oncelog.coordinator.raft.wal.group_log import GroupLog

COMMAND = bytes(200)
ENTRIES = 12_000


def test_a_follower_that_lags_is_sent_a_window_at_a_time_and_all_of_it_in_the_end() -> None:
    journal: Any = SimpleNamespace(append_entry=lambda *_: None)
    state = SimpleNamespace(base_index=0, base_term=0, term=1, voted_for=-1, is_voter=True)
    recovered: Any = SimpleNamespace(state=state, log=lambda: [])
    log = GroupLog(1, journal, recovered)
    for index in range(1, ENTRIES + 1):
        log.add(COMMAND, index, 1)
    sent: list[Append] = []
    context: Any = SimpleNamespace(
        others=(2,),
        core=SimpleNamespace(term=1, commit_index=0, no_op_index=1, handle=lambda *_: None),
        log=log,
        settings=RaftSettings(),
        post=lambda peer, message: sent.append(message),
    )
    tracker = ProgressTracker(context, lambda loaded: None)
    tracker.begin(0)
    last_index = 0
    while last_index < ENTRIES:
        sent.clear()
        tracker.pump(tells_commits=False)
        entries = sum(len(append.entries) for append in sent)
        assert 0 < entries * len(COMMAND) <= (512 + 64) << 10
        last_index += entries
        tracker.on_reply(2, AppendReply(1, True, last_index + 1, True), 0)
    assert last_index == ENTRIES
