"""A classic group, with its members, its generation, and its state.

The members' requests are handled in `joining`, `syncing` and `leaving`, the change of generations
in `rebalance`. This file stores the members, their instance ids, their waiting requests, and the
protocols that all of them support.

KIP-62, KIP-345 (static members), KIP-394 (pending members), KIP-814.
"""

from collections import Counter
from collections.abc import Container, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import ClassVar

from ...runtime.steps import StepCounter, Steps
from ...wire.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    FencedInstanceId,
    GroupIdNotFound,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from .consumer_protocol import CONSUMER, EveryTopic, subscribed_topics
from .group import ExpiryRule, GroupType
from .group_member import HeldMetadata, Member, metadata_bytes, pending_member_bytes
from .group_messages import (
    NO_MEMBER,
    JoinAnswer,
    JoinedMember,
    JoinRequest,
    Protocols,
    SyncAnswer,
)
from .group_states import ALLOWED, MAY_REBALANCE, GroupState
from .records import GroupValue, MemberValue, encode_group_key
from .turn import HEARTBEAT, Turn


@dataclass(slots=True, eq=False)
class ClassicGroup:
    """One classic group, with its members in the order in which they joined."""

    type: ClassVar[GroupType] = GroupType.CLASSIC
    group_id: str
    held_metadata: HeldMetadata  # counted together with other groups
    state_since_ms: int  # wall-clock time
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState = GroupState.DEAD
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict[str, Member])
    # Instance id -> member id.
    static_members: dict[str, str] = field(default_factory=dict[str, str])
    # Member ids that were assigned, but have not joined.
    pending_join: set[str] = field(default_factory=set[str])
    pending_sync: set[str] = field(default_factory=set[str])
    awaiting_join_count: int = 0
    # Protocol -> number of members that support it.
    support: Counter[str] = field(default_factory=Counter[str])
    subscribed: AbstractSet[str] | None = None  # None while unknown
    new_member_added: bool = False  # a member joined during the initial rebalance delay
    initial_wait_left_ms: int = 0
    needs_rebalance: bool = False  # True if loaded after a downgrade, see migration

    @classmethod
    def restored(
        cls, group_id: str, stored: GroupValue, held_metadata: HeldMetadata
    ) -> "ClassicGroup":
        """Return the group as its last record in the log describes it."""
        group = cls(group_id, held_metadata, stored.current_state_timestamp_ms)
        group.generation = stored.generation
        group.protocol_type = stored.protocol_type or None
        group.protocol_name = stored.protocol
        group.leader_id = stored.leader
        for member in stored.members:
            timeout_ms = member.rebalance_timeout_ms
            group.add(
                Member(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.session_timeout_ms
                    if timeout_ms < 0
                    else timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    protocols=((stored.protocol or "", member.subscription),),
                    assignment=member.assignment,
                ),
                stored.protocol_type,
            )
        if group.members:
            group.state = GroupState.STABLE
        group.needs_rebalance = bool(group.members) and stored.leader is None
        if group.leader_id not in group.members:
            group.leader_id = next(iter(group.members), None)
        return group

    def to_store(self, assignments: dict[str, bytes]) -> GroupValue:
        """Return the record of this generation, with the assignment of each member."""
        return GroupValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader_id,
            current_state_timestamp_ms=self.state_since_ms,
            members=tuple(
                MemberValue(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    session_timeout_ms=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=assignments[member.member_id],
                )
                for member in self.members.values()
            ),
        )

    # -- state

    def move_to(self, state: GroupState, wall_ms: int) -> None:
        """Change the state of the group. The transition must be an allowed one."""
        assert state in ALLOWED[self.state], f"{self.group_id}: {self.state} -> {state}"
        self.previous_state, self.state = self.state, state
        self.state_since_ms = wall_ms

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_unused(self) -> bool:
        return self.state is GroupState.EMPTY and not self.pending_join

    @property
    def may_rebalance(self) -> bool:
        """Return whether a rebalance can begin now."""
        return self.state in MAY_REBALANCE

    # -- members

    def add(self, member: Member, protocol_type: str, ticket: object | None = None) -> None:
        """Add a member. `ticket` identifies its JoinGroup, which then waits for the answer."""
        if member.group_instance_id is not None:
            assert member.group_instance_id not in self.static_members
            self.static_members[member.group_instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.support.update(name for name, _ in member.protocols)
        self.held_metadata.size_bytes += member.held_bytes
        self.wait_for_join(member, ticket)
        self._forget_pending(member.member_id)

    def expect(self, member_id: str) -> None:
        """Add a pending member, which has just got its member id."""
        self.pending_join.add(member_id)
        self.held_metadata.size_bytes += pending_member_bytes(member_id)

    def _forget_pending(self, member_id: str) -> None:
        if member_id in self.pending_join:
            self.pending_join.remove(member_id)
            self.held_metadata.size_bytes -= pending_member_bytes(member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, pending or not. An unknown id is ignored."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self._count_support(member.protocols, -1)
            self.held_metadata.size_bytes -= member.held_bytes
            if member.join_ticket is not None:
                self.awaiting_join_count -= 1
            if member.group_instance_id is not None:
                del self.static_members[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self._forget_pending(member_id)
        self.pending_sync.discard(member_id)

    def update(self, member: Member, said: JoinRequest | Member) -> None:
        """Update a member's protocols and timeouts from its JoinGroup."""
        self.held_metadata.size_bytes += metadata_bytes(said.protocols)
        self.held_metadata.size_bytes -= metadata_bytes(member.protocols)
        self._count_support(member.protocols, -1)
        member.protocols = said.protocols
        self._count_support(said.protocols, 1)
        member.rebalance_timeout_ms = said.rebalance_timeout_ms
        member.session_timeout_ms = said.session_timeout_ms

    def hold_metadata_in(self, held_metadata: HeldMetadata) -> None:
        """Count the bytes of the members' metadata in a counter that several groups share."""
        held_metadata.size_bytes += self.held_metadata.size_bytes
        self.held_metadata = held_metadata

    def release_metadata(self) -> None:
        """Subtract the members' metadata from the shared counter, because the group is removed."""
        for member in self.members.values():
            self.held_metadata.size_bytes -= member.held_bytes
        for member_id in self.pending_join:
            self.held_metadata.size_bytes -= pending_member_bytes(member_id)

    def replace_static(self, instance_id: str, new_member_id: str, turn: Turn) -> Member:
        """Replace a static member by its restarted process, which gets a new member id.

        The waiting requests of the old member id are answered with FENCED_INSTANCE_ID.
        """
        old = self.members.pop(self.static_members[instance_id])
        fenced = ErrorCode.FENCED_INSTANCE_ID
        self.answer_join(old, JoinAnswer(error=fenced, member_id=old.member_id), turn)
        self.answer_sync(old, SyncAnswer(error=fenced), turn)
        turn.cancel_deadline(HEARTBEAT, self.group_id, old.member_id)
        new = replace(old, member_id=new_member_id, is_new=False)
        self.members[new_member_id] = new
        self.held_metadata.size_bytes += new.held_bytes - old.held_bytes
        self.static_members[instance_id] = new_member_id
        if old.member_id in self.pending_sync:
            self.pending_sync.remove(old.member_id)
            self.pending_sync.add(new_member_id)
        if self.leader_id == old.member_id:
            self.leader_id = new_member_id
        return new

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """Return the member that a request names, or raise UnknownMemberId or FencedInstanceId."""
        if instance_id is not None:
            holder = self.static_members.get(instance_id)
            if holder is None:
                raise UnknownMemberId
            if holder != member_id:
                raise FencedInstanceId
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId
        return member

    @property
    def have_all_joined(self) -> bool:
        """Return whether all members have joined the next generation, and none is pending."""
        return len(self.members) == self.awaiting_join_count and not self.pending_join

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members."""
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    # -- requests that wait

    def wait_for_join(self, member: Member, ticket: object | None) -> None:
        """Store the ticket of a member's waiting JoinGroup. None means that no request waits."""
        self.awaiting_join_count += (ticket is not None) - (member.join_ticket is not None)
        member.join_ticket = ticket

    def answer_join(self, member: Member, answer: JoinAnswer, turn: Turn) -> None:
        """Answer the waiting JoinGroup of the member, if there is one."""
        if member.join_ticket is not None:
            turn.answer(member.join_ticket, answer)
            self.wait_for_join(member, None)

    @staticmethod
    def answer_sync(member: Member, answer: SyncAnswer, turn: Turn) -> bool:
        """Answer the waiting SyncGroup of the member. Return False if there is none."""
        if member.sync_ticket is None:
            return False
        turn.answer(member.sync_ticket, answer)
        member.sync_ticket = None
        return True

    def generation_for(self, member: Member, *, skip_assignment: bool = False) -> JoinAnswer:
        """Return a JoinGroup answer for this generation.

        Only the leader's answer has all members. skip_assignment: the leader need not assign again.
        """
        is_leader = member.member_id == self.leader_id
        return JoinAnswer(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader_id or NO_MEMBER,
            skip_assignment=skip_assignment,
            members=self.described() if is_leader else (),
        )

    def described(self) -> tuple[JoinedMember, ...]:
        """Return all members for the JoinGroup answer of the leader.

        Each member has its metadata for the chosen protocol.
        """
        return tuple(
            JoinedMember(m.member_id, m.group_instance_id, m.metadata(self.protocol_name))
            for m in self.members.values()
        )

    # -- protocols

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether a member with these protocols can join this group."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and bool(protocols)
        everyone = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.support[name] == everyone for name, _ in protocols
        )

    def choose_protocol(self) -> str:
        """Return the protocol that most members prefer among those that every member supports.

        In case of a tie, the preference of the earlier member decides.
        """
        everyone = len(self.members)
        candidates = {name for name, count in self.support.items() if count == everyone}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def _count_support(self, protocols: Protocols, step: int) -> None:
        for name, _ in protocols:
            self.support[name] += step
            if not self.support[name]:
                del self.support[name]

    def read_subscriptions(self, turn: Turn) -> None:
        """Read the subscribed topics of all members, in steps.

        Before the last step the topics are unknown, and no offset that a member might need is
        deleted.
        """
        self.subscribed = None
        if self.protocol_type != CONSUMER:
            return
        if not self.members:
            self.subscribed = frozenset()
        elif self.protocol_name is not None:
            said = [member.metadata(self.protocol_name) for member in self.members.values()]
            turn.do_in_steps(self._reading(self.generation, said))

    def _reading(self, generation: int, said: Iterable[bytes]) -> Steps[None]:
        topics, counter = set[str](), StepCounter()
        before: bytes | None = None
        for metadata in said:
            if counter.ends_step():
                yield
            if metadata != before and not (yield from subscribed_topics(metadata, topics, counter)):
                return
            before = metadata
        if self.generation == generation:  # another generation is read by another call
            self.subscribed = topics

    @property
    def subscribed_or_all(self) -> Container[str]:
        """Return the subscribed topics, or all if unknown. Only the type "consumer" has any."""
        if self.subscribed is None:
            return EveryTopic() if self.protocol_type == CONSUMER else frozenset[str]()
        return self.subscribed

    # -- questions about offsets

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        is_transactional: bool,
        **_: object,
    ) -> None:
        """Check the member that commits offsets (KIP-447 for transactional commits).

        Raises UnknownMemberId, FencedInstanceId, IllegalGeneration, RebalanceInProgress,
        CoordinatorNotAvailable.
        """
        if self.state is GroupState.DEAD:
            raise CoordinatorNotAvailable
        if generation < 0 and self.state is GroupState.EMPTY:
            return  # an administrator, or a consumer that assigns its partitions itself
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise IllegalGeneration
        elif not is_transactional and self.state is not GroupState.EMPTY:
            raise UnknownMemberId
        if not is_transactional and self.state is GroupState.COMPLETING_REBALANCE:
            raise RebalanceInProgress

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Accept every request, because OffsetFetch needs no valid member of a classic group."""

    def check_offset_delete(self) -> None:
        """Raise GroupIdNotFound for a dead group.

        Raises NonEmptyGroup for a group with members of another protocol type than "consumer",
        because their subscriptions are unknown.
        """
        if self.state is GroupState.DEAD:
            raise GroupIdNotFound
        if self.state is not GroupState.EMPTY and self.protocol_type != CONSUMER:
            raise NonEmptyGroup

    def check_delete(self) -> None:
        """Raise GroupIdNotFound for a dead group, or NonEmptyGroup for a group with members."""
        if self.state is GroupState.DEAD:
            raise GroupIdNotFound
        if self.state is not GroupState.EMPTY:
            raise NonEmptyGroup

    def offset_expiry(self) -> ExpiryRule | None:
        """Return Kafka's expiry rule for the group's offsets, or None if no offset may expire now.

        The retention of an empty group counts from the departure of its last member. Otherwise the
        retention counts from each commit.
        """
        if self.protocol_type is None:
            return ExpiryRule()  # the group has only offsets
        if self.state is GroupState.EMPTY:
            return ExpiryRule(None if self.state_since_ms < 0 else self.state_since_ms)
        if self.state is GroupState.STABLE and self.subscribed is not None:
            return ExpiryRule(subscribed=self.subscribed)
        return None

    def tombstone_keys(self) -> list[bytes]:
        return [encode_group_key(self.group_id)]
