"""The followers of the partitions that a broker leads, and the answers to their fetches.

Each follower process has one session with one waiting poll. A request first reports the follower's
positions. Every reported position is compared with the leader's log, and counts as progress only if
the follower's log is a prefix (KIP-101, KIP-595). The poll is then answered when there is news,
when another request replaces it, or when its time is over.

append, or a leader or epoch change -> the partition's slots are dirty -> their sessions are due ->
`take_responses` reads and answers

A slot with a newer leader epoch than this broker's is held without an error. The same metadata will
soon be applied here, and `partition_changed` then checks the slot.

Times are monotonic milliseconds.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ..runtime.c_calls import new_tuple
from ..wire.errors import ErrorCode, KafkaError
from ..wire.identifiers import TopicIdPartition
from .follower import FollowedLog
from .follower_progress import PeerView
from .leader import PartitionLeader
from .messages import NO_EPOCH, NO_OFFSET, ReplicaFetchRequest, ReplicaFetchResponse, SlotAnswer
from .replica_session import LeaderSession, LeaderSlot

POLL_WAIT_MS_MAX = 500
# Each batch is checked, so that many small batches would block the event loop.
ANSWER_BATCHES_MAX = 4_096
_UNKNOWN_SESSION = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class LeaderRead(Protocol):
    """The records that were read from a leader's log."""

    @property
    def data(self) -> bytes | memoryview: ...
    @property
    def batches(self) -> int: ...


class LedLog(FollowedLog, Protocol):
    """The interface of a leader's log, such as `storage.partition_log.PartitionLog`."""

    @property
    def log_start_offset(self) -> int: ...
    def read(
        self, offset: int, max_bytes: int, *, upper_offset: int, min_one_batch: bool = True
    ) -> LeaderRead: ...


class ServedPartition(Protocol):
    """A partition on this broker, with its newest known leader epoch.

    `leader` is None unless this broker leads the partition.
    """

    @property
    def leader_epoch(self) -> int: ...
    @property
    def leader(self) -> PartitionLeader | None: ...
    @property
    def log(self) -> LedLog: ...


class SendingThrottle:
    """The interface of a throttle for the records of some partitions. This one holds none back.

    When a held partition may be sent, `appended` must be called again with its key.
    """

    is_on = False

    def holds(self, key: TopicIdPartition, replica: int) -> bool:
        return False

    def note(self, key: TopicIdPartition, size_bytes: int) -> None:
        """Count sent bytes of this partition."""


@dataclass(slots=True)
class ReplicationUpdates:
    """The partitions whose state changes through a follower's request."""

    high_watermarks: list[tuple[TopicIdPartition, int]] = field(
        default_factory=list[tuple[TopicIdPartition, int]]
    )  # partitions whose high watermark rises
    may_join_isr: list[TopicIdPartition] = field(default_factory=list[TopicIdPartition])


class PollResponse(NamedTuple):
    """The response to a follower's poll. `context` is the value that was passed with the poll."""

    follower: int
    context: object
    response: ReplicaFetchResponse


