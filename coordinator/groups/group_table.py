"""The groups of one partition of __consumer_offsets, and their deadlines.

`replay` builds the groups from the log, and `on_loaded` starts their members' sessions. Afterwards
the memory is ahead of the log, because a running rebalance is in no record.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice

from ...wire.errors import CoordinatorNotAvailable, ErrorCode, GroupIdNotFound, UnknownMemberId
from .classic_group import ClassicGroup
from .classic_requests import ClassicRequests
from .consumer.consumer_group import ConsumerGroup
from .consumer_groups import ConsumerGroups
from .deadlines import Deadlines
from .group import Group
from .group_member import (
    GROUPS_MAX,
    MEMBER_BYTES,
    METADATA_BYTES_MAX,
    HeldMetadata,
    metadata_bytes,
    text_bytes,
)
from .group_messages import (
    NO_MEMBER,
    JoinAnswer,
    JoinRequest,
    LeavingMember,
    SyncAnswer,
    SyncRequest,
)
from .group_states import GroupState
from .joining import join
from .leaving import leave, session_deadline
from .migration.downgrade import DOWNGRADED
from .rebalance import expect_heartbeat, join_deadline, prepare_rebalance, release
from .records import GroupValue
from .syncing import heartbeat, sync, sync_deadline
from .turn import HEARTBEAT, JOIN, REJOIN, REVOCATION, SESSION, DeadlineKey, Turn

_SESSION_GOES_ON = frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE})


class GroupTable:
    """The groups of one partition of __consumer_offsets by id, and their deadlines."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}  # groups of all types
        self.deadlines: Deadlines[DeadlineKey] = Deadlines()
        self.held_metadata = HeldMetadata()
        self.consumers = ConsumerGroups(self.groups, self.remove, self.held_metadata)
        self._mixed = ClassicRequests(self.consumers, self.join)

    # -- the log

    def replay(self, group_id: str, value: GroupValue | None) -> None:
        """Apply a record while loading. None is a tombstone."""
        before = self.classic(group_id)
        if before is not None:
            del self.groups[group_id]
            before.release_metadata()
        if value is not None:
            group = ClassicGroup.restored(group_id, value, self.held_metadata)
            self.groups[group_id] = group

    def on_loaded(self, turn: Turn, groups: Iterable[Group]) -> None:
        """Start the sessions of all members after loading."""
        for group in groups:
            if isinstance(group, ClassicGroup):
                self.attempt(group.group_id, turn, partial(_begin_sessions, group, turn))
            elif isinstance(group, ConsumerGroup):
                self.consumers.on_loaded(group, turn)

    def remove(
        self, group_id: str, turn: Turn, error: int = ErrorCode.COORDINATOR_NOT_AVAILABLE
    ) -> None:
        """Remove a group from memory. Answer its waiting requests with `error`."""
        group = self.groups.pop(group_id, None)
        if isinstance(group, ClassicGroup):
            group.release_metadata()
            release(group, turn, error)

    def attempt(self, group_id: str, turn: Turn, action: Callable[[], object]) -> None:
        """Run an action on one group. After an unexpected error call `set_aside` for this group."""
        try:
            action()
        except Exception as error:
            self.set_aside(group_id, turn, error)

    def set_aside(self, group_id: str, turn: Turn, error: Exception) -> None:
        """Remove a classic group after an internal error, because its state may be wrong.

        Its members join again.

        A consumer group is not removed, because its state is exactly that of its records.
        """
        turn.failures.append((group_id, error))
        if isinstance(self.groups.get(group_id), ConsumerGroup):
            return
        self.remove(group_id, turn, ErrorCode.UNKNOWN_SERVER_ERROR)

    # -- requests

    def join(self, request: JoinRequest, ticket: object, turn: Turn) -> None:
        """Handle JoinGroup. The first member without an id creates a group."""
        before = self.groups.get(request.group_id)
        if isinstance(before, ConsumerGroup):
            if before.members:
                return self._mixed.join(before, request, ticket, turn)
            self.consumers.append_tombstones(before, turn)
            del self.groups[request.group_id]
        group = self.classic(request.group_id)
        if not self._has_room(group, request):
            full = ErrorCode.GROUP_MAX_SIZE_REACHED
            return turn.answer(ticket, JoinAnswer(error=full, member_id=request.member_id))
        if group is not None:
            return join(group, request, ticket, turn)
        if request.member_id != NO_MEMBER:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            return turn.answer(ticket, JoinAnswer(error=unknown, member_id=request.member_id))
        if len(self.groups) >= GROUPS_MAX:
            full = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return turn.answer(ticket, JoinAnswer(error=full))
        group = self.groups[request.group_id] = self._new(request.group_id, turn.wall_ms)
        join(group, request, ticket, turn)
        # As in Kafka, the group can be listed from now on, even by the next coordinator. If no
        # member ever joins, the group expires.
        empty = GroupValue("", 0, None, None, group.state_since_ms, ())
        turn.store(request.group_id, empty, lambda error, later: None)

    def sync(self, request: SyncRequest, ticket: object, turn: Turn) -> None:
        """Handle SyncGroup.

        The answer for `ticket` is added to `turn`, or to a later turn if the request must wait.
        """
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._mixed.sync(group, request, ticket, turn)
        if not isinstance(group, ClassicGroup):
            return turn.answer(ticket, SyncAnswer(error=ErrorCode.UNKNOWN_MEMBER_ID))
        return sync(group, request, ticket, turn)

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        turn: Turn,
    ) -> None:
        """Handle Heartbeat, or raise the KafkaError of its answer."""
        group = self.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self._mixed.heartbeat(group, member_id, instance_id, generation, turn)
        if not isinstance(group, ClassicGroup):
            raise UnknownMemberId
        heartbeat(group, member_id, instance_id, generation, turn)

    def leave(self, group_id: str, leaving: Sequence[LeavingMember], turn: Turn) -> list[int]:
        """Handle LeaveGroup. Return an ErrorCode for each member.

        Raises CoordinatorNotAvailable for a dead group, or if a consumer group has taken its place.
        """
        group = self.groups.get(group_id)
        # The group was upgraded when the first of several members left.
        if isinstance(group, ConsumerGroup):
            raise CoordinatorNotAvailable
        if not isinstance(group, ClassicGroup):
            return [ErrorCode.UNKNOWN_MEMBER_ID] * len(leaving)
        return leave(group, leaving, turn)

    def offsets_committed(self, group_id: str, member_id: str, turn: Turn) -> None:
        """Extend the session of a member that commits offsets."""
        group = self.classic(group_id)
        if group is not None and group.state in _SESSION_GOES_ON:
            member = group.members.get(member_id)
            if member is not None:
                expect_heartbeat(group, member, turn)

    def find(self, group_id: str) -> Group:
        """Return the group, or raise GroupIdNotFound."""
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        return group

    def find_classic(self, group_id: str) -> ClassicGroup:
        """Return the classic group, or raise GroupIdNotFound."""
        group = self.find(group_id)
        if not isinstance(group, ClassicGroup):
            raise GroupIdNotFound(f"Group {group_id} is not a classic group.")
        return group

    def classic(self, group_id: str) -> ClassicGroup | None:
        """Return the classic group of this id, or None."""
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def check_room(self, group_id: str) -> None:
        """Raise CoordinatorNotAvailable if the group does not exist and GROUPS_MAX groups exist."""
        if group_id not in self.groups and len(self.groups) >= GROUPS_MAX:
            raise CoordinatorNotAvailable

    def obtain_simple(self, group_id: str, wall_ms: int) -> Group:
        """Return the group, or create a group without members, which only has offsets."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = self._new(group_id, wall_ms)
        return group

    def _new(self, group_id: str, wall_ms: int) -> ClassicGroup:
        return ClassicGroup(group_id, self.held_metadata, wall_ms)

    def _has_room(self, group: ClassicGroup | None, request: JoinRequest) -> bool:
        """Return whether a member's metadata fits into the memory limit.

        Metadata that is no larger than the member's previous metadata always fits.
        """
        more = metadata_bytes(request.protocols)
        known = None
        if group is not None:
            holder = group.static_members.get(request.group_instance_id or "", "")
            known = group.members.get(request.member_id or holder)
        if known is not None:
            more -= metadata_bytes(known.protocols)
        else:
            names = request.new_member_id, request.group_instance_id, request.client_id
            more += MEMBER_BYTES + text_bytes(*names)
        return more <= 0 or self.held_metadata.size_bytes + more <= METADATA_BYTES_MAX

    # -- deadlines

    def due(self, turn: Turn, count_max: int | None = None) -> int:
        """Handle up to `count_max` expired deadlines, the earliest first. Return their number."""
        count = 0
        for key in islice(self.deadlines.pop_due(turn.now_ms), count_max):
            count += 1
            self.attempt(key[1], turn, partial(self._meet, key, turn))
        return count

    def _meet(self, key: DeadlineKey, turn: Turn) -> None:
        kind, group_id, member_id = key
        if kind in (SESSION, REVOCATION, REJOIN):
            return self.consumers.meet(key, turn)
        group = self.groups[group_id]
        assert isinstance(group, ClassicGroup)
        if kind == HEARTBEAT:
            session_deadline(group, member_id, turn)
        elif kind == JOIN:
            join_deadline(group, turn)
        else:
            sync_deadline(group, turn)


def _begin_sessions(group: ClassicGroup, turn: Turn) -> None:
    group.read_subscriptions(turn)
    for member in group.members.values():
        expect_heartbeat(group, member, turn)
    if len(group.members) > turn.settings.max_size:
        prepare_rebalance(group, turn, "it has more members than group.max.size now")
    elif group.needs_rebalance:
        prepare_rebalance(group, turn, DOWNGRADED)
