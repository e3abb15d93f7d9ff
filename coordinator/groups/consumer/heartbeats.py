"""ConsumerGroupHeartbeat, as a pure function of the group, the request and their context.

A heartbeat goes through these steps:

    1. the member
    2. the member's record, if changed
    3. the member's pattern
    4. the group's epoch, if topics or the assignor have changed
    5. the target assignment, if outdated
    6. the member's assignment
    7. the answer

    member epoch     meaning
    0                joins, or joins again after it was fenced
    -1               leaves
    -2               leaves temporarily, as a static member (see `leaving`)
    its own          continues
    the previous     continues if it owns only assigned partitions, since its last answer was lost
    any other        FENCED_MEMBER_EPOCH, so the member abandons its partitions and joins again

The JoinGroup of a member with the classic protocol (`classic` is set) goes through the same steps.
That member replaces a static member immediately, as in a classic group.

The group is not changed here. The records are appended as one batch and replayed into the group,
and the answer is sent when the records are committed. A heartbeat that changes nothing has no
records.
"""

from dataclasses import dataclass, field, replace

from ....runtime.steps import run_to_end
from ....wire.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupMaxSizeReached,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from ..assignors.spec import PartitionsByTopic
from .consumer_group import (
    JOINS,
    LEAVES_FOR_NOW,
    NOTHING_ASSIGNED,
    ConsumerGroup,
    ConsumerRecord,
)
from .heartbeat_messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    HeartbeatContext,
    HeartbeatDecision,
)
from .patterns import check_pattern
from .reconciliation import MemberState, ReconciliationInput, reconcile
from .records import (
    ConsumerMember,
    ConsumerMemberKey,
    CurrentAssignment,
    CurrentAssignmentKey,
    GroupEpoch,
    GroupEpochKey,
    GroupTopicsKey,
    ResolvedPatternKey,
    TargetAssignment,
    TargetAssignmentKey,
    TargetEpoch,
    TargetEpochKey,
)
from .subscriptions import metadata_hash, topic_ids
from .target_assignment import is_due, is_small, making_target, preferred_assignor

NEW_MEMBER = ConsumerMember(None, None, "", "", (), "", -1, None)
PATTERNS_REFRESH_MS_MIN, PATTERNS_REFRESH_MS_MAX = 10_000, 600_000


def heartbeat(
    group: ConsumerGroup, request: ConsumerHeartbeat, around: HeartbeatContext
) -> HeartbeatDecision:
    """Return the records and the answer for the heartbeat of a member that stays or joins.

    Raises the KafkaError of the answer.
    """
    return _Heartbeat(group, request, around).decide()


def is_at_rest(
    group: ConsumerGroup, member_id: str, epoch: int, client: tuple[str, str], topics_version: int
) -> bool:
    """Return whether a heartbeat with only this member epoch changes nothing.

    This applies to most heartbeats. `heartbeat` would also find no change, at more than twice the
    cost.

    client: the client's id and host.
    """
    member = group.members.get(member_id)
    return (
        member is not None
        and member.classic is None
        and 0 < epoch == group.epoch == group.target.epoch
        and group.checked_version == topics_version
        and not group.subscribed_patterns
        and client == (member.client_id, member.client_host)
        and _is_reconciled(group.assignments.get(member_id, NOTHING_ASSIGNED), epoch)
    )


