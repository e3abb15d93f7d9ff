"""One Raft group on this node, which submits, commits, and applies commands, with snapshots.

`RaftElection` decides about leaders, `Follower` about accepted messages, `ProgressTracker` about
messages to followers, and the library about terms and votes. This file combines these parts and is
the interface for the rest of the broker. Nothing here blocks.
"""

import logging
from collections.abc import Callable
from typing import Any

from ...runtime.c_calls import attribute_of
from ...runtime.sliced_work import Steps
from . import messages
from .applier import Applier, StateMachine
from .context import GroupContext, GroupListeners, RaftHost
from .election import RaftElection
from .follower import Follower, SnapshotId
from .library import COMMAND, LEADER, LibraryMessage, RaftCore
from .messages import Message
from .outcomes import BrokenInvariant, DefinitelyNot
from .preference import Preference, Transfer
from .progress import ProgressTracker
from .proposals import OnDone, Proposals, as_future
from .status import RaftStatus, describe
from .wal.group_log import GroupLog
from .wal.recovery import RecoveredGroup


class RaftGroup:
    """A replicated state machine, created by `RaftEngine.add_group` and active after its start."""

    def __init__(self, engine: RaftHost, group_id: int, machine: StateMachine) -> None:
        self._engine = engine
        self._settings = engine.settings
        self._logger = logging.getLogger(f"{__name__}.{engine.node_id}.{group_id}")
        self._applier = Applier(engine, group_id, machine, self._logger)
        self._proposals = Proposals(self._logger, engine.after_turn)
        self._transfer = Transfer()
        self._preference = Preference(engine.settings, engine.now_ms)
        self._listeners = GroupListeners(self._logger)
        self._led_term = 0  # the term in which this node leads, ready to serve or not
        self._is_serving = False
        self._is_stopped = True
        self.group_id = group_id
        self.preferred_leader: int | None = None
        # False where followers need not know commits immediately, because their state is not read.
        self.sends_commits_at_once = True

    # ---- the broker's interface

    @property
    def is_leader(self) -> bool:
        """Return whether this node leads, and has applied all entries of earlier terms."""
        return self._is_serving

    @property
    def term(self) -> int:
        return 0 if self._is_stopped else self._core.term

    @property
    def leader_id(self) -> int | None:
        """Return the leader of the current term, or None if it is not known."""
        return None if self._is_stopped else self._core.leader_id

    applied_index: int = attribute_of("_applier.applied_index")

    @property
    def commit_index(self) -> int:
        return 0 if self._is_stopped else self._core.commit_index

    def on_elected(self, callback: Callable[[int], None]) -> None:
        """Register a callback that gets the term whenever this node has become the leader."""
        self._listeners.elected.append(callback)

    def on_resigned(self, callback: Callable[[], None]) -> None:
        """Register a callback for each time this node stops being the leader."""
        self._listeners.resigned.append(callback)

    def on_applied(self, callback: Callable[[int], None]) -> None:
        """Register a callback that gets the index of the last applied command."""
        self._listeners.applied.append(callback)

    async def submit(self, command: bytes, *, timeout_ms: float = 5_000) -> Any:
        """Replicate a command and return the result of `apply` on this node.

        Raises DefinitelyNot or OutcomeUnknown, at the latest after `timeout_ms` and a heartbeat
        interval. See outcomes.py.
        """
        future, on_done = as_future()
        self.propose(command, timeout_ms, on_done)
        try:
            return await future
        finally:
            # An exception in the future would refer to this frame, a reference cycle.
            del future, on_done

    def propose(self, command: bytes, timeout_ms: float, on_done: OnDone) -> None:
        """Submit a command with a callback that gets (result, None) or (None, exception)."""
        if (reason := self._refusal(command)) is not None:
            on_done(None, DefinitelyNot(reason))
            return
        self._engine.fault_point("raft.propose.before")
        index, term = self._log.last_index + 1, self._core.term
        self._log.add(COMMAND + command, index, term)
        deadline_ms = self._engine.now_ms() + timeout_ms
        self._proposals.add(index, term, deadline_ms, on_done)
        self._engine.fault_point("raft.propose.after")
        self._engine.touch(self)

    async def transfer_leadership(self, to: int) -> bool:
        """Transfer the leadership to a voter.

        Return whether this node has stepped down for the voter. Commands are refused until the
        transfer ends.
        """
        future, on_done = as_future()
        self.begin_transfer(to, lambda moved: on_done(moved, None))
        return await future

    def begin_transfer(self, to: int, on_done: Callable[[bool], None]) -> None:
        """Transfer the leadership to a voter. `on_done` gets whether this node has stepped down."""
        if not self._is_serving or to not in self._tracker.by_peer or self._transfer.to is not None:
            on_done(False)
            return
        deadline_ms = self._engine.now_ms() + self._settings.transfer_timeout_ms
        self._transfer.begin(to, deadline_ms, on_done)
        self._engine.touch(self)

    def status(self) -> RaftStatus:
        """Return the group's status. Only the leader knows the followers' progress."""
        if self._is_stopped:
            return RaftStatus(None, 0, 0, 0, 0, 0, False, [])
        return describe(self._context, self._tracker, self.applied_index, self._engine.now_ms())

    # ---- the engine's interface

    def recover(self, recovered: RecoveredGroup) -> None:
        """Load snapshot and log from disk (blocking), or raise CorruptJournal."""
        self._log = GroupLog(self.group_id, self._engine.journal, recovered)
        self._applier.recover(self._log)

    def load_steps(self) -> Steps[None]:
        """Load the recovered snapshot, or raise UnloadableSnapshot."""
        return self._applier.load_steps()

    def begin(self, now_ms: float) -> None:
        """Take part in elections from now on."""
        engine, log = self._engine, self._log
        self._core = core = RaftCore(engine.node_id, engine.others, log, self._on_library_message)
        core.commit_index = self.applied_index
        self._context = context = GroupContext(
            group_id=self.group_id,
            node_id=engine.node_id,
            others=engine.others,
            core=core,
            log=log,
            settings=self._settings,
            random=engine.random,
            post=self._post,
            post_durable=self._post_durable,
        )
        self._election = RaftElection(context)
        self._follower = Follower(context, self._install_snapshot)
        self._tracker = ProgressTracker(context, self._applier.read_snapshot)
        self._is_stopped = False
        self._election.begin(now_ms, head_start=self.preferred_leader in (None, engine.node_id))
        engine.touch(self)

    def receive(self, peer: int, message: Message, now_ms: float) -> bool:
        """Handle one message of this group. Return whether `advance` may have work to do."""
        core = self._core
        leads = core.state == LEADER and core.term == self._led_term
        if self._is_settled:
            if isinstance(message, messages.AppendEntries):
                if self._follower.take_quietly(peer, message):
                    self._election.on_leader_contact(now_ms)
                    return False
            elif leads and self._tracker.take_quietly(peer, message, now_ms):
                return False
        match message:
            case messages.AppendEntries() | messages.Commit() | messages.SnapshotChunk():
                self._on_leader_message(peer, message, now_ms)
            case messages.AppendReply() | messages.SnapshotReply():
                if message.term > core.term:
                    core.follow(message.term)
                elif message.term == core.term and leads:
                    if isinstance(message, messages.AppendReply):
                        self._tracker.on_reply(peer, message, now_ms)
                        is_ready = self._is_settled and self._transfer.to is None
                        if is_ready and self._tracker.is_idle(peer, self.sends_commits_at_once):
                            return False
                    else:
                        self._tracker.on_snapshot_reply(peer, message, now_ms)
            case _:
                has_quorum = self._has_quorum(now_ms)
                self._election.receive(peer, message, now_ms, leads=has_quorum)
        if not self._log.is_voter:
            self._election.check_level(*self._follower.verified)
        return True

    def advance(self, now_ms: float) -> None:
        """Execute pending work, which is to become leader or resign, commit, apply, and send."""
        core = self._core
        if self._led_term and self._is_deposed:
            self._resign()
        if core.state == LEADER:
            if not self._led_term:
                self._led_term = core.term
                self._tracker.begin(now_ms)
            self._advance_commit()
        self._apply_committed()
        if core.state == LEADER:
            if not self._is_serving and self.applied_index >= core.no_op_index:
                self._is_serving = True
                self._listeners.call(self._listeners.elected, core.term)
            self._tracker.pump(sends_commits=self.sends_commits_at_once)
            target = self._transfer.to
            has_log = target is not None and core.match_index(target) == self._log.last_index
            # For the submitters on this node.
            has_log = has_log and self.applied_index == self._log.last_index
            if self._transfer.is_due(has_log, now_ms) and target is not None:
                self._post(target, messages.TimeoutNow(core.term))

    @property
    def _is_settled(self) -> bool:
        """Return whether all committed entries are applied, and this node is not about to lead."""
        is_applied = self.applied_index == self._core.commit_index
        return is_applied and (self._is_serving or self._core.state != LEADER)

    def heartbeat(self, now_ms: float) -> bool:
        """Send heartbeats as the leader, and end commands whose timeout has passed.

        Return whether `advance` has work to do.
        """
        is_quiet = False
        if self._core.state == LEADER:
            if not self._has_quorum(now_ms):
                self._core.follow(self._core.term)
            elif self._led_term:
                is_quiet = self._tracker.heartbeat()
                self._prefer_leader(now_ms)
        self._proposals.expire(now_ms)
        return not (is_quiet and self._is_settled) or self._transfer.to is not None

    def on_deadline(self, now_ms: float) -> None:
        """Handle the end of the election timeout. A leader has no election timeout."""
        self._election.on_deadline(now_ms)

    @property
    def deadline_ms(self) -> float:
        """Return the time of the next `on_deadline`."""
        return self._election.deadline_ms

    @property
    def leads(self) -> bool:
        return self._core.state == LEADER

    def durable(self, last_index: int) -> None:
        """Record that this node has written the entries up to this index to disk."""
        log = self._log
        log.durable_index = max(log.durable_index, min(last_index, log.last_index))

    def peer_up(self, peer: int) -> None:
        if self._core.state == LEADER:
            self._tracker.found(peer)

    def peer_down(self, peer: int, now_ms: float) -> None:
        """Record that the link to a peer has closed and was not reopened immediately."""
        self._election.peer_down(peer, now_ms)
        self.lost(peer)

    def lost(self, peer: int) -> None:
        """Record that a frame to the peer could not be sent."""
        if self._core.state == LEADER:
            self._tracker.lost(peer)

    def stop(self) -> None:
        """End all pending commands with OutcomeUnknown. The group is inactive afterwards."""
        if not self._is_stopped:
            self._resign()
            self._is_stopped = True

    def release_segment(self) -> None:
        """Let the journal's oldest segment be deleted (see `Applier.release_segment`)."""
        self._applier.release_segment()

    # ---- inside

    def _refusal(self, command: bytes) -> str | None:
        if self._is_stopped:
            return "the group is not running"
        if not self._is_serving or self._is_deposed:
            return f"node {self._engine.node_id} does not lead; the leader is {self.leader_id}"
        if self._transfer.to is not None:
            return f"leadership is being handed to node {self._transfer.to}"
        if len(command) > (limit := self._settings.command_bytes_max):
            return f"a command of {len(command)} bytes exceeds {limit}: split it"
        if len(self._proposals) >= self._settings.pending_commands_max:
            return "too many commands are waiting"
        return None

    @property
    def _is_deposed(self) -> bool:
        """Return whether the term in which this node led has ended. `advance` then resigns."""
        return self._core.state != LEADER or self._core.term != self._led_term

    def _post(self, peer: int, message: Message) -> None:
        self._engine.post(peer, self, message, durable=False)

    def _post_durable(self, peer: int, message: Message) -> None:
        self._engine.post(peer, self, message, durable=True)

    def _on_library_message(self, peer: int, message: LibraryMessage) -> None:
        match message["type"]:
            case "request_vote":
                request = (message["term"], message["last_log_index"], message["last_log_term"])
                self._post_durable(peer, messages.VoteRequest(*request))
            case "response_vote":
                self._post_durable(peer, messages.Vote(message["term"]))
            case "next_node_idx" if message["success"]:
                self._follower.acknowledge(peer)
            case kind:
                raise BrokenInvariant(f"the library wants to send {kind}")

    def _on_leader_message(
        self,
        peer: int,
        message: messages.AppendEntries | messages.Commit | messages.SnapshotChunk,
        now_ms: float,
    ) -> None:
        core, follower = self._core, self._follower
        if message.term < core.term:
            self._post(peer, messages.NewerTerm(core.term))
            return
        if message.term == core.term and core.leader_id not in (None, peer):
            raise BrokenInvariant(f"two leaders in term {core.term}: {core.leader_id} and {peer}")
        if isinstance(message, messages.AppendEntries):
            follower.on_append(peer, message)
        elif isinstance(message, messages.Commit):
            follower.on_commit(peer, message)
        else:
            follower.on_chunk(peer, message)
        self._election.on_leader_contact(now_ms)

    def _has_quorum(self, now_ms: float) -> bool:
        if self._core.state != LEADER or not self._led_term:
            return self._core.state == LEADER
        since = now_ms - self._settings.election_timeout_max_ms
        return self._tracker.has_quorum_since(since, self._engine.majority)

    def _advance_commit(self) -> None:
        core, index = self._core, self._tracker.majority_index(self._engine.majority)
        if index > core.commit_index and self._log.term_at(index) == core.term:
            core.commit_index = index

    def _apply_committed(self) -> None:
        first, commit_index = self.applied_index + 1, self._core.commit_index
        if first > commit_index or not self._applier.may_apply:
            return
        last = min(commit_index, first + self._settings.apply_batch_max - 1)

        def applied() -> None:
            self._listeners.call(self._listeners.applied, last)
            if last < self._core.commit_index or not in_this_turn:
                self._engine.touch(self)
            self._applier.snapshot_if_due()

        in_this_turn = True
        self._applier.apply_up_to(last, self._proposals.applied, applied)
        in_this_turn = False

    def _install_snapshot(
        self, wanted: SnapshotId, chunks: list[bytes], done: Callable[[bool], None]
    ) -> None:
        def installed(loaded: bool) -> None:
            self._engine.touch(self)  # entries committed in the meantime are applied next
            if self.applied_index > self._core.commit_index:
                self._core.commit_index = self.applied_index
                self._listeners.call(self._listeners.applied, self.applied_index)
            done(loaded)

        self._applier.install(wanted, chunks, installed)

    def _resign(self) -> None:
        was_serving, self._is_serving, self._led_term = self._is_serving, False, 0
        self._tracker.by_peer.clear()
        self._proposals.abandon()
        self._transfer.resigned()
        if was_serving:
            self._listeners.call(self._listeners.resigned)

    def _prefer_leader(self, now_ms: float) -> None:
        to = self.preferred_leader
        if to not in self._tracker.by_peer or not self._is_serving or self._transfer.to is not None:
            return
        if not self._engine.may_lead(to, now_ms, self._applier.has_decided):
            return
        progress, match_index = self._tracker.by_peer[to], self._core.match_index(to)
        if self._preference.may_lead(progress, match_index, self._log.last_index):
            self.begin_transfer(to, self._preference.attempted)
