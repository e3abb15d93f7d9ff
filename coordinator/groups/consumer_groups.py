"""The consumer groups (KIP-848) of a table: what is asked of them, due, and replayed.

What is decided is in `consumer/`, and changes nothing. Here it becomes a batch to append, whose
records are replayed when they are in the log, and an answer that waits for its commit.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ...wire.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    GroupIdNotFound,
    GroupMaxSizeReached,
    error_for,
)
from .classic_group import ClassicGroup
from .consumer.consumer_group import (
    JOINS,
    LEAVES,
    LEAVES_FOR_NOW,
    ConsumerGroup,
    ConsumerRecord,
    member_bytes,
)
from .consumer.heartbeat_messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    HeartbeatContext,
    HeartbeatDecision,
)
from .consumer.heartbeats import heartbeat, is_at_rest
from .consumer.leaving import expel, leave, rebalance_is_over, session_is_over
from .consumer.reconciliation import MemberState
from .consumer.record_codec import encode_consumer_key, encode_consumer_value
from .consumer.records import (
    ConsumerKey,
    ConsumerMember,
    ConsumerMemberKey,
    ConsumerValue,
    GroupEpochKey,
)
from .group import Group
from .group_member import GROUPS_MAX, METADATA_BYTES_MAX, HeldMetadata
from .group_messages import LeaveAnswer, LeavingMember
from .group_states import GroupState
from .records import encode_group_key
from .turn import REVOCATION, SESSION, DeadlineKey, GroupAppend, LogRecord, Turn

TARGET, PATTERNS = "target assignment", "patterns"  # work that is too long for a turn
TRY_AGAIN_MS = 1_000
Remove = Callable[[str, Turn, int], None]


class ConsumerGroups:
    """Consumer groups among the groups of a table; `remove` takes one of any kind out of it."""

    def __init__(self, groups: dict[str, Group], remove: Remove, held: HeldMetadata) -> None:
        self._groups = groups
        self._remove = remove
        self._held = held  # with the classic groups of the table

    # -- from the log

    def replay(self, key: ConsumerKey, value: ConsumerValue | None) -> None:
        """Take in a record, while loading or when it has just been appended."""
        group = self._groups.get(key.group_id)
        if isinstance(key, GroupEpochKey) and value is None:
            if isinstance(group, ConsumerGroup):
                self._held.size_bytes -= sum(member_bytes(*each) for each in group.members.items())
                del self._groups[key.group_id]
            return
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            if isinstance(group, ClassicGroup):
                group.release_metadata()
            group = self._groups[key.group_id] = ConsumerGroup(key.group_id, self._held)
        group.replay(key, value)

    def on_loaded(self, group: ConsumerGroup, turn: Turn) -> None:
        """Give members their session's time, and what is left of nothing to give up partitions."""
        timeout_ms = turn.settings.consumer(group.group_id).session_timeout_ms
        for member_id, member in group.members.items():
            turn.set_deadline(SESSION, group.group_id, member_id, timeout_ms)
            now = group.assignments.get(member_id)
            if now is not None and now.state == MemberState.UNREVOKED_PARTITIONS:
                turn.set_deadline(
                    REVOCATION, group.group_id, member_id, member.rebalance_timeout_ms
                )

    # -- requests

    def beat(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        client: tuple[str, str],
        replayed: int,
        turn: Turn,
    ) -> ConsumerHeartbeatAnswer | None:
        """Return the answer of a ConsumerGroupHeartbeat with a member id and epoch only.

        None if more comes of it, or it must wait: it is for `heartbeat`. client: its id and host.
        replayed: up to where the group's records are committed.
        """
        group = self._groups.get(group_id)
        if (
            not isinstance(group, ConsumerGroup)
            or group.appended_until > replayed
            or not is_at_rest(group, member_id, epoch, client, turn.topics.version)
        ):
            return None
        settings = turn.settings.consumer(group_id)
        turn.set_deadline(SESSION, group_id, member_id, settings.session_timeout_ms)
        return ConsumerHeartbeatAnswer(
            member_id=member_id,
            member_epoch=epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
        )

    def heartbeat(self, request: ConsumerHeartbeat, ticket: object, turn: Turn) -> None:
        """ConsumerGroupHeartbeat. Raises the KafkaError of its answer."""
        group, first = self._group_for(request)
        around = HeartbeatContext(
            now_ms=turn.wall_ms,
            topics=turn.topics,
            settings=turn.settings.consumer(request.group_id),
        )
        if request.member_epoch in (LEAVES, LEAVES_FOR_NOW):
            decision = leave(group, request, around)
        else:
            decision = heartbeat(group, request, around)
            self._check_metadata(group, decision.records)
        self._set_deadlines(group, request.member_id, decision, around, turn)
        records = decision.records
        self.append(group, records, partial(_answer, ticket, decision.answer), turn, first=first)
        if decision.needs_target:
            turn.long_work.append((TARGET, group.group_id))
        if decision.needs_patterns:
            turn.long_work.append((PATTERNS, group.group_id))

    def leave(
        self, group_id: str, leaving: Sequence[LeavingMember], ticket: object, turn: Turn
    ) -> None:
        """LeaveGroup: the members go at once. Raises GroupIdNotFound."""
        group = self.find(group_id)
        errors, records = expel(group, leaving, turn.topics.by_name)
        if records:
            turn.note(group_id, "left", f"{len(leaving)} members are to leave, by LeaveGroup")

        def settled(error: int, later: Turn) -> None:
            told = tuple(error or each for each in errors)
            later.answer(ticket, LeaveAnswer(errors=told))

        self.append(group, records, settled, turn)

    def _group_for(self, request: ConsumerHeartbeat) -> tuple[ConsumerGroup, list[LogRecord]]:
        """Return the group, new for its first member, and a tombstone if it was a classic one.

        Raises GroupIdNotFound.
        """
        group_id, joins = request.group_id, request.member_epoch == JOINS
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, []
        if group is None and joins:
            self._check_room()
            return ConsumerGroup(group_id, self._held), []
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        if joins and isinstance(group, ClassicGroup) and group.state is GroupState.EMPTY:
            return ConsumerGroup(group_id, self._held), [(encode_group_key(group_id), None)]
        raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")

    def _check_room(self) -> None:
        """Raise CoordinatorNotAvailable if there are too many groups."""
        if len(self._groups) >= GROUPS_MAX:
            raise CoordinatorNotAvailable

    def _check_metadata(self, group: ConsumerGroup, records: Sequence[ConsumerRecord]) -> None:
        """Raise GroupMaxSizeReached if what a member says of itself may not be kept."""
        said = {
            key.member_id: value for key, value in records if isinstance(key, ConsumerMemberKey)
        }
        more = 0
        for member_id, member in said.items():
            if isinstance(member, ConsumerMember):
                more += member_bytes(member_id, member)
            if member_id in group.members:
                more -= member_bytes(member_id, group.members[member_id])
        if more > 0 and self._held.size_bytes + more > METADATA_BYTES_MAX:
            raise GroupMaxSizeReached(
                "The members of this coordinator have told too much of themselves."
            )

    def find(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group. Raises GroupIdNotFound, also for a group of another kind."""
        group = self._groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return group

    @staticmethod
    def _set_deadlines(
        group: ConsumerGroup,
        member_id: str,
        decision: HeartbeatDecision,
        around: HeartbeatContext,
        turn: Turn,
    ) -> None:
        if decision.member_id is not None:
            timeout_ms = around.settings.session_timeout_ms
            turn.set_deadline(SESSION, group.group_id, member_id, timeout_ms)
        if not decision.is_reconciled:
            return
        if decision.rebalance_ms is None:
            turn.cancel_deadline(REVOCATION, group.group_id, member_id)
        else:
            turn.set_deadline(REVOCATION, group.group_id, member_id, decision.rebalance_ms)

    def append(
        self,
        group: ConsumerGroup,
        records: Sequence[ConsumerRecord],
        settled: Callable[[int, Turn], None],
        turn: Turn,
        *,
        first: Sequence[LogRecord] = (),
    ) -> None:
        """Have records appended and replayed; first: the tombstone of a classic group."""

        def encode() -> Iterator[LogRecord]:
            yield from first
            yield from map(_encoded, records)

        def replay(later: Turn) -> None:
            if first:
                self._remove(group.group_id, later, ErrorCode.UNKNOWN_MEMBER_ID)
            for key, value in records:
                self.replay(key, value)

        turn.appends.append(GroupAppend(group.group_id, encode, settled, replay))

    @staticmethod
    def append_tombstones(group: ConsumerGroup, turn: Turn) -> None:
        """Have all records of a group removed that has just been taken out of the table."""

        def encode() -> list[LogRecord]:
            return [(key, None) for key in group.tombstone_keys()]

        turn.appends.append(GroupAppend(group.group_id, encode, lambda error, later: None))

    # -- deadlines

    def meet(self, key: DeadlineKey, turn: Turn) -> None:
        """Remove a member whose time is over; when that cannot be written, try again soon."""
        kind, group_id, member_id = key
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            return
        over = session_is_over if kind == SESSION else rebalance_is_over
        records = over(group, member_id, turn.topics.by_name)
        if not records:
            return
        words = f"member {member_id} is removed, its {kind} time is over"
        turn.note(group_id, "timeout", words)

        def settled(error: int, later: Turn) -> None:
            if error and member_id in group.members:
                later.set_deadline(kind, group_id, member_id, TRY_AGAIN_MS)

        self.append(group, records, settled, turn)


def _encoded(record: ConsumerRecord) -> LogRecord:
    key, value = record
    return encode_consumer_key(key), None if value is None else encode_consumer_value(key, value)


def _answer(ticket: object, answer: ConsumerHeartbeatAnswer, error: int, turn: Turn) -> None:
    if error:
        answer = ConsumerHeartbeatAnswer(error=error, message=str(error_for(error)))
    turn.answer(ticket, answer)
