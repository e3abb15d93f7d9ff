"""All Raft groups of one process, which share a write-ahead log, group commits, a timer and frames.

The engine runs on the event loop and never blocks it. A *turn* lets every touched group proceed,
starts a group commit if none is running, and sends the posted messages, as one frame for each peer.
A message that makes a promise (a vote, an acknowledgement) waits until the records written before
that message are on disk. A leader's entries are sent while its own disk writes them.

Loop, executor, disk, random source and `send` are arguments, so a simulator can run the same code
under virtual time.
"""

import asyncio
import logging
import os
import random
import sys
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from pathlib import Path

from ...runtime.fault_point import FaultPoint, no_fault_point
from ...runtime.sliced_work import SlicedWork, run_to_end
from .applier import StateMachine
from .group import RaftGroup
from .jobs import Jobs
from .messages import MalformedMessage, Message, decode_frame, encode_frame, split
from .outcomes import ForeignJournal
from .queues import OutcomeQueue, SnapshotQueue
from .settings import RaftSettings, check_voters
from .wal.disk import DirectoryDisk, Disk
from .wal.journal import GroupCommit, Journal, SegmentKeeper
from .wal.recovery import RecoveredGroup, recover

_EARLY_MS = 0.5  # a timer may fire up to this much early
_SEAL_AFTER_MS = 1_000


def end_process(error: BaseException) -> None:
    """Write the reason and exit, as the response to a violation of Raft's guarantees."""
    sys.stderr.write(f"FATAL: the Raft engine stops this process: {error}\n")
    sys.stderr.flush()
    os._exit(70)


