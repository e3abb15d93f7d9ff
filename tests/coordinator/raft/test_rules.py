"""Test single rules of Raft on one node. The test sends the messages of the other nodes.

Violations of these rules need a rare coincidence, so random simulation hardly finds them.
"""

import random
from pathlib import Path

import pytest

from oncelog.coordinator.raft import RaftEngine
from oncelog.coordinator.raft import messages as m
from oncelog.coordinator.raft.library import CANDIDATE, FOLLOWER, LEADER

from ...simulation.raft_simulation import SETTINGS, History, Machine
from ...simulation.virtual_world import NodeExecutor, NodeLoop, NodeWork, VirtualDisk, World


class Alone:
    """Node 1 of a cluster with `size` nodes, without the other nodes.

    The test reads the messages that the node sends, and sends messages of other nodes.
    """

    def __init__(self, size: int = 3, seed: int = 1, disk: VirtualDisk | None = None) -> None:
        self.world = World(seed)
        self.disk = disk or VirtualDisk(random.Random(seed))
        self.loop = NodeLoop(self.world)
        self.executor = NodeExecutor(self.world, self.loop, self.disk)
        self.others = list(range(2, size + 1))
        self.sent: list[tuple[int, m.Message]] = []
        self.fatal: list[BaseException] = []
        self.engine = RaftEngine(
            node_id=1,
            voters=[1, *self.others],
            directory=Path("/nowhere"),
            send=self._send,
            loop=self.loop,  # type: ignore[arg-type]
            executor=self.executor,  # type: ignore[arg-type]
            work=NodeWork(self.world, self.loop),  # type: ignore[arg-type]
            settings=SETTINGS,
            random=random.Random(seed),
            disk=self.disk,
            on_fatal=self.fatal.append,
        )
        self.group = self.engine.add_group(0, Machine(0, History()))
        self.engine.recover()
        self.engine.begin()

    def _send(self, peer: int, frame: bytes) -> bool:
        self.sent += [(peer, message) for _, message in m.decode_frame(frame)]
        return True

    def say(self, peer: int, *messages: m.Message) -> None:
        self.engine.receive(peer, m.encode_frame((0, message) for message in messages))

    def run(self, seconds: float = 0.3) -> None:
        self.world.run(seconds)

    def take(self, kind: type, peer: int | None = None) -> list:
        """Remove and return the sent messages of this type, to all peers or to one."""
        taken = [s for s in self.sent if isinstance(s[1], kind) and peer in (None, s[0])]
        self.sent = [s for s in self.sent if s not in taken]
        return [message for _, message in taken]

    def answer_census(self, term: int = 0, last_index: int = 0) -> None:
        nonce = self.take(m.Census)[0].nonce
        for peer in self.others:
            self.say(peer, m.CensusAnswer(nonce, term, last_index))

    def become_candidate(self) -> int:
        """Grant the node all pre-votes, so that it becomes a candidate. Return the term."""
        self.take(m.PreVoteRequest)
        while not (asked := self.take(m.PreVoteRequest)):
            self.run(0.05)
        for peer in self.others:
            self.say(peer, m.PreVote(asked[-1].term, True, asked[-1].term - 1))
        self.run(0.01)
        assert self.group._core.state == CANDIDATE
        return self.group.term

    def become_leader(self) -> int:
        """Elect the node, and return the term. Its no-op is not acknowledged yet."""
        term = self.become_candidate()
        for peer in self.others:
            self.say(peer, m.Vote(term))
        self.run(0.01)
        assert self.group._core.state == LEADER
        return term

    def crashed(self) -> "Alone":
        """Cut the node's power, and return a new process with the same disk."""
        self.loop.is_alive = False
        self.executor.crash()
        self.disk.crash(power=True)
        return Alone(
            len(self.others) + 1, seed=self.world.random.randrange(1 << 30), disk=self.disk
        )


