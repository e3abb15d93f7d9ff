"""A consumer group (KIP-848), which is the state of its records in the log.

A group is changed only by `replay`, with each record that this coordinator appends or loads. A
coordinator that loads the log therefore has the same group as the previous coordinator. Members
learn of a change only after its commit.

The states of a group are Empty, Assigning (epoch above the target epoch), Reconciling and Stable.
The states of a member are Stable, UnrevokedPartitions and UnreleasedPartitions (see
`reconciliation`).
"""

from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import ClassVar

from ....wire.errors import (
    IllegalGeneration,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedVersion,
)
from ..group import ExpiryRule, GroupType
from ..group_member import MEMBER_BYTES, HeldMetadata, metadata_bytes, text_bytes
from .reconciliation import MemberState
from .record_codec import encode_consumer_key
from .records import (
    ConsumerKey,
    ConsumerMember,
    ConsumerMemberKey,
    ConsumerValue,
    CurrentAssignment,
    CurrentAssignmentKey,
    GroupEpoch,
    GroupEpochKey,
    GroupTopicsKey,
    PartitionsByTopic,
    ResolvedPattern,
    ResolvedPatternKey,
    TargetAssignment,
    TargetAssignmentKey,
    TargetEpoch,
    TargetEpochKey,
)

EMPTY, ASSIGNING, RECONCILING, STABLE = "Empty", "Assigning", "Reconciling", "Stable"
JOINS, LEAVES, LEAVES_FOR_NOW = 0, -1, -2  # special member epochs in requests
NAME_BYTES = 60  # Python's memory for a string, besides its characters
MEMBER_EPOCHS_FROM = 9  # the version of OffsetCommit
NO_TARGET = TargetEpoch(0)
NOTHING_ASSIGNED = CurrentAssignment(0, -1, MemberState.STABLE, {}, {})
ConsumerRecord = tuple[ConsumerKey, ConsumerValue | None]


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    """One group of the newer protocol.

    `appended_until` is the offset after its last record, and answers wait until that record is
    committed. `checked_version` is the version of the topics with which the group's hash was
    compared. `resolved_creations` is the count `KnownTopics.creations` when the group's patterns
    were resolved. If the records of a long job could not be appended, the job is tried again at
    `long_work_after_ms`.
    """

    type: ClassVar[GroupType] = GroupType.CONSUMER
    group_id: str
    held_metadata: HeldMetadata  # counted together with other groups
    epoch: int = 0
    metadata_hash: int = 0
    target: TargetEpoch = NO_TARGET
    members: dict[str, ConsumerMember] = field(default_factory=dict[str, ConsumerMember])
    targets: dict[str, PartitionsByTopic] = field(default_factory=dict[str, PartitionsByTopic])
    assignments: dict[str, CurrentAssignment] = field(default_factory=dict[str, CurrentAssignment])
    patterns: dict[str, ResolvedPattern] = field(default_factory=dict[str, ResolvedPattern])
    instances: dict[str, str] = field(default_factory=dict[str, str])  # instance id -> member id
    holders: dict[tuple[bytes, int], str] = field(default_factory=dict[tuple[bytes, int], str])
    # Topic -> number of subscribed members.
    named: Counter[str] = field(default_factory=Counter[str])
    subscribed_patterns: Counter[str] = field(default_factory=Counter[str])
    has_topics_record: bool = False
    appended_until: int = 0
    checked_version: int = -1
    resolved_creations: int = -1
    long_work_after_ms: int = 0
    _state: str | None = None

    # -- the log

    def replay(self, key: ConsumerKey, value: ConsumerValue | None) -> None:
        """Apply one record of the group. A value of None is a tombstone.

        `ConsumerGroups` handles the tombstone of a group's epoch, which removes the group.
        """
        self._state = None
        match key:
            case GroupEpochKey():
                assert isinstance(value, GroupEpoch)
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case GroupTopicsKey():
                self.has_topics_record = value is not None
            case ConsumerMemberKey(_, member_id):
                assert value is None or isinstance(value, ConsumerMember)
                self._replay_member(member_id, value)
            case TargetEpochKey():
                assert value is None or isinstance(value, TargetEpoch)
                self.target = NO_TARGET if value is None else value
            case TargetAssignmentKey(_, member_id):
                assert value is None or isinstance(value, TargetAssignment)
                if value is None:
                    self.targets.pop(member_id, None)
                else:
                    self.targets[member_id] = value.partitions
            case CurrentAssignmentKey(_, member_id):
                assert value is None or isinstance(value, CurrentAssignment)
                self._replay_assignment(member_id, value)
            case ResolvedPatternKey(_, pattern):
                assert value is None or isinstance(value, ResolvedPattern)
                if value is None:
                    self.patterns.pop(pattern, None)
                else:
                    self.patterns[pattern] = value

    def _replay_member(self, member_id: str, member: ConsumerMember | None) -> None:
        before = self.members.pop(member_id, None)
        if before is not None:
            self.held_metadata.size_bytes -= member_bytes(member_id, before)
            self.named.subtract(before.topic_names)
            for name in before.topic_names:
                if not self.named[name]:
                    del self.named[name]
            if before.topic_pattern:
                self.subscribed_patterns[before.topic_pattern] -= 1
                if not self.subscribed_patterns[before.topic_pattern]:
                    del self.subscribed_patterns[before.topic_pattern]
            instance_id = before.instance_id
            if instance_id is not None and self.instances.get(instance_id) == member_id:
                del self.instances[instance_id]
        if member is None:
            return
        self.members[member_id] = member
        self.held_metadata.size_bytes += member_bytes(member_id, member)
        self.named.update(member.topic_names)
        if member.topic_pattern:
            self.subscribed_patterns[member.topic_pattern] += 1
        if member.instance_id is not None:
            self.instances[member.instance_id] = member_id

    def _replay_assignment(self, member_id: str, assignment: CurrentAssignment | None) -> None:
        before = self.assignments.pop(member_id, None)
        if before is not None:
            for where in held_partitions(before):
                if self.holders.get(where) == member_id:
                    del self.holders[where]
        if assignment is not None:
            self.assignments[member_id] = assignment
            self.holders.update(dict.fromkeys(held_partitions(assignment), member_id))

    def tombstones(self) -> list[ConsumerKey]:
        """Return the keys of the group's records, with the key of the group's epoch last."""
        group_id, keys = self.group_id, list[ConsumerKey]()
        keys += [CurrentAssignmentKey(group_id, each) for each in self.assignments]
        keys += [TargetAssignmentKey(group_id, each) for each in self.targets]
        keys.append(TargetEpochKey(group_id))
        keys += [ConsumerMemberKey(group_id, each) for each in self.members]
        keys += [ResolvedPatternKey(group_id, each) for each in self.patterns]
        if self.has_topics_record:
            keys.append(GroupTopicsKey(group_id))
        return [*keys, GroupEpochKey(group_id)]

    # -- the group

    @property
    def protocol_type(self) -> str:
        return "consumer"

    @property
    def state_name(self) -> str:
        if self._state is None:
            self._state = self._find_state()
        return self._state

    def _find_state(self) -> str:
        if not self.members:
            return EMPTY
        if self.epoch > self.target.epoch:
            return ASSIGNING
        if all(map(self.is_reconciled, self.members)):
            return STABLE
        return RECONCILING

    def is_reconciled(self, member_id: str) -> bool:
        """Return whether a member has exactly the partitions of the current target assignment."""
        now = self.assignments.get(member_id, NOTHING_ASSIGNED)
        return now.state == MemberState.STABLE and now.member_epoch == self.target.epoch

    def is_held(self, topic_id: bytes, partition: int) -> bool:
        """Return whether a member owns a partition, or has not revoked it yet."""
        return (topic_id, partition) in self.holders

    def check_member(self, member_id: str) -> ConsumerMember:
        """Return a member, or raise UnknownMemberId."""
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    @property
    def is_unused(self) -> bool:
        return not self.members

    def topics_of(self, member: ConsumerMember) -> Iterable[str]:
        """Return the names of the topics that a member subscribes to, some possibly twice."""
        resolved = self.patterns.get(member.topic_pattern or "")
        return member.topic_names if resolved is None else (*member.topic_names, *resolved.topics)

    @property
    def subscribed_topics(self) -> AbstractSet[str]:
        """Return the names of the topics that members are subscribed to."""
        names = set(self.named)
        for pattern in self.subscribed_patterns:
            resolved = self.patterns.get(pattern)
            if resolved is not None:
                names.update(resolved.topics)
        return names

    # -- questions about offsets

    @property
    def subscribed_or_all(self) -> AbstractSet[str]:
        return self.subscribed_topics

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        is_transactional: bool,
        api_version: int,
        partitions: Iterable[tuple[bytes, int]],
    ) -> None:
        """Check the member that commits offsets, by the epochs of member and partitions (KIP-1251).

        An older epoch of a member is valid for partitions that the member has owned since that
        epoch. Raises UnknownMemberId, StaleMemberEpoch (IllegalGeneration for a member of the
        classic protocol), UnsupportedVersion.
        """
        if generation < 0:
            if not self.members:
                return  # an administrator, or a consumer that assigns its partitions itself
            if is_transactional and not member_id and instance_id is None:
                return
        is_classic = self.check_member(member_id).classic is not None
        if not is_transactional and api_version < MEMBER_EPOCHS_FROM and not is_classic:
            raise UnsupportedVersion(
                "OffsetCommit version 9 or above must be used by members using the consumer group "
                "protocol"
            )
        stale = IllegalGeneration if is_classic else StaleMemberEpoch
        now = self.assignments.get(member_id, NOTHING_ASSIGNED)
        if generation > now.member_epoch:
            raise stale(
                f"Received member epoch {generation} is newer than current member epoch "
                f"{now.member_epoch}."
            )
        if generation == now.member_epoch:
            return
        for topic_id, partition in partitions:
            epoch = now.assigned.get(topic_id, {}).get(partition)
            if epoch is None:
                epoch = now.pending_revocation.get(topic_id, {}).get(partition)
            if epoch is None or generation < epoch:
                raise stale(
                    f"Received member epoch {generation} is older than the epoch that partition "
                    f"{partition} of a topic was assigned in, or it is not the member's."
                )

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Check the member that fetches offsets.

        Raises UnknownMemberId, StaleMemberEpoch, IllegalGeneration.
        """
        if member_id is None and member_epoch < 0:
            return
        stale = StaleMemberEpoch
        if self.check_member(member_id or "").classic is not None:
            stale = IllegalGeneration
        now = self.assignments.get(member_id or "", NOTHING_ASSIGNED)
        if member_epoch != now.member_epoch:
            raise stale(
                f"The received member epoch {member_epoch} does not match the expected member "
                f"epoch {now.member_epoch}."
            )

    def check_offset_delete(self) -> None:
        """Accept every request. The caller does not delete offsets of subscribed topics."""

    def check_delete(self) -> None:
        """Raise NonEmptyGroup if the group has members."""
        if self.members:
            raise NonEmptyGroup(f"Group {self.group_id} is not empty.")

    def offset_expiry(self) -> ExpiryRule | None:
        return ExpiryRule(subscribed=self.subscribed_topics)

    def tombstone_keys(self) -> list[bytes]:
        return [encode_consumer_key(key) for key in self.tombstones()]


def held_partitions(assignment: CurrentAssignment) -> Iterable[tuple[bytes, int]]:
    """Return the partitions that a member owns, or has not revoked yet."""
    for epochs in (assignment.assigned, assignment.pending_revocation):
        for topic_id, partitions in epochs.items():
            for partition in partitions:
                yield topic_id, partition


def member_bytes(member_id: str, member: ConsumerMember) -> int:
    """Return the number of bytes of memory that a member's metadata takes."""
    names = member.topic_names
    texts = member.instance_id, member.rack_id, member.client_id, member.topic_pattern
    brought = 0 if member.classic is None else metadata_bytes(member.classic.protocols)
    return MEMBER_BYTES + NAME_BYTES * len(names) + text_bytes(member_id, *texts, *names) + brought
