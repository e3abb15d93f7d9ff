"""Elections, and the conditions under which a node may become a candidate or vote.

*Pre-vote* (Raft thesis, 9.6): before its term changes, a node asks whether a majority would vote
for it. A node with recent contact to a leader refuses, so a node with a one-way link or a slow link
deposes no leader. When the link to the leader closes, a node no longer refuses, and its own
election timeout is shortened.

*The voter's memory*: votes and acknowledgements are promises, which are lost with a wiped disk. A
node without this memory asks all other voters for their terms and log ends (a census, with a fresh
nonce). Until **every** other voter has answered, the node neither votes, nor becomes a candidate,
nor counts for a commit. If no voter has any memory, this is a new cluster without promises.
Otherwise the highest term T in the answers is an upper bound. When the voters answered, every
candidate with this node's vote, and every leader with this node's acknowledgement, was in a term <=
T. Therefore the node treats its vote in T as given. The node votes again once its log has reached
the log of a leader of a term >= T, which has all commits. (Answers from a majority would not be
enough: Michael et al., DISC 2017.)

A disk that was restored to an older state has lost promises, too, but the node does not know that.
The leader detects that such a node refuses entries that it has acknowledged in this term, and
informs the node. The node then continues without the voter's memory. (This cannot be detected while
that leader is down.)
"""

import logging

from .context import GroupContext
from .library import LEADER
from .messages import (
    BrokenPromise,
    Census,
    CensusAnswer,
    Message,
    NewerTerm,
    PreVote,
    PreVoteRequest,
    TimeoutNow,
    Vote,
    VoteRequest,
)

logger = logging.getLogger(__name__)