@dataclass(slots=True, eq=False)
class _Heartbeat:
    """One ConsumerGroupHeartbeat, with the records that its steps have added so far."""

    group: ConsumerGroup
    request: ConsumerHeartbeat
    around: HeartbeatContext
    records: list[ConsumerRecord] = field(default_factory=list[ConsumerRecord])
    replaced_id: str | None = None  # the previous member id of a static member
    needs_patterns: bool = False

    def decide(self) -> HeartbeatDecision:
        request, settings = self.request, self.around.settings
        before, assignment = self._identify()
        member = self._described(before)
        if member != before:
            self.records.append((ConsumerMemberKey(self.group.group_id, request.member_id), member))
        names_changed = member.topic_names != before.topic_names
        pattern_changed, is_resolved = self._pattern(before, member)
        must_rise = names_changed or is_resolved or self._changes_assignor(before, member)
        epoch = self._epoch(before, member, must_rise=must_rise)
        target_epoch, target, needs_target = self._target(member, epoch)
        now = assignment
        has_changed = names_changed or pattern_changed
        if has_changed or not _is_reconciled(assignment, target_epoch):
            now = reconcile(
                ReconciliationInput(
                    current=assignment,
                    target_epoch=target_epoch,
                    target=target,
                    subscribed=topic_ids(self.group.topics_of(member), self.around.topics.by_name),
                    has_subscription_changed=has_changed,
                    owned=request.owned,
                    is_held=self.group.is_held,
                )
            )
        is_new = now != assignment
        if is_new:
            self.records.append((CurrentAssignmentKey(self.group.group_id, request.member_id), now))
        tells = request.member_epoch == JOINS or request.is_full
        answer = ConsumerHeartbeatAnswer(
            member_id=request.member_id,
            member_epoch=now.member_epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            assignment=now.assigned if tells or now.assigned != assignment.assigned else None,
        )
        is_revoking = now.state == MemberState.UNREVOKED_PARTITIONS
        return HeartbeatDecision(
            answer=answer,
            records=self.records,
            member_id=request.member_id,
            is_reconciled=is_new,
            rebalance_ms=member.rebalance_timeout_ms if is_revoking else None,
            needs_target=needs_target,
            needs_patterns=self.needs_patterns,
        )

    # -- the member

    def _identify(self) -> tuple[ConsumerMember, CurrentAssignment]:
        """Return the known member and its assignment, or raise the KafkaError of the answer."""
        group, request = self.group, self.request
        if len(group.members) >= self.around.settings.max_size and (
            request.member_id not in group.members
        ):
            raise GroupMaxSizeReached(
                "The consumer group has reached its maximum capacity of "
                f"{self.around.settings.max_size} members."
            )
        joins = request.member_epoch == JOINS
        if request.instance_id is not None:
            holder = group.instances.get(request.instance_id)
            if joins:
                return self._new() if holder is None else self._take_place(holder)
            check_instance(group, request.member_id, request.instance_id)
        elif (joins or request.classic is not None) and request.member_id not in group.members:
            return self._new()
        member = group.check_member(request.member_id)
        assignment = group.assignments.get(request.member_id, NOTHING_ASSIGNED)
        if not joins and request.classic is None:
            _check_epoch(request.member_epoch, request.owned, assignment)
        return member, assignment

    def _new(self) -> tuple[ConsumerMember, CurrentAssignment]:
        group, member_id = self.group, self.request.member_id
        return (
            group.members.get(member_id, NEW_MEMBER),
            group.assignments.get(member_id, NOTHING_ASSIGNED),
        )

    def _take_place(self, holder: str) -> tuple[ConsumerMember, CurrentAssignment]:
        """Add records that give the place of the static member `holder` to the request's member id.

        Raises UnreleasedInstanceId unless `holder` has left temporarily, or one of the two members
        uses the classic protocol.
        """
        group, request = self.group, self.request
        group_id, member_id = group.group_id, request.member_id
        member, assignment = group.members[holder], group.assignments.get(holder, NOTHING_ASSIGNED)
        is_classic = member.classic is not None or request.classic is not None
        if assignment.member_epoch != LEAVES_FOR_NOW and not is_classic:
            raise UnreleasedInstanceId(
                f"Static member {member_id} with instance id {request.instance_id} cannot join the "
                f"group because the instance id is owned by {holder} member."
            )
        assignment = replace(assignment, member_epoch=0, previous_member_epoch=0)
        if holder != member_id:
            self.replaced_id = holder
        self.records += [
            (CurrentAssignmentKey(group_id, holder), None),
            (TargetAssignmentKey(group_id, holder), None),
            (ConsumerMemberKey(group_id, holder), None),
            (ConsumerMemberKey(group_id, member_id), member),
            (
                TargetAssignmentKey(group_id, member_id),
                TargetAssignment(group.targets.get(holder, {})),
            ),
            (CurrentAssignmentKey(group_id, member_id), assignment),
        ]
        return member, assignment

    def _described(self, before: ConsumerMember) -> ConsumerMember:
        """Return the member with the changes of this heartbeat."""
        request = self.request
        timeout_ms = request.rebalance_timeout_ms
        said = (
            request.instance_id,
            request.rack_id,
            request.topic_names,
            request.topic_pattern,
            request.server_assignor,
        )
        if (
            all(each is None for each in said)
            and timeout_ms == -1
            and before.classic is None
            and before.client_id == request.client_id
            and before.client_host == request.client_host
        ):
            return before
        return ConsumerMember(
            instance_id=before.instance_id if request.instance_id is None else request.instance_id,
            rack_id=before.rack_id if request.rack_id is None else request.rack_id,
            client_id=request.client_id,
            client_host=request.client_host,
            topic_names=before.topic_names if request.topic_names is None else request.topic_names,
            topic_pattern=(
                before.topic_pattern if request.topic_pattern is None else request.topic_pattern
            ),
            rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            server_assignor=(
                before.server_assignor
                if request.server_assignor is None
                else request.server_assignor
            ),
            classic=request.classic,
        )

    # -- its subscription

    def _pattern(self, before: ConsumerMember, member: ConsumerMember) -> tuple[bool, bool]:
        """Return whether the member's pattern has changed, and whether the new one is resolved."""
        group, old, new = self.group, before.topic_pattern or "", member.topic_pattern or ""
        is_resolved = False
        if old != new:
            if old and group.subscribed_patterns[old] <= 1 and old in group.patterns:
                self.records.append((ResolvedPatternKey(group.group_id, old), None))
            if new and not group.subscribed_patterns[new]:
                check_pattern(new)
            is_resolved = new in group.patterns if new else True
        if new or group.subscribed_patterns:
            self.needs_patterns = patterns_are_due(group, self.around, new)
        return old != new, is_resolved

    def _changes_assignor(self, before: ConsumerMember, member: ConsumerMember) -> bool:
        """Return whether this member's preference changes the group's assignor."""
        if member.server_assignor == before.server_assignor:
            return False
        default, members = self.around.settings.assignors[0], self.group.members
        voting = {**members, self.request.member_id: member}
        return preferred_assignor(voting.values(), default) != preferred_assignor(
            members.values(), default
        )

    def _epoch(self, before: ConsumerMember, member: ConsumerMember, *, must_rise: bool) -> int:
        """Return the group's epoch, raised if subscriptions, topics or the assignor changed."""
        group = self.group
        must_rise |= not group.epoch  # a member that got epoch 0 would join again
        version = self.around.topics.version
        if not must_rise and group.checked_version == version:
            return group.epoch
        names = self._subscribed_topics(before, member)
        hashed = metadata_hash(names, self.around.topics.by_name)
        if not must_rise and hashed == group.metadata_hash:
            group.checked_version = version
            return group.epoch
        self.records.append((GroupEpochKey(group.group_id), GroupEpoch(group.epoch + 1, hashed)))
        if group.has_topics_record:
            self.records.append((GroupTopicsKey(group.group_id), None))
        return group.epoch + 1

    def _subscribed_topics(self, before: ConsumerMember, member: ConsumerMember) -> set[str]:
        """Return the names of the group's subscribed topics, with the changes of this heartbeat."""
        group, old, new = self.group, before.topic_pattern, member.topic_pattern
        dropped = {name for name in before.topic_names if group.named[name] <= 1}
        names = (group.named.keys() - dropped) | set(member.topic_names)
        for pattern, resolved in group.patterns.items():
            others = group.subscribed_patterns[pattern] - (pattern == old)
            if others > 0 or pattern == new:
                names.update(resolved.topics)
        return names

    # -- its target

    def _target(self, member: ConsumerMember, epoch: int) -> tuple[int, PartitionsByTopic, bool]:
        """Return the target's epoch, the member's part, and whether to make a new target."""
        group, around = self.group, self.around
        member_id = self.request.member_id
        target_of = group.targets.get(self.replaced_id or member_id, {})
        interval_ms = around.settings.assignment_interval_ms
        if not is_due(group, epoch, around.now_ms, interval_ms):
            return group.target.epoch, target_of, False
        names = group.subscribed_topics | set(group.topics_of(member))
        if not is_small(len(group.members) + 1, names, around.topics.by_name):
            return group.target.epoch or self._first_target(epoch), target_of, True
        members, targets = dict(group.members), dict(group.targets)
        if self.replaced_id is not None:
            del members[self.replaced_id]
            targets[member_id] = targets.pop(self.replaced_id, {})
        members[member_id] = member
        made = run_to_end(
            making_target(
                group.group_id,
                epoch,
                members,
                targets,
                group.patterns,
                around.topics.by_name,
                around.now_ms,
                around.settings.assignors[0],
            )
        )
        self.records += made
        for key, value in made:
            if isinstance(key, TargetAssignmentKey) and key.member_id == member_id:
                assert isinstance(value, TargetAssignment)
                target_of = value.partitions
        return epoch, target_of, False

    def _first_target(self, epoch: int) -> int:
        """Add records of an empty first target for a large group, and return its epoch.

        Without a target the member would get epoch 0, with which its next heartbeat would be a
        join. That heartbeat lacks the fields of a join.
        """
        group_id = self.group.group_id
        epochs = [value for _, value in self.records if isinstance(value, GroupEpoch)]
        hashed = epochs[-1].metadata_hash if epochs else self.group.metadata_hash
        self.records += [
            (TargetEpochKey(group_id), TargetEpoch(epoch)),
            (GroupEpochKey(group_id), GroupEpoch(epoch + 1, hashed)),
        ]
        return epoch