@pytest.fixture
def alone() -> Alone:
    """Return node 1 of a new cluster, which may vote since all peers have answered its census."""
    alone = Alone()
    alone.answer_census()
    return alone


def test_raft_vote_that_arrives_twice_is_counted_once() -> None:
    """Our engine counts the nodes that have voted, while PySyncObj counts the messages."""
    alone = Alone(size=5)
    alone.answer_census()
    term = alone.become_candidate()
    for _ in range(5):
        alone.say(2, m.Vote(term))
    assert alone.group._core.state == CANDIDATE
    alone.say(3, m.Vote(term))
    assert alone.group._core.state == LEADER


def test_raft_candidate_requests_votes_only_after_its_own_vote_is_synced(alone: Alone) -> None:
    """A crash before the sync would let the node vote for another candidate in the same term."""
    while not (asked := alone.take(m.PreVoteRequest)):
        alone.run(0.05)
    alone.say(2, m.PreVote(asked[0].term, True, 0))
    assert alone.group.term == 1
    assert alone.take(m.VoteRequest) == []
    alone.run(0.3)
    assert len(alone.take(m.VoteRequest)) == 2


def test_raft_voter_after_a_crash_keeps_its_vote_of_the_term(alone: Alone) -> None:
    """The node has voted for node 2, so node 3 must not get a vote in this term."""
    alone.run(0.02)
    request = m.VoteRequest(7, 0, 0)
    alone.say(2, request)
    alone.say(3, request)
    alone.run(0.3)
    assert alone.take(m.Vote, 2) == [m.Vote(7)]
    assert alone.take(m.Vote, 3) == []
    again = alone.crashed()
    again.say(3, request)
    again.run(0.3)
    assert again.take(m.Vote) == []
    assert again.group.term == 7


def test_raft_acknowledgement_is_sent_only_after_the_entries_are_synced(alone: Alone) -> None:
    """Acknowledged entries survive any power cut."""
    alone.run(0.02)
    alone.say(2, m.AppendEntries(1, 0, 0, 0, [(1, b"\x01"), (1, b"\x00x")]))
    assert alone.take(m.AppendReply) == []
    alone.run(0.3)
    assert alone.take(m.AppendReply) == [m.AppendReply(1, True, 3, True)]
    again = alone.crashed()
    assert again.group.status().log_end == 3


def test_raft_entries_of_an_older_term_are_committed_with_an_entry_of_the_current_term(
    alone: Alone,
) -> None:
    """Copies on a majority do not commit an entry of an older term (Raft, figure 8)."""
    alone.run(0.02)
    alone.say(2, m.AppendEntries(1, 0, 0, 0, [(1, b"\x01"), (1, b"\x00old")]))
    alone.run(0.05)
    term = alone.become_leader()
    assert alone.group.status().log_end == 4
    alone.say(3, m.AppendReply(term, True, 3, True))
    alone.run(0.05)
    assert alone.group.commit_index == 0
    assert not alone.group.is_leader
    alone.say(3, m.AppendReply(term, True, 4, True))
    alone.run(0.05)
    assert alone.group.commit_index == 3
    assert alone.group.is_leader


def test_raft_leader_counts_its_own_entry_only_after_the_sync_of_the_entry(alone: Alone) -> None:
    """One follower has acknowledged the entry, but the leader's disk is slow."""
    term = alone.become_leader()
    alone.run(0.3)
    alone.say(2, m.AppendReply(term, True, 2, True))
    assert alone.group.is_leader
    alone.engine._batch = object()  # type: ignore[assignment] - a commit that never ends
    alone.group.propose(b"x", 60_000, lambda result, error: None)
    alone.run(0.05)
    alone.say(2, m.AppendReply(term, True, 3, True))
    assert alone.group.commit_index == 1
    alone.say(3, m.AppendReply(term, True, 3, True))
    assert alone.group.commit_index == 2, "two followers are a majority without the leader"