class ReplicaServer:
    """The fetch sessions of all followers of one broker, and the answers to their polls."""

    def __init__(
        self,
        find: Callable[[TopicIdPartition], ServedPartition | None],
        peers: PeerView,
        *,
        broker_epoch: int,
        response_bytes_max: int = 10 * 1024 * 1024,
        slot_bytes_max: int = 1024 * 1024,
        throttle: SendingThrottle | None = None,
    ) -> None:
        self._throttle = throttle or SendingThrottle()
        self._find = find
        self._peers = peers
        self._broker_epoch = broker_epoch
        self._response_bytes_max = response_bytes_max
        self._slot_bytes_max = slot_bytes_max
        # The broker epoch is part of session ids, so ids of a former incarnation never come again.
        self._session_id = (broker_epoch + 1) << 24
        self._followers: dict[int, LeaderSession] = {}
        self._slots: dict[TopicIdPartition, list[LeaderSlot]] = {}
        self._due: list[LeaderSession] = []
        self._ready: list[PollResponse] = []
        # No poll expires earlier; None if none waits. Answered polls are not removed from it.
        self.next_deadline_ms: int | None = None
        # Cached reads of this round of answers, since most followers need the same batches.
        self._reads: dict[tuple[TopicIdPartition, int], bytes | memoryview] = {}
        self._batches_left = 0  # the batches left for an answer, each of which is checked

    # -- the followers' side

    def on_request(
        self, follower_id: int, request: ReplicaFetchRequest, context: object, now_ms: int
    ) -> ReplicationUpdates:
        """Apply a follower's request. A later response to the request will have `context`.

        Returns the changes of partitions. The caller must call `take_responses` afterwards.
        """
        updates = ReplicationUpdates()
        self._peers.last_fetch_ms[follower_id] = now_ms
        follower = self._session_of(follower_id, request, context)
        if follower is None:
            return updates
        # Replaced by this request, and answered with the available records.
        if follower.poll is not None:
            self._answer(follower)
        entered, moved = follower.apply(request)
        for slot in entered:
            self._slots.setdefault(slot.key, []).append(slot)
            self._judge(slot, now_ms, updates)
        for slot in moved:
            self._judge(slot, now_ms, updates)
        follower.poll = request
        follower.context = context
        wait_ms = request.max_wait_ms
        if not 0 <= wait_ms <= POLL_WAIT_MS_MAX:
            wait_ms = POLL_WAIT_MS_MAX if wait_ms > 0 else 0
        deadline_ms = now_ms + wait_ms
        follower.deadline_ms = deadline_ms
        if self.next_deadline_ms is None or deadline_ms < self.next_deadline_ms:
            self.next_deadline_ms = deadline_ms
        if follower.row:
            self._make_due(follower)
        return updates

    def forget_follower(self, follower_id: int) -> None:
        """Drop the session of a follower that is down or out of step, and refuse its poll."""
        follower = self._followers.pop(follower_id, None)
        if follower is not None:
            # The follower may still be alive, and must not wait in vain.
            if follower.poll is not None:
                self._refuse(follower.poll, follower_id, follower.context, _UNKNOWN_SESSION)
                follower.poll = None
            follower.end()

    # -- the partitions' side

    def appended(self, key: TopicIdPartition) -> None:
        """Record that the log of this partition has grown."""
        for slot in self._slots.get(key, ()):
            session = slot.session
            if not slot.is_dirty:
                session.mark_dirty(slot)
            if not slot.awaits_position and not session.is_due and session.poll is not None:
                session.is_due = True
                self._due.append(session)

    def watermarks_moved(self, key: TopicIdPartition) -> None:
        """Record that the high watermark or log start rose. The next answer reports it."""
        for slot in self._slots.get(key, ()):
            slot.session.quiet[slot.slot] = slot

    def partition_changed(self, key: TopicIdPartition, now_ms: int) -> ReplicationUpdates:
        """Check again the slots of a partition after a change of its leader, epoch or host.

        Returns the changes of the partition that follow from the slots' positions.
        """
        updates = ReplicationUpdates()
        for slot in list(self._slots.get(key, ())):
            host = self._find(key)
            leads = host is not None and host.leader_epoch == slot.leader_epoch and host.leader
            if slot.is_held or not leads or slot.host is not host:
                self._judge(slot, now_ms, updates)
        return updates

    # -- answers

    def take_responses(self, now_ms: int) -> list[PollResponse]:
        """Return the responses to the polls that have news for their followers or have expired."""
        due, self._due = self._due, []
        for follower in due:
            follower.is_due = False
            if follower.poll is not None:
                self._answer(follower, only_with_news=True)
        if self.next_deadline_ms is not None and self.next_deadline_ms <= now_ms:
            self._expire(now_ms)
        if self._reads:
            self._reads.clear()
        ready, self._ready = self._ready, []
        return ready

    def _expire(self, now_ms: int) -> None:
        deadlines_ms: list[int] = []
        for follower in self._followers.values():
            if follower.poll is not None:
                if follower.deadline_ms <= now_ms:
                    self._answer(follower)
                else:
                    deadlines_ms.append(follower.deadline_ms)
        self.next_deadline_ms = min(deadlines_ms, default=None)

    def _answer(self, follower: LeaderSession, only_with_news: bool = False) -> None:
        poll = follower.poll
        assert poll is not None
        self._batches_left = ANSWER_BATCHES_MAX
        answers = follower.collect(self._read, min(poll.max_bytes, self._response_bytes_max))
        if only_with_news and not answers:
            return
        if follower.quiet:
            answers += follower.collect_watermarks(_watermarks)
        follower.poll = None
        fields = follower.session_id, poll.session_epoch, 0, self._broker_epoch, answers
        response = new_tuple(ReplicaFetchResponse, fields)
        due = follower.follower, follower.context, response
        self._ready.append(new_tuple(PollResponse, due))

    def _read(
        self, slot: LeaderSlot, room_bytes: int, at_least_one_batch: bool
    ) -> SlotAnswer | None:
        host: ServedPartition | None = slot.host
        if host is None or slot.is_held:
            return None
        leader, log = host.leader, host.log
        if leader is None or host.leader_epoch != slot.leader_epoch:
            return _refusal(slot, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            log_end_offset = log.log_end_offset
            if slot.fetch_offset >= log_end_offset:
                return None
            if slot.fetch_offset < log.log_start_offset:
                return _out_of_range(slot, log)
            throttle = self._throttle
            if throttle.is_on and throttle.holds(slot.key, slot.session.follower):
                return None
            data = self._reads.get((slot.key, slot.fetch_offset))
            if data is None or not 0 < len(data) <= room_bytes:
                slot_bytes_max = self._slot_bytes_max if self._batches_left > 0 else 0
                read = log.read(
                    slot.fetch_offset,
                    room_bytes if room_bytes < slot_bytes_max else slot_bytes_max,
                    upper_offset=log_end_offset,
                    min_one_batch=at_least_one_batch,
                )
                data = self._reads[slot.key, slot.fetch_offset] = read.data
                self._batches_left -= read.batches
            if throttle.is_on:
                throttle.note(slot.key, len(data))
            limits = log.high_watermark, log.log_start_offset
            return new_tuple(SlotAnswer, (slot.slot, 0, *limits, NO_EPOCH, NO_OFFSET, data))
        except KafkaError as error:
            return _refusal(slot, error.code)

    # -- sessions and slots

    def _session_of(
        self, follower_id: int, request: ReplicaFetchRequest, context: object
    ) -> LeaderSession | None:
        if request.session_id == 0:
            self.forget_follower(follower_id)
            self._session_id += 1
            follower = LeaderSession(follower_id, self._session_id, self._slot_removed)
            self._followers[follower_id] = follower
            return follower
        follower = self._followers.get(follower_id)
        if follower is None or follower.session_id != request.session_id:
            error = _UNKNOWN_SESSION
        elif request.session_epoch != follower.session_epoch + 1:
            error = ErrorCode.INVALID_FETCH_SESSION_EPOCH
            self.forget_follower(follower_id)
        else:
            return follower
        self._refuse(request, follower_id, context, error)
        return None

    def _refuse(
        self, poll: ReplicaFetchRequest, follower_id: int, context: object, error: int
    ) -> None:
        response = ReplicaFetchResponse(poll.session_id, poll.session_epoch, error)
        self._ready.append(PollResponse(follower_id, context, response))

    def _slot_removed(self, slot: LeaderSlot) -> None:
        slots = self._slots[slot.key]
        slots.remove(slot)
        if not slots:
            del self._slots[slot.key]

    def _make_dirty(self, slot: LeaderSlot) -> None:
        slot.session.mark_dirty(slot)
        if not slot.awaits_position:
            self._make_due(slot.session)

    def _make_due(self, follower: LeaderSession) -> None:
        if not follower.is_due and follower.poll is not None:
            follower.is_due = True
            self._due.append(follower)

    def _judge(self, slot: LeaderSlot, now_ms: int, updates: ReplicationUpdates) -> None:
        """Compare a follower's position with the leader's log, and store the verdict in the slot.

        If the follower's log is a prefix, the position counts as progress, and the changes are
        added to `updates`. Otherwise the verdict is the answer.
        """
        slot.host = host = self._find(slot.key)
        slot.is_held = host is None or host.leader_epoch < slot.leader_epoch
        if host is None or slot.is_held:
            return
        leader, log = host.leader, host.log
        fetch_offset = slot.fetch_offset
        if host.leader_epoch > slot.leader_epoch:
            slot.verdict = _refusal(slot, ErrorCode.FENCED_LEADER_EPOCH)
        elif leader is None:
            slot.verdict = _refusal(slot, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif (
            slot.last_fetched_epoch == log.latest_epoch
            and log.log_start_offset <= fetch_offset <= log.log_end_offset
        ):
            slot.verdict = None  # as in judge_position: the newest epoch ends at the log end
        else:
            try:
                slot.verdict = judge_position(slot, log)
            except KafkaError as error:
                slot.verdict = _refusal(slot, error.code)
        if slot.verdict is None:
            assert leader is not None
            outcome = leader.follower_fetched(
                slot.session.follower,
                slot.session.broker_epoch,
                fetch_offset,
                now_ms,
                slot.log_start_offset,
            )
            is_accepted, high_watermark, may_join_isr = outcome
            if not is_accepted:
                slot.verdict = _refusal(slot, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if high_watermark is not None:
                updates.high_watermarks.append((slot.key, high_watermark))
            if may_join_isr:
                updates.may_join_isr.append(slot.key)
        if slot.verdict is not None:
            slot.awaits_position = False  # errors are sent without a position
            self._make_dirty(slot)
        elif fetch_offset < log.log_end_offset:
            self._make_dirty(slot)


def judge_position(slot: LeaderSlot, log: LedLog) -> SlotAnswer | None:
    """Return None if the follower's log is a prefix of this log, else the answer (KIP-595).

    The follower's last batch has `last_fetched_epoch`. If this log ends that epoch before the fetch
    offset, or never had that epoch, the two logs diverge, and the answer has the end offset.
    """
    if not log.log_start_offset <= slot.fetch_offset <= log.log_end_offset:
        if slot.fetch_offset < log.log_start_offset or slot.last_fetched_epoch < 0:
            return _out_of_range(slot, log)
    elif slot.last_fetched_epoch < 0:
        return None
    epoch, end_offset = log.end_offset_for_epoch(slot.last_fetched_epoch)
    if epoch < 0 or end_offset < 0:
        return _out_of_range(slot, log)
    if epoch < slot.last_fetched_epoch or end_offset < slot.fetch_offset:
        return SlotAnswer(slot.slot, diverging_epoch=epoch, diverging_end_offset=end_offset)
    return None


def _out_of_range(slot: LeaderSlot, log: LedLog) -> SlotAnswer:
    return SlotAnswer(
        slot.slot,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        log_start_offset=log.log_start_offset,
        diverging_end_offset=log.log_end_offset,
    )


def _refusal(slot: LeaderSlot, error: int) -> SlotAnswer:
    return SlotAnswer(slot.slot, error)


def _watermarks(slot: LeaderSlot) -> tuple[int, int] | None:
    host: ServedPartition | None = slot.host
    if host is None or slot.is_held or host.leader is None:
        return None
    return host.log.high_watermark, host.log.log_start_offset