def check_instance(group: ConsumerGroup, member_id: str, instance_id: str) -> None:
    """Raise UnknownMemberId or FencedInstanceId unless the static member has this member id."""
    holder = group.instances.get(instance_id)
    if holder is None:
        raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
    if holder != member_id:
        raise FencedInstanceId(
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{holder}."
        )


def patterns_are_due(group: ConsumerGroup, around: HeartbeatContext, new: str = "") -> bool:
    """Return whether the group's regular expressions must be resolved to topics now.

    The reasons are a new expression, new topics, or an old result. Results are kept for at least
    PATTERNS_REFRESH_MS_MIN.
    """
    now_ms = around.now_ms
    resolved = [
        group.patterns[each] for each in group.subscribed_patterns if each in group.patterns
    ]
    newest_ms = max((each.timestamp_ms for each in resolved), default=None)
    if newest_ms is None:
        return True
    if 0 <= now_ms - newest_ms <= PATTERNS_REFRESH_MS_MIN:
        return False
    is_unknown = len(resolved) < len(group.subscribed_patterns) or bool(
        new and new not in group.patterns
    )
    has_new_topics = group.resolved_creations != around.topics.creations
    is_old = not 0 <= now_ms - newest_ms <= PATTERNS_REFRESH_MS_MAX
    return is_unknown or has_new_topics or is_old


def _check_epoch(
    epoch: int, owned: PartitionsByTopic | None, assignment: CurrentAssignment
) -> None:
    """Raise FencedMemberEpoch unless the member has its current or a valid previous epoch."""
    if epoch == assignment.member_epoch:
        return
    is_greater = epoch > assignment.member_epoch
    if not is_greater and epoch == assignment.previous_member_epoch and owned is not None:
        given = assignment.assigned
        if all(partitions <= given.get(id_, {}).keys() for id_, partitions in owned.items()):
            return  # the answer with the new epoch was lost
    raise FencedMemberEpoch(
        f"The consumer group member has a {'greater' if is_greater else 'smaller'} member epoch "
        f"({epoch}) than the one known by the group coordinator ({assignment.member_epoch}). The "
        "member must abandon all its partitions and rejoin."
    )


def _is_reconciled(assignment: CurrentAssignment, target_epoch: int) -> bool:
    return assignment.state == MemberState.STABLE and assignment.member_epoch == target_epoch