def test_raft_answers_of_another_term_commit_no_entry(alone: Alone) -> None:
    """An answer of an older term is ignored. One of a newer term ends the leadership."""
    term = alone.become_leader()
    alone.say(2, m.AppendReply(term - 1, True, 2, True))
    alone.run(0.05)
    assert alone.group.commit_index == 0
    alone.say(2, m.AppendReply(term + 3, True, 2, True))
    assert (alone.group._core.state, alone.group.term) == (FOLLOWER, term + 3)


def test_raft_acknowledgement_of_a_wiped_voter_is_not_counted(alone: Alone) -> None:
    """A wiped voter gets entries, but its acknowledgements count for no majority."""
    term = alone.become_leader()
    alone.run(0.3)
    alone.say(2, m.AppendReply(term, True, 2, False))
    alone.run(0.05)
    assert alone.group.commit_index == 0
    alone.say(2, m.AppendReply(term, True, 2, True))
    alone.run(0.05)
    assert alone.group.commit_index == 1


def test_raft_new_node_votes_only_after_every_census_answer() -> None:
    """A new node asks all others for their logs (a census). If all are empty, it may vote."""
    alone = Alone()
    nonce = alone.take(m.Census)[0].nonce
    alone.say(2, m.CensusAnswer(nonce, 0, 0))
    alone.say(3, m.CensusAnswer(nonce + 1, 0, 0))  # meant for an earlier incarnation
    alone.run(2)
    assert not alone.group.status().is_voter
    assert alone.take(m.PreVoteRequest) == []
    alone.say(3, m.CensusAnswer(nonce, 0, 0))
    assert alone.group.status().is_voter


def test_raft_wiped_voter_votes_only_above_the_highest_term_in_its_census() -> None:
    """Before the disk was lost, the voter may have voted in any term that other nodes know."""
    alone = Alone()
    alone.answer_census(term=5, last_index=1)
    assert not alone.group.status().is_voter
    alone.say(3, m.VoteRequest(9, 9, 9))
    alone.run(0.05)
    assert alone.take(m.Vote) == []
    assert alone.group.term == 5
    alone.say(2, m.AppendEntries(5, 0, 0, 0, [(5, b"\x01")]))
    alone.run(0.05)
    assert alone.group.status().is_voter
    alone.say(3, m.VoteRequest(5, 9, 9))
    alone.run(0.05)
    assert alone.take(m.Vote) == []
    alone.say(3, m.VoteRequest(6, 9, 9))
    alone.run(0.05)
    assert alone.take(m.Vote) == [m.Vote(6)]


def test_raft_wiped_voter_has_caught_up_only_after_an_append_sent_after_its_census() -> None:
    """An append that was sent before the disk was lost may arrive late."""
    alone = Alone()
    alone.answer_census(term=5, last_index=3)
    alone.say(2, m.AppendEntries(5, 0, 0, 0, [(5, b"\x01")]))
    alone.run(0.05)
    assert not alone.group.status().is_voter
    assert alone.take(m.AppendReply) == [m.AppendReply(5, True, 2, False)]
    alone.say(2, m.AppendEntries(5, 0, 1, 5, [(5, b"\x00a"), (5, b"\x00b")]))
    alone.run(0.05)
    assert alone.group.status().is_voter


def test_raft_wiped_voter_repeats_the_census_for_a_later_leader() -> None:
    """The later leader had answered the census before it was elected."""
    alone = Alone()
    nonce = alone.sent[0][1].nonce  # type: ignore[union-attr]
    alone.answer_census(term=5, last_index=1)
    alone.say(3, m.AppendEntries(6, 0, 0, 0, [(5, b"\x01"), (6, b"\x01")]))
    alone.run(0.05)
    assert not alone.group.status().is_voter
    assert m.Census(nonce) in alone.take(m.Census, 3)
    alone.say(3, m.CensusAnswer(nonce, 6, 2))
    alone.say(3, m.AppendEntries(6, 0, 2, 6, []))
    assert alone.group.status().is_voter


