"""The progress of the followers, which decides the next message to each.

    PROBE       after a refusal: one message, from `probed_index`
    PROBE_SENT  after that message, or without a link: nothing before an answer, heartbeat, or link
    REPLICATE   entries are streamed without waiting, up to a window of bytes
    SNAPSHOT    the log no longer has the entries: one chunk after each acknowledgement

    from          acknowledged            refused    link lost    link found   heartbeat
    PROBE         REPLICATE               PROBE      PROBE_SENT   PROBE        PROBE
    PROBE_SENT    REPLICATE               PROBE (1)  PROBE_SENT   PROBE        PROBE
    REPLICATE     REPLICATE               PROBE      PROBE_SENT   PROBE        REPLICATE
    SNAPSHOT      REPLICATE (2)           SNAPSHOT   SNAPSHOT     SNAPSHOT     SNAPSHOT
    (1) but PROBE_SENT, without a message, if the same index was probed already
    (2) only if the follower has acknowledged the last entry of the snapshot

The next index never falls below the follower's acknowledgement of this term, so that a repeated or
late answer cannot make the leader send the log repeatedly.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from ...runtime.c_calls import new_tuple
from .context import GroupContext
from .messages import (
    AppendEntries,
    AppendReply,
    BrokenPromise,
    Commit,
    Message,
    SnapshotChunk,
    SnapshotReply,
)
from .wal.records import RaftSnapshot


class ProgressState(Enum):
    PROBE = auto()
    PROBE_SENT = auto()
    REPLICATE = auto()
    SNAPSHOT = auto()


@dataclass(slots=True)
class _SnapshotTransfer:
    index: int = 0
    term: int = 0
    data: bytes = b""  # empty while it is read from disk
    offset: int = 0  # the acknowledged bytes
    sent_offset: int = -1


@dataclass(slots=True)
class Progress:
    next_index: int
    match_index: int = 0  # acknowledged in this term, by a voter or not
    is_voter: bool = True  # as stated in its last answer
    state: ProgressState = ProgressState.REPLICATE
    probed_index: int = 0
    in_flight: deque[tuple[int, int]] = field(
        default_factory=deque[tuple[int, int]]
    )  # (last index, bytes)
    in_flight_bytes: int = 0
    commit_sent: int = 0
    last_contact_ms: float = 0
    last_caught_up_ms: float = -1
    transfer: _SnapshotTransfer | None = None  # only in SNAPSHOT

    def probe(self, next_index: int, *, paused: bool = False) -> None:
        """Send one message at a time from now on, beginning at `next_index`.

        A follower that receives a snapshot continues to receive it.
        """
        self.next_index = self.probed_index = next_index
        if self.state is not ProgressState.SNAPSHOT:
            self.state = ProgressState.PROBE_SENT if paused else ProgressState.PROBE
        self.in_flight.clear()
        self.in_flight_bytes = 0

    def acknowledged(self, match_index: int) -> None:
        """Record that the follower has the log up to this index, and stream later entries."""
        self.match_index = max(self.match_index, match_index)
        self.next_index = max(self.next_index, match_index + 1)
        while self.in_flight and self.in_flight[0][0] <= match_index:
            self.in_flight_bytes -= self.in_flight.popleft()[1]
        if self.transfer is None or match_index >= self.transfer.index:
            self.transfer = None
            self.state = ProgressState.REPLICATE

    def begin_snapshot(self) -> _SnapshotTransfer:
        self.state = ProgressState.SNAPSHOT
        self.transfer = _SnapshotTransfer()
        return self.transfer

    def end_snapshot(self) -> None:
        """Stop sending a snapshot, and probe the follower.

        A later refusal starts a snapshot again.
        """
        self.state, self.transfer = ProgressState.PROBE, None
        self.probed_index = self.next_index


class ProgressTracker:
    """All followers of one leader."""

    def __init__(
        self,
        context: GroupContext,
        load_snapshot: Callable[[Callable[[tuple[RaftSnapshot, bytes] | None], None]], None],
    ) -> None:
        self._others = context.others
        self._core = context.core
        self._log = context.log
        self._settings = context.settings
        self._post = context.post
        self._load_snapshot = load_snapshot
        self._majority = context.majority
        self.by_peer: dict[int, Progress] = {}

    def begin(self, now_ms: float) -> None:
        """Start a term of leadership, assuming that every follower has the log before the no-op."""
        self.by_peer = {
            peer: Progress(self._core.no_op_index, last_contact_ms=now_ms) for peer in self._others
        }

    def pump(self, *, sends_commits: bool = True) -> None:
        """Send each follower the entries that its window allows.

        With `sends_commits` each follower also gets a new commit index.
        """
        commit_index = self._core.commit_index
        for peer, progress in self.by_peer.items():
            self._pump(peer, progress)
            if sends_commits and progress.commit_sent < commit_index and progress.transfer is None:
                self._post(peer, Commit(self._core.term, commit_index))
                progress.commit_sent = commit_index

    def heartbeat(self) -> bool:
        """Send every follower a heartbeat, and repeat messages that may have been lost.

        Returns whether every follower was already sent the whole log, so that only heartbeats were
        sent.
        """
        is_quiet, next_index = True, self._log.last_index + 1
        for peer, progress in self.by_peer.items():
            if (transfer := progress.transfer) is not None:
                is_quiet = False
                if transfer.data and transfer.sent_offset <= transfer.offset:
                    transfer.sent_offset = -1
                    self._post_chunk(peer, transfer, b"")
                continue
            is_probing = progress.state is not ProgressState.REPLICATE
            if is_probing or progress.next_index != next_index:
                is_quiet = False
            if is_probing:
                progress.probe(progress.probed_index)
            if not (is_probing and self._pump(peer, progress)):
                self._post_append(peer, progress, ())
        return is_quiet

    def take_quietly(self, peer: int, reply: Message, now_ms: float) -> bool:
        """Record the answer of a follower that has the whole log and has acknowledged it before.

        Returns False, and records nothing, for any other answer.
        """
        progress, last_index = self.by_peer[peer], self._log.last_index
        if (
            isinstance(reply, AppendReply)
            and reply.term == self._core.term
            and reply.success
            and reply.is_voter
            and progress.is_voter
            and reply.next_index == last_index + 1 == progress.next_index
            and progress.match_index == last_index == self._core.match_index(peer)
            and progress.state is ProgressState.REPLICATE
            and not progress.in_flight
        ):
            progress.last_contact_ms = progress.last_caught_up_ms = now_ms
            return True
        return False

    def on_reply(self, peer: int, reply: AppendReply, now_ms: float) -> None:
        """Handle an acknowledgement, or a refusal, of this term."""
        progress = self.by_peer[peer]
        progress.last_contact_ms = now_ms
        progress.is_voter = reply.is_voter
        if not reply.is_voter:
            self._core.reset_match_index(peer)
        if not reply.success:
            if progress.state is not ProgressState.SNAPSHOT:
                self._refused(peer, progress, reply)
            return
        match_index = reply.next_index - 1
        assert match_index <= self._log.last_index, "a follower acknowledged what was never sent"
        if reply.is_voter:
            ack = {"type": "next_node_idx", "reset": False, "success": True}
            self._core.handle(peer, {**ack, "next_node_idx": reply.next_index})
        progress.acknowledged(match_index)
        if progress.match_index == self._log.last_index:
            progress.last_caught_up_ms = now_ms

    def is_idle(self, peer: int, sends_commits: bool) -> bool:
        """Return whether `advance` has no work after an acknowledgement.

        That acknowledgement then commits no entry, and `pump` would send nothing to its sender.
        """
        progress, commit_index = self.by_peer[peer], self._core.commit_index
        return (
            progress.state is ProgressState.REPLICATE
            and progress.next_index > self._log.last_index
            and (not sends_commits or progress.commit_sent >= commit_index)
            and self.majority_index(self._majority) <= commit_index
            and self._log.is_voter
        )

    def _refused(self, peer: int, progress: Progress, reply: AppendReply) -> None:
        if not reply.is_voter:  # its disk was wiped, so it lost entries that it had acknowledged
            progress.match_index = min(progress.match_index, reply.next_index - 1)
        elif reply.next_index <= progress.match_index:
            # A late refusal, or the follower's disk was restored to an older state, so that it
            # counts for entries which it lacks. Only the follower can tell, and it stops voting
            # then.
            self._post(peer, BrokenPromise(self._core.term, progress.match_index))
        next_index = min(reply.next_index, self._log.last_index + 1)
        next_index = max(next_index, progress.match_index + 1)
        if progress.state is ProgressState.PROBE_SENT and progress.probed_index == next_index:
            return  # already probed; one message for each gap, not for each answer
        progress.probe(next_index)
        self._pump(peer, progress)

    def on_snapshot_reply(self, peer: int, reply: SnapshotReply, now_ms: float) -> None:
        progress = self.by_peer[peer]
        progress.last_contact_ms = now_ms
        transfer = progress.transfer
        if transfer is None or transfer.index != reply.snapshot_index or not transfer.data:
            return
        transfer.offset = reply.next_offset
        if transfer.sent_offset != transfer.offset < len(transfer.data):
            transfer.sent_offset = transfer.offset
            end = transfer.offset + self._settings.snapshot_chunk_bytes
            self._post_chunk(peer, transfer, transfer.data[transfer.offset : end])

    def lost(self, peer: int) -> None:
        """Pause sending to a follower (PROBE_SENT), since a frame could not be sent."""
        progress = self.by_peer.get(peer)
        if progress is not None:
            progress.probe(progress.match_index + 1, paused=True)
            if progress.transfer is not None:
                progress.transfer.sent_offset = -1

    def found(self, peer: int) -> None:
        """Resume sending to follower `peer`, because the link to it is open again."""
        progress = self.by_peer.get(peer)
        if progress is not None:
            progress.probe(progress.match_index + 1)

    def majority_index(self, majority: int) -> int:
        """Return the index up to which a majority of voters has the log on disk."""
        indexes = [self._core.match_index(peer) for peer in self._others]
        indexes.append(self._log.durable_index)
        indexes.sort(reverse=True)
        return indexes[majority - 1]

    def has_quorum_since(self, moment_ms: float, majority: int) -> bool:
        """Return whether a majority of voters, with the leader, has answered since this time."""
        recent = 1
        for follower in self.by_peer.values():
            if follower.is_voter and follower.last_contact_ms >= moment_ms:
                recent += 1
        return recent >= majority

    def _pump(self, peer: int, progress: Progress) -> bool:
        """Send entries if the window allows it. Return whether anything was sent."""
        if progress.state in (ProgressState.SNAPSHOT, ProgressState.PROBE_SENT):
            return False
        if progress.next_index <= self._log.base_index:
            self._begin_snapshot(peer, progress)
            return True
        sent = False
        while (
            progress.next_index <= self._log.last_index
            and progress.in_flight_bytes < self._settings.in_flight_bytes_max
            and progress.state is not ProgressState.PROBE_SENT
        ):
            entries = self._log.read_bytes(progress.next_index, self._settings.append_bytes_max)
            self._post_append(peer, progress, entries)
            size = sum(len(entry[0]) for entry in entries)
            progress.in_flight.append((entries[-1][1], size))
            progress.in_flight_bytes += size
            progress.next_index = entries[-1][1] + 1
            if progress.state is ProgressState.PROBE:
                progress.state = ProgressState.PROBE_SENT
            sent = True
        return sent

    def _post_append(
        self, peer: int, progress: Progress, entries: Sequence[tuple[bytes, int, int]]
    ) -> None:
        prev_index = progress.next_index - 1
        prev_term = self._log.term_at(prev_index)
        if prev_term is None:
            self._begin_snapshot(peer, progress)
            return
        core = self._core
        wire_entries = [(term, command) for command, _, term in entries] if entries else []
        progress.commit_sent = core.commit_index
        fields = core.term, core.commit_index, prev_index, prev_term, wire_entries
        self._post(peer, new_tuple(AppendEntries, fields))

    def _begin_snapshot(self, peer: int, progress: Progress) -> None:
        transfer = progress.begin_snapshot()

        def loaded(found: tuple[RaftSnapshot, bytes] | None) -> None:
            if progress.transfer is not transfer or self.by_peer.get(peer) is not progress:
                return  # this node no longer leads, or leads in another term
            if found is None:
                progress.end_snapshot()
                return
            snapshot, transfer.data = found
            transfer.index, transfer.term = snapshot.last_index, snapshot.last_term
            transfer.sent_offset = 0
            chunk = transfer.data[: self._settings.snapshot_chunk_bytes]
            self._post_chunk(peer, transfer, chunk)

        self._load_snapshot(loaded)

    def _post_chunk(self, peer: int, transfer: _SnapshotTransfer, chunk: bytes) -> None:
        total, term = len(transfer.data), self._core.term
        self._post(
            peer,
            SnapshotChunk(term, transfer.index, transfer.term, transfer.offset, total, chunk),
        )