class RaftEngine:
    """The Raft groups of this node.

    `send(peer, frame)` passes a frame to the transport and returns False if it cannot be sent.
    Frames may be lost or repeated, but not changed. `executor` writes the journal and needs its own
    thread. `files_executor` handles snapshots, which are slow, and the journal's next segment, and
    needs at least two threads. Raises ValueError for invalid voters.
    """

    def __init__(
        self,
        *,
        node_id: int,
        voters: Sequence[int],
        directory: Path,
        send: Callable[[int, bytes], bool],
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        files_executor: Executor | None = None,
        work: SlicedWork | None = None,
        settings: RaftSettings | None = None,
        random: random.Random,
        fault_point: FaultPoint = no_fault_point,
        disk: Disk | None = None,
        on_fatal: Callable[[BaseException], None] = end_process,
    ) -> None:
        check_voters(node_id, tuple(voters))
        self.node_id = node_id
        self.others = tuple(voter for voter in voters if voter != node_id)
        self.majority = len(voters) // 2 + 1
        self.settings = settings or RaftSettings()
        self.random = random
        self.fault_point = fault_point
        self.disk: Disk = disk or DirectoryDisk(directory, fault_point)
        self.groups: dict[int, RaftGroup] = {}
        self.snapshots = SnapshotQueue()
        self._voters = tuple(voters)
        self._send = send
        self._loop = loop
        self._executor = executor
        self._work = work or SlicedWork()
        self.jobs = Jobs(
            loop,
            self._settle,
            journal=executor,
            files=files_executor or executor,
            work=self._work,
        )
        self._on_fatal = on_fatal
        self._logger = logging.getLogger(f"{__name__}.{node_id}")
        self._is_running = False
        # Ordered, so that the simulator repeats a run exactly.
        self._touched: dict[int, RaftGroup] = {}
        self._turn_is_due = False
        self._outcomes = OutcomeQueue(loop)
        self._outbox: dict[int, list[tuple[int, Message]]] = {peer: [] for peer in self.others}
        self._held: deque[tuple[int, int, int, Message]] = deque()  # (sequence, peer, group, ...)
        self._batch: GroupCommit | None = None  # the running group commit
        self._batch_ended_ms = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0.0
        self._heartbeat_ms = 0.0
        # Ids of led groups; while there are any, a heartbeat is due.
        self._leading: set[int] = set()
        self._up_since_ms: dict[int, float] = {}

    def add_group(
        self, group_id: int, machine: StateMachine, *, preferred_leader: int | None = None
    ) -> RaftGroup:
        """Create a group, before `start`.

        preferred_leader: gets the leadership when it is ready to lead.
        """
        assert not self._is_running
        if group_id in self.groups:
            raise ValueError(f"group {group_id} exists")
        group = self.groups[group_id] = RaftGroup(self, group_id, machine)
        if preferred_leader in self._voters:
            group.preferred_leader = preferred_leader
        return group

    async def start(self) -> None:
        """Read the journal and start.

        Raises CorruptJournal, ForeignJournal, UnloadableSnapshot, or BlockingIOError if the
        directory is in use.
        """
        await asyncio.wrap_future(self._executor.submit(self.recover))
        for group in self.groups.values():
            await self._work.run(f"load of Raft group {group.group_id}", group.load_steps())
        self.begin()

    def recover(self) -> None:
        """Open the disk and read all groups (blocking)."""
        self.disk.open()
        try:
            recovered = recover(self.disk, node_id=self.node_id, voters=self._voters)
            unknown = recovered.groups.keys() - self.groups.keys()
            if unknown:
                name = self.disk.segment_name(min(recovered.segments))
                problem = f"it holds the groups {sorted(unknown)}, which are not configured"
                raise ForeignJournal(name, problem)
            self.journal = Journal(
                self.disk,
                recovered,
                node_id=self.node_id,
                voters=self._voters,
                segment_bytes=self.settings.segment_bytes,
            )
            segments_max = self.settings.segments_max
            self._segments = SegmentKeeper(self.journal, self.jobs.run_blocking, segments_max)
            for group_id, group in self.groups.items():
                self.journal.add_group(group_id)
                group.recover(recovered.groups.get(group_id, RecoveredGroup()))
        except BaseException:
            self.disk.close()
            raise

    def begin(self) -> None:
        """Take part in elections from now on, after `recover`, on the event loop."""
        for group in self.groups.values():
            run_to_end(group.load_steps())  # does nothing after `start`
        self._is_running = True
        now_ms = self.now_ms()
        for group in self.groups.values():
            group.begin(now_ms)
        self._turn()

    async def stop(self, *, hand_over: bool = True) -> None:
        """Transfer leaderships to other nodes, write the waiting records, and close the files."""
        if hand_over and self._is_running:
            await asyncio.gather(*(self.hand_over(group) for group in self.groups.values()))
        if self._is_running:
            self.halt()
            self.journal.seal()
            await self.jobs.drain()
            if (batch := self.journal.take()) is not None:
                writing = self._executor.submit(self.journal.write, batch)
                await asyncio.wrap_future(writing)
        self.disk.close()

    def halt(self) -> None:
        """Stop immediately. Nothing more is sent or applied, and pending outcomes are unknown."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        self.jobs.cancel_sliced()
        for group in self.groups.values():
            group.stop()
        self._outcomes.report_all()

    def receive(self, peer: int, payload: bytes) -> None:
        """Handle a frame from a peer."""
        if not self._is_running:
            return
        try:
            messages = decode_frame(payload)
        except MalformedMessage as error:
            self._logger.warning("a Raft frame from node %s was dropped: %s", peer, error)
            return
        if peer not in self._outbox:
            self._logger.warning(
                "a Raft frame from node %s was dropped, because the node is not a voter", peer
            )
            return
        now_ms = self.now_ms()
        self._up_since_ms.setdefault(peer, now_ms)
        try:
            for group_id, message in messages:
                group = self.groups.get(group_id)
                if group is not None and group.receive(peer, message, now_ms):
                    self._touched[group_id] = group
            if not self._touched and not self._leading:
                # These messages have no effect here (heartbeats, or answers to them). The timer
                # stays: an earlier deadline fires late, but no later than the longest election
                # timeout after the last contact. If this node leads a group, the answers are sent
                # with the next heartbeat, which halves the frames of an idle cluster. A leader that
                # lost an answer without noticing waits for that heartbeat, too.
                self._flush()
        except Exception as error:
            self.fail(error)
        if self._touched:
            self._turn()

    def peer_up(self, peer: int) -> None:
        """Record that the transport has a link to the peer."""
        self._up_since_ms[peer] = self.now_ms()
        for group in self.groups.values():
            if self._is_running:
                group.peer_up(peer)
                self.touch(group)

    def peer_down(self, peer: int) -> None:
        """Record that the link closed and was not reopened, so the peer may be dead."""
        self._up_since_ms.pop(peer, None)
        for group in self.groups.values():
            if self._is_running:
                group.peer_down(peer, self.now_ms())
                self.touch(group)

    # ---- the groups' interface

    def now_ms(self) -> float:
        """Return monotonic milliseconds."""
        return self._loop.time() * 1_000

    def touch(self, group: RaftGroup) -> None:
        """Call `advance` of a group in the engine's next turn."""
        self._touched[group.group_id] = group
        if not self._turn_is_due:
            self._turn_is_due = True
            self._loop.call_soon(self._due_turn)

    def after_turn(self, call: Callable[[], None]) -> None:
        """Make this call after the engine's turn, when no group is amid an action."""
        self._outcomes.add(call)

    def post(self, peer: int, group: RaftGroup, message: Message, *, durable: bool) -> None:
        """Send a message to a peer after the engine's current turn.

        A message that is `durable` is sent after all records that were written so far are on disk.
        """
        if durable and self.journal.durable_sequence < self.journal.sequence:
            self._held.append((self.journal.sequence, peer, group.group_id, message))
        else:
            self._outbox[peer].append((group.group_id, message))

    def may_lead(self, peer: int, now_ms: float, has_decided: bool) -> bool:
        """Return whether a peer has been connected long enough to get the leadership of a group.

        has_decided: the group has applied commands, so clients notice a new leader, and the
        required time is longer.
        """
        since_ms = self._up_since_ms.get(peer, float("inf"))
        return now_ms - since_ms >= self.settings.lead_delay_ms(has_decided)

    def fail(self, error: BaseException) -> None:
        """Stop the engine, because Raft's guarantees can no longer be kept."""
        if self._is_running:
            self._logger.critical(
                "Raft stops on this node, because its guarantees are broken: %s",
                error,
                exc_info=error,
            )
            self.halt()
            self._on_fatal(error)

    # ---- inside

    def _due_turn(self) -> None:
        self._turn_is_due = False
        self._turn()

    def _turn(self) -> None:
        if not self._is_running:
            return
        try:
            now_ms = self.now_ms()
            touched, self._touched = self._touched, {}
            for group in touched.values():
                group.advance(now_ms)
            self._begin_batch()
            self._flush()
            self._arm_timer(touched.values())
        except Exception as error:
            self.fail(error)
        self._outcomes.report()

    def _begin_batch(self) -> None:
        if self._batch is not None or not self.journal.has_work:
            return
        batch = self.journal.take()
        assert batch is not None
        self._batch = batch
        self.jobs.write_journal(lambda: self.journal.write(batch), self._end_batch)

    def _end_batch(self, _written: None) -> None:
        batch = self._batch
        assert batch is not None
        self._batch = None
        self.journal.finish(batch)
        self._batch_ended_ms = self.now_ms()
        for group_id, last_index in batch.log_ends.items():
            group = self.groups[group_id]
            group.durable(last_index)
            self._touched[group_id] = group
        durable = self.journal.durable_sequence
        while self._held and self._held[0][0] <= durable:
            _, peer, group_id, message = self._held.popleft()
            self._outbox[peer].append((group_id, message))
        self._segments.tend(lambda group_id: self.groups[group_id].release_segment())

    def _settle(self, action: Callable[[], None]) -> None:
        """Run the function that handles a job's result, as a part of the engine's turn.

        An exception stops the engine.
        """
        if self._is_running:
            try:
                action()
            except Exception as error:
                self.fail(error)
            self._turn()

    def _flush(self) -> None:
        for peer, messages in self._outbox.items():
            if messages:
                self._outbox[peer] = []
                is_one = len(messages) == 1
                frames = (messages,) if is_one else split(messages, self.settings.frame_bytes_max)
                for frame in frames:
                    if not self._send(peer, encode_frame(frame)):
                        for group_id in {group_id: None for group_id, _ in frame}:
                            self.groups[group_id].lost(peer)

    def _arm_timer(self, groups: Collection[RaftGroup]) -> None:
        """Set the timer to the earliest deadline after `advance` of these groups.

        The deadlines of all other groups are unchanged.
        """
        if self._timer is None:
            groups = self.groups.values()
        earliest_ms = float("inf")
        for group in groups:
            if group.leads:
                self._leading.add(group.group_id)
            else:
                self._leading.discard(group.group_id)
                earliest_ms = min(earliest_ms, group.deadline_ms)
        if self._leading:
            earliest_ms = min(earliest_ms, self._heartbeat_ms)
        if self._timer is not None:
            if self._timer_ms <= earliest_ms:
                return  # firing early is harmless, since the timer then checks again
            self._timer.cancel()
        if earliest_ms < float("inf"):
            self._timer_ms = earliest_ms
            self._timer = self._loop.call_at(earliest_ms / 1_000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._is_running:
            return
        now_ms = self.now_ms()
        beats = now_ms + _EARLY_MS >= self._heartbeat_ms
        if beats:
            # At multiples of the interval, like other timers of an idle process, to wake the
            # process once.
            interval_ms = self.settings.heartbeat_interval_ms
            self._heartbeat_ms = ((now_ms + _EARLY_MS) // interval_ms + 1) * interval_ms
        try:
            for group in self.groups.values():
                if group.leads:
                    if beats and group.heartbeat(now_ms):
                        self._touched[group.group_id] = group
                elif group.deadline_ms <= now_ms + _EARLY_MS:
                    group.on_deadline(now_ms)
                    self._touched[group.group_id] = group
            if self._batch is None and now_ms - self._batch_ended_ms >= _SEAL_AFTER_MS:
                self.journal.seal()
        except Exception as error:
            self.fail(error)
        self._turn()

    async def hand_over(self, group: RaftGroup) -> None:
        """Transfer the leadership of a group to the voter with the longest log."""
        if group.is_leader and self.others:
            voters = [v for v in group.status().voters if v.node_id != self.node_id]
            best = max(voters, key=lambda voter: (voter.log_end, voter.last_contact_ms))
            await group.transfer_leadership(best.node_id)