def test_raft_pre_vote_is_refused_while_the_leader_is_alive(alone: Alone) -> None:
    """A node whose link to the leader has closed grants the pre-vote.

    It refuses a candidate with a shorter log.
    """
    alone.run(0.02)
    beat = m.AppendEntries(1, 0, 0, 0, [(1, b"\x01")])
    alone.say(2, beat)
    alone.say(3, m.PreVoteRequest(2, 1, 1))
    alone.engine.peer_down(2)
    alone.say(3, m.PreVoteRequest(2, 1, 1))
    alone.say(3, m.PreVoteRequest(2, 0, 0))
    granted = [answer.granted for answer in alone.take(m.PreVote, 3)]
    assert granted == [False, True, False]
    alone.say(2, beat)
    alone.say(3, m.PreVoteRequest(2, 1, 1))
    assert alone.take(m.PreVote, 3)[0].granted is False
    assert alone.group.term == 1, "asking changes nobody's term"


def test_raft_deposed_leader_learns_the_newer_term(alone: Alone) -> None:
    """Without an answer the deposed leader would not notice the newer term."""
    alone.run(0.02)
    alone.say(3, m.AppendEntries(4, 0, 0, 0, []))
    for stale in (m.AppendEntries(3, 0, 0, 0, []), m.Commit(3, 1), m.VoteRequest(3, 9, 9)):
        alone.say(2, stale)
        assert alone.take(m.NewerTerm, 2) == [m.NewerTerm(4)]


def test_raft_commit_index_stays_within_the_verified_entries(alone: Alone) -> None:
    """The last entries come from an older leader, and may still be replaced."""
    alone.run(0.02)
    alone.say(2, m.AppendEntries(1, 0, 0, 0, [(1, b"\x01"), (1, b"\x00a"), (1, b"\x00b")]))
    alone.say(3, m.Commit(2, 3))
    assert alone.group.commit_index == 0
    alone.say(3, m.AppendEntries(2, 3, 1, 1, []))
    assert alone.group.commit_index == 1
    alone.say(3, m.AppendEntries(2, 4, 1, 1, [(2, b"\x01")]))
    assert alone.group.commit_index == 2
    assert alone.group.status().log_end == 3


def test_raft_node_with_two_leaders_in_one_term_stops_its_process(alone: Alone) -> None:
    """Raft never has two leaders in a term, so the state of the node is wrong."""
    alone.run(0.02)
    alone.say(2, m.AppendEntries(1, 0, 0, 0, []))
    alone.say(3, m.AppendEntries(1, 0, 0, 0, []))
    assert "two leaders in term 1: 2 and 3" in str(alone.fatal[0])


@pytest.mark.parametrize("repeat", [1, 7])
def test_raft_follower_that_refuses_repeatedly_is_retried_immediately_only_once(
    alone: Alone, repeat: int
) -> None:
    """Only the first refusal is answered at once. The next attempt comes with a heartbeat."""
    term = alone.become_leader()
    alone.take(m.AppendEntries)
    for _ in range(repeat):
        alone.say(2, m.AppendReply(term, False, 1, True))
    assert len(alone.take(m.AppendEntries, 2)) == 1


@pytest.mark.parametrize("at_once", [True, False])
def test_raft_commit_index_is_announced_immediately_or_with_the_heartbeat(
    alone: Alone, at_once: bool
) -> None:
    alone.group.sends_commits_at_once = at_once
    term = alone.become_leader()
    alone.take(m.AppendEntries)
    alone.say(2, m.AppendReply(term, True, 2, True))
    assert alone.group.is_leader and alone.group.commit_index == 1
    announced = {message.commit_index for message in alone.take(m.Commit)}
    assert announced == ({1} if at_once else set())
    alone.take(m.AppendEntries)
    alone.run(2 * SETTINGS.heartbeat_interval_ms / 1_000)
    assert 1 in {message.commit_index for message in alone.take(m.AppendEntries, 3)}
