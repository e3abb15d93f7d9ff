"""The consumer groups (KIP-848) of a GroupTable, with their requests, deadlines and replay.

The functions in `consumer/` and `migration/` decide about requests and change nothing. This file
appends the records of their decisions as one batch, and replays the batch once it is in the log.
The answer waits for the commit of the batch. A group changes its protocol in one batch, together
with the request that causes the change.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

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
from .consumer.leaving import expelled, leave, owes_partitions, removing
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
from .group_messages import (
    JoinRequest,
    LeaveAnswer,
    LeavingMember,
)
from .group_states import GroupState
from .migration.downgrade import DOWNGRADED, downgraded, is_due
from .migration.upgrade import check_upgrade, draft, upgraded
from .rebalance import expect_heartbeat, prepare_rebalance
from .records import encode_group_key, encode_group_value
from .turn import REJOIN, REVOCATION, SESSION, DeadlineKey, GroupAppend, LogRecord, Turn

# Jobs that are too long for a turn of the event loop.
TARGET, PATTERNS = "target assignment", "patterns"
TRY_AGAIN_MS = 1_000
Remove = Callable[[str, Turn, int], None]
Settled = Callable[[int, Turn], None]


class Former(NamedTuple):
    """A classic group that is converted to a consumer group, with the records of the conversion.

    An empty group has no records. `error` is the answer to requests that wait in the group.
    """

    records: Sequence[ConsumerRecord] = ()
    error: int = ErrorCode.UNKNOWN_MEMBER_ID


class ConsumerGroups:
    """The consumer groups of a GroupTable. `remove` is called to remove a group of any type."""

    def __init__(self, groups: dict[str, Group], remove: Remove, held: HeldMetadata) -> None:
        self._groups = groups
        self._remove = remove
        self._held = held  # shared with the classic groups of the table

    # -- from the log

    def replay(self, key: ConsumerKey, value: ConsumerValue | None) -> None:
        """Apply a record, while loading or immediately after its append."""
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
        """Start the session timeouts of a loaded group, and its partition revocation timeouts."""
        timeout_ms = turn.settings.consumer(group.group_id).session_timeout_ms
        for member_id, member in group.members.items():
            session_ms = timeout_ms if member.classic is None else member.classic.session_timeout_ms
            turn.set_deadline(SESSION, group.group_id, member_id, session_ms)
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
        """Return the answer of a ConsumerGroupHeartbeat that has only a member id and epoch.

        Returns None if the heartbeat changes the group or must wait. The caller then calls
        `heartbeat`. client: the client's id and host. replayed: the offset up to which the group's
        records are committed.
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
        """Handle ConsumerGroupHeartbeat, or raise the KafkaError of its answer."""
        group, former = self._group_for(request, turn)
        if request.member_epoch in (LEAVES, LEAVES_FOR_NOW):
            return self._leave(group, request, ticket, turn)
        decision = self.decide(group, request, turn)
        settled = partial(_answer, ticket, decision.answer)
        self.append(group, decision.records, settled, turn, first=former)
        return self.begin_long_work(group, decision, turn)

    def decide(
        self, group: ConsumerGroup, request: ConsumerHeartbeat, turn: Turn
    ) -> HeartbeatDecision:
        """Return the decision about a member's heartbeat or JoinGroup, and set its deadlines."""
        around = HeartbeatContext(
            now_ms=turn.wall_ms,
            topics=turn.topics,
            settings=turn.settings.consumer(request.group_id),
        )
        decision = heartbeat(group, request, around)
        self._check_metadata(group, decision.records)
        self._set_deadlines(request, decision, around, turn)
        return decision

    @staticmethod
    def begin_long_work(group: ConsumerGroup, decision: HeartbeatDecision, turn: Turn) -> None:
        if decision.needs_target:
            turn.long_work.append((TARGET, group.group_id))
        if decision.needs_patterns:
            turn.long_work.append((PATTERNS, group.group_id))

    def _leave(
        self, group: ConsumerGroup, request: ConsumerHeartbeat, ticket: object, turn: Turn
    ) -> None:
        answer = ConsumerHeartbeatAnswer(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        settled, records = partial(_answer, ticket, answer), leave(group, request)
        if records is None:
            self._remove_members(group, [request.member_id], settled, turn)
        else:
            turn.cancel_deadline(REVOCATION, group.group_id, request.member_id)
            self.append(group, records, settled, turn)

    def leave(
        self, group_id: str, leaving: Sequence[LeavingMember], ticket: object, turn: Turn
    ) -> None:
        """Handle LeaveGroup, which removes the members immediately, or raise GroupIdNotFound."""
        group = self.find(group_id)
        errors, gone = expelled(group, leaving)

        def settled(error: int, later: Turn) -> None:
            told = tuple(error or each for each in errors)
            later.answer(ticket, LeaveAnswer(errors=told))

        if not gone:
            return self.append(group, (), settled, turn)
        turn.note(group_id, "left", f"{len(gone)} members leave by LeaveGroup")
        return self._remove_members(group, gone, settled, turn)

    def _group_for(
        self, request: ConsumerHeartbeat, turn: Turn
    ) -> tuple[ConsumerGroup, Former | None]:
        """Return the group, and the classic group that it replaces, or None.

        A group that is created for its first member is not in the table yet.

        Raises GroupIdNotFound, or CoordinatorNotAvailable if there are too many groups.
        """
        group_id, joins = request.group_id, request.member_epoch == JOINS
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, None
        if group is None and joins:
            self._check_room()
            return ConsumerGroup(group_id, self._held), None
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        if not joins or not isinstance(group, ClassicGroup):
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        if group.state is GroupState.EMPTY:
            return ConsumerGroup(group_id, self._held), Former()
        check_upgrade(group, turn.settings)
        records = upgraded(group, turn.topics.by_name)
        return draft(group_id, records), Former(records, ErrorCode.REBALANCE_IN_PROGRESS)

    def _check_room(self) -> None:
        """Raise CoordinatorNotAvailable if the coordinator has GROUPS_MAX groups."""
        if len(self._groups) >= GROUPS_MAX:
            raise CoordinatorNotAvailable

    def _check_metadata(self, group: ConsumerGroup, records: Sequence[ConsumerRecord]) -> None:
        """Raise GroupMaxSizeReached if the members' metadata would exceed the memory limit."""
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
                f"The metadata of all groups' members would exceed {METADATA_BYTES_MAX} bytes."
            )

    def find(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group, or raise GroupIdNotFound, also for a classic group."""
        group = self._groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return group

    @staticmethod
    def _set_deadlines(
        request: ConsumerHeartbeat,
        decision: HeartbeatDecision,
        around: HeartbeatContext,
        turn: Turn,
    ) -> None:
        who, classic = (request.group_id, request.member_id), request.classic
        timeout_ms = around.settings.session_timeout_ms
        turn.set_deadline(
            SESSION, *who, timeout_ms if classic is None else classic.session_timeout_ms
        )
        if not decision.is_reconciled:
            return
        if decision.rebalance_ms is None:
            turn.cancel_deadline(REVOCATION, *who)
        else:
            turn.set_deadline(REVOCATION, *who, decision.rebalance_ms)

    # -- appends

    def append(
        self,
        group: ConsumerGroup,
        records: Sequence[ConsumerRecord],
        settled: Settled,
        turn: Turn,
        *,
        first: Former | None = None,
    ) -> None:
        """Request the append of the group's records, and then their replay into the group.

        settled: called with the outcome. first: the classic group that this group replaces.
        """

        def encode() -> Iterator[LogRecord]:
            if first is not None:
                yield encode_group_key(group.group_id), None
                yield from map(_encoded, first.records)
            yield from map(_encoded, records)

        def replay(later: Turn) -> None:
            if first is not None:
                self._remove(group.group_id, later, first.error)
                for key, value in first.records:
                    self.replay(key, value)
                if first.records:
                    words = f"the group becomes a consumer group with {len(group.members)} members"
                    later.note(group.group_id, "migration", words)
                became = self._groups.get(group.group_id)
                for member_id in group.members if first.records else ():
                    assert isinstance(became, ConsumerGroup)
                    expect_classic_heartbeat(became, member_id, later)
            for key, value in records:
                self.replay(key, value)

        turn.appends.append(GroupAppend(group.group_id, encode, settled, replay))

    def _remove_members(
        self, group: ConsumerGroup, member_ids: Sequence[str], settled: Settled, turn: Turn
    ) -> None:
        """Remove members. The group becomes a classic group if only classic members remain."""

        def remove(now: Turn) -> None:
            self.append(group, removing(group, member_ids, now.topics.by_name), settled, now)

        def downgraded_or_not(error: int, later: Turn) -> None:
            is_whole = self._groups.get(group.group_id) is group
            # The records do not fit into one batch.
            if error == ErrorCode.UNKNOWN_SERVER_ERROR and is_whole:
                remove(later)
            else:
                settled(error, later)

        if is_due(group, member_ids, turn.settings):
            self.downgrade(group, member_ids, downgraded_or_not, turn)
        else:
            remove(turn)

    def downgrade(
        self,
        group: ConsumerGroup,
        leaving: Sequence[str],
        settled: Settled,
        turn: Turn,
        joining: JoinRequest | None = None,
    ) -> None:
        """Turn the group into a classic group, because only members of the classic protocol remain.

        joining: the JoinGroup of a static member that replaces the leaving member.
        """
        group_id, topics = group.group_id, turn.topics.by_name
        classic, value = downgraded(group, leaving, topics, turn.wall_ms, joining)
        words = (
            f"the group becomes a classic group at epoch {group.epoch}"
            f" with {len(classic.members)} members"
        )

        def encode() -> Iterator[LogRecord]:
            yield from ((key, None) for key in group.tombstone_keys())
            yield encode_group_key(group_id), encode_group_value(value)

        def replay(later: Turn) -> None:
            self.replay(GroupEpochKey(group_id), None)
            for member_id in group.members:
                for kind in (SESSION, REVOCATION, REJOIN):
                    later.cancel_deadline(kind, group_id, member_id)
            self._groups[group_id] = classic
            classic.hold_metadata_in(self._held)
            for member in classic.members.values():
                expect_heartbeat(classic, member, later)
            later.note(group_id, "migration", words)
            if value.leader is None:
                prepare_rebalance(classic, later, DOWNGRADED)

        turn.appends.append(GroupAppend(group_id, encode, settled, replay))

    @staticmethod
    def append_tombstones(group: ConsumerGroup, turn: Turn) -> None:
        """Append tombstones for all records of a group that has been removed from the table."""

        def encode() -> list[LogRecord]:
            return [(key, None) for key in group.tombstone_keys()]

        turn.appends.append(GroupAppend(group.group_id, encode, lambda error, later: None))

    # -- deadlines

    def meet(self, key: DeadlineKey, turn: Turn) -> None:
        """Remove a member whose timeout has expired. Try again soon if the append fails."""
        kind, group_id, member_id = key
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup) or member_id not in group.members:
            return
        if kind == REVOCATION and not owes_partitions(group, member_id):
            return
        if kind == REJOIN and group.members[member_id].classic is None:
            return
        words = f"member {member_id} is removed, because its {kind} timeout has passed"
        turn.note(group_id, "timeout", words)

        def settled(error: int, later: Turn) -> None:
            if error and member_id in group.members:
                later.set_deadline(kind, group_id, member_id, TRY_AGAIN_MS)

        self._remove_members(group, [member_id], settled, turn)


def expect_classic_heartbeat(group: ConsumerGroup, member_id: str, turn: Turn) -> None:
    """Start the session of a member with the classic protocol."""
    classic = group.members[member_id].classic
    assert classic is not None
    turn.set_deadline(SESSION, group.group_id, member_id, classic.session_timeout_ms)


def _encoded(record: ConsumerRecord) -> LogRecord:
    key, value = record
    return encode_consumer_key(key), None if value is None else encode_consumer_value(key, value)


def _answer(ticket: object, answer: ConsumerHeartbeatAnswer, error: int, turn: Turn) -> None:
    if error:
        answer = ConsumerHeartbeatAnswer(error=error, message=str(error_for(error)))
    turn.answer(ticket, answer)