class RaftElection:
    """The elections of one group on one node, with times in monotonic milliseconds."""

    def __init__(self, context: GroupContext) -> None:
        self._node_id = context.node_id
        self._others = context.others
        self._core = context.core
        self._log = context.log
        self._settings = context.settings
        self._random = context.random
        self._post = context.post
        self._majority = context.majority
        self._last_contact_ms = float("-inf")
        self._is_suspected = False  # True after the link to the leader has closed
        self._asked_term = 0
        self._supporters: set[int] = set()
        self._voters: set[int] = set()
        self._nonce = context.random.getrandbits(62)
        self._answers: dict[int, tuple[int, int]] = {}  # peer -> (term, last index)
        self._fence_term: int | None = None  # the highest term in a complete census
        self._first_stand_ms = 0.0  # random for a new cluster, so that one node is first
        self.deadline_ms = 0.0

    def begin(self, now_ms: float, *, head_start: bool) -> None:
        """Start the first election timeout, which is shorter than the usual one.

        head_start: the timeout is below one heartbeat interval. Otherwise it is one to two
        intervals. Without a preferred leader all nodes have the head start.
        """
        spread = self._settings.heartbeat_interval_ms
        self.deadline_ms = now_ms + self._random.random() * spread + (0 if head_start else spread)
        if not self._log.is_voter:
            # The first census may be sent before links are open, and is repeated soon. Otherwise a
            # new cluster with a leader would depend on the disk of a single node for a long time.
            self._first_stand_ms = self.deadline_ms
            self.deadline_ms = min(self.deadline_ms, now_ms + self._settings.census_interval_ms)
            self._take_census(now_ms)

    def on_leader_contact(self, now_ms: float) -> None:
        """Start the election timeout again, because the current leader has sent a message."""
        self._last_contact_ms = now_ms
        self._is_suspected = False
        self._asked_term = 0
        if self._log.is_voter:  # otherwise the deadline is that of the next census
            self._postpone(now_ms)

    def peer_down(self, peer: int, now_ms: float) -> None:
        """Record that the link to a peer has closed and was not reopened."""
        if self._core.leader_id == peer:
            self._is_suspected = True
            delay = self._random.random() * self._settings.suspicion_timeout_max_ms
            self.deadline_ms = min(self.deadline_ms, now_ms + delay)

    def on_deadline(self, now_ms: float) -> None:
        """Ask the voters for pre-votes, because no leader was heard.

        A node that has lost the voter's memory repeats its census instead. This method is never
        called on a leader.
        """
        if not self._log.is_voter:
            self.deadline_ms = now_ms + self._settings.census_interval_ms
            self._take_census(now_ms)
            return
        self._postpone(now_ms)
        if self._is_suspected:
            self.deadline_ms = now_ms + (0.5 + self._random.random()) * (
                self._settings.heartbeat_interval_ms
            )
        self._asked_term = self._core.term + 1
        self._supporters = {self._node_id}
        request = PreVoteRequest(self._asked_term, self._log.last_index, self._log.last_term)
        for peer in self._others:
            self._post(peer, request)
        self._stand_if_supported(now_ms)

    def _stand(self, now_ms: float) -> None:
        if self._log.is_voter:
            self._asked_term = 0
            self._voters = {self._node_id}
            # After split votes a node asks again soon, since a pre-vote comes first and deposes no
            # leader.
            beat_ms = self._settings.heartbeat_interval_ms
            self.deadline_ms = now_ms + beat_ms * (1 + 2 * self._random.random())
            self._core.stand()

    def check_level(self, verified_term: int, verified_index: int) -> None:
        """Become a voter again once the log has all entries that the leader had at the census."""
        leader, term = self._core.leader_id, self._core.term
        if self._log.is_voter or self._fence_term is None or leader is None:
            return
        stated_term, stated_index = self._answers.get(leader, (0, 0))
        if stated_term < term:
            if self._answers.pop(leader, None) is not None:
                self._post(leader, Census(self._nonce))
        elif term == verified_term >= self._fence_term and verified_index >= stated_index:
            if term == self._fence_term:
                self._core.renounce_vote(term)
            self._log.set_voter(True)

    def receive(self, peer: int, message: Message, now_ms: float, *, leads: bool) -> None:
        """Handle a message about elections or the census.

        leads: this node leads and hears from a majority.
        """
        core = self._core
        match message:
            case PreVoteRequest():
                self._on_pre_vote_request(peer, message, now_ms, leads=leads)
            case PreVote():
                self._on_pre_vote(peer, message, now_ms)
            case VoteRequest():
                self._on_vote_request(peer, message, now_ms)
            case Vote():
                self._on_vote(peer, message)
            case NewerTerm():
                if message.term > core.term:
                    core.follow(message.term)
            case TimeoutNow():
                if message.term == core.term and peer == core.leader_id:
                    self._stand(now_ms)
            case BrokenPromise():
                self._on_broken_promise(peer, message, now_ms)
            case Census():
                self._post(peer, CensusAnswer(message.nonce, core.term, self._log.last_index))
            case CensusAnswer():
                self._on_census_answer(peer, message, now_ms)
            case _:  # messages between a leader and its followers are handled by RaftGroup.receive
                pass

    def _on_pre_vote_request(
        self, peer: int, request: PreVoteRequest, now_ms: float, *, leads: bool
    ) -> None:
        """Answer whether this node would vote for the peer."""
        core, log = self._core, self._log
        loyal = leads or (
            core.leader_id is not None
            and not self._is_suspected
            and now_ms - self._last_contact_ms < self._settings.election_timeout_min_ms
        )
        up_to_date = (request.last_term, request.last_index) >= (log.last_term, log.last_index)
        granted = log.is_voter and up_to_date and not loyal and request.term > core.term
        self._post(peer, PreVote(request.term, granted, core.term))

    def _on_pre_vote(self, peer: int, answer: PreVote, now_ms: float) -> None:
        """Count a voter's answer to a pre-vote request.

        A newer term in the answer is adopted, so that the next request can be granted.
        """
        core = self._core
        if core.state == LEADER:
            return
        if answer.current_term > core.term:
            core.follow(answer.current_term)
            self._asked_term = 0
            delay = self._random.random() * self._settings.heartbeat_interval_ms
            self.deadline_ms = min(self.deadline_ms, now_ms + delay)
        elif answer.granted and answer.term == self._asked_term == core.term + 1:
            self._supporters.add(peer)
            self._stand_if_supported(now_ms)

    def _on_vote_request(self, peer: int, request: VoteRequest, now_ms: float) -> None:
        """Let the library decide on the vote, if this node may vote."""
        core = self._core
        if request.term < core.term:
            self._post(peer, NewerTerm(core.term))
        elif self._log.is_voter:
            core.handle(
                peer,
                {
                    "type": "request_vote",
                    "term": request.term,
                    "last_log_index": request.last_index,
                    "last_log_term": request.last_term,
                },
            )
            if self._log.getVotedForNodeId() == peer:
                self._postpone(now_ms)

    def _on_vote(self, peer: int, vote: Vote) -> None:
        """Pass a vote to the library, unless it was counted before.

        The library would count it again.
        """
        if vote.term == self._core.term and peer not in self._voters:
            self._voters.add(peer)
            self._core.handle(peer, {"type": "response_vote", "term": vote.term})

    def _on_broken_promise(self, peer: int, promise: BrokenPromise, now_ms: float) -> None:
        """Stop voting if the log lacks entries that this node has acknowledged to its leader.

        A late message has no effect, because the log has the acknowledged entries by then.
        """
        log, core = self._log, self._core
        if promise.term != core.term or peer != core.leader_id or not log.is_voter:
            return
        if log.last_index >= promise.match_index:
            return
        logger.critical(
            "node %d has acknowledged entries up to %d of Raft group %d, and its log ends at %d: "
            "its disk was restored to an older state, or lost synced data. The node "
            "neither votes nor counts for commits until every other voter has answered it and the "
            "leader has sent it the log. Never restore the raft directory of one node. Move it "
            "aside instead.",
            self._node_id,
            promise.match_index,
            log.group_id,
            log.last_index,
        )
        log.set_voter(False)
        self._nonce = self._random.getrandbits(62)
        self._answers.clear()
        self._fence_term = None
        self._asked_term = 0
        self.deadline_ms = now_ms + self._settings.census_interval_ms
        self._take_census(now_ms)

    def _on_census_answer(self, peer: int, answer: CensusAnswer, now_ms: float) -> None:
        """Store a voter's term and last index. The last answer that is missing ends the census."""
        if answer.nonce == self._nonce and not self._log.is_voter and peer not in self._answers:
            self._answers[peer] = answer.term, answer.last_index
            self._take_census(now_ms)

    def _take_census(self, now_ms: float) -> None:
        missing = [peer for peer in self._others if peer not in self._answers]
        if missing:
            for peer in missing:
                self._post(peer, Census(self._nonce))
        elif self._fence_term is not None:
            return
        elif all(answer == (0, 0) for answer in self._answers.values()):
            self._log.set_voter(True)
            self.deadline_ms = max(now_ms, self._first_stand_ms)
        else:
            self._fence_term = max(term for term, _ in self._answers.values())
            if self._fence_term > self._core.term:
                self._core.follow(self._fence_term)

    def _stand_if_supported(self, now_ms: float) -> None:
        if len(self._supporters) >= self._majority and self._core.state != LEADER:
            self._stand(now_ms)

    def _postpone(self, now_ms: float) -> None:
        low, high = self._settings.election_timeout_min_ms, self._settings.election_timeout_max_ms
        self.deadline_ms = now_ms + low + self._random.random() * (high - low)
