"""The steps of a member from its current assignment to its target, one per heartbeat.

A partition never has two owners. A member first revokes the partitions that its target lacks, and
confirms the revocation by no longer listing them in its heartbeats. Only then the member gets the
target's epoch and the free partitions.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from ....wire.errors import FencedMemberEpoch
from ..assignors.spec import PartitionsByTopic
from .records import CurrentAssignment, EpochsByTopic

_NOTHING: frozenset[int] = frozenset()


class MemberState(IntEnum):
    """The states of a member in Kafka's records. A later version may have other numbers."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationInput:
    """The input for the next assignment of a member.

    `subscribed` has the ids of the topics to which the member is now subscribed, by name or by a
    resolved expression. `has_subscription_changed` is set if this heartbeat has changed the
    subscription. `owned` is the set of partitions that the heartbeat reports, or None without a
    report. `is_held` tells whether a partition is assigned to, or pending revocation by, any
    member.
    """

    current: CurrentAssignment
    target_epoch: int
    target: PartitionsByTopic
    subscribed: frozenset[bytes]
    has_subscription_changed: bool = False
    owned: PartitionsByTopic | None = None
    is_held: Callable[[bytes, int], bool]


def reconcile(given: ReconciliationInput) -> CurrentAssignment:
    """Return the member's next assignment, which is the same object if nothing changes.

    Raises FencedMemberEpoch for a member in an unknown state that may still own partitions.
    """
    current = given.current
    match current.state:
        case MemberState.STABLE:
            if current.member_epoch != given.target_epoch:
                return _towards_target(given, current.member_epoch)
            return _without_unsubscribed(given)
        case MemberState.UNREVOKED_PARTITIONS:
            if _owns_any(given.owned, current.pending_revocation):
                return _without_unsubscribed(given)
            return _towards_target(given, current.member_epoch)
        case MemberState.UNRELEASED_PARTITIONS:
            return _towards_target(given, current.member_epoch)
        case _:
            if given.owned is None or any(given.owned.values()):
                raise FencedMemberEpoch(
                    "The consumer group member is in an unknown state. "
                    "The member must abandon all its partitions and rejoin."
                )
            return _towards_target(given, given.target_epoch)


def _owns_any(owned: PartitionsByTopic | None, revoked: EpochsByTopic) -> bool:
    """Return whether the member may still own a partition in `revoked`.

    Without a report of its partitions (`owned` is None) the member may own all of them.
    """
    if owned is None:
        return True
    return any(not owned.get(id, frozenset()).isdisjoint(revoked[id]) for id in revoked)


def _without_unsubscribed(given: ReconciliationInput) -> CurrentAssignment:
    """Revoke the topics that the member is no longer subscribed to, within the same epoch."""
    current = given.current
    if not given.has_subscription_changed or current.assigned.keys() <= given.subscribed:
        return current
    assigned: dict[bytes, Mapping[int, int]] = {}
    pending = dict(current.pending_revocation)
    for topic_id, epochs in current.assigned.items():
        if topic_id in given.subscribed:
            assigned[topic_id] = epochs
        else:
            pending[topic_id] = {**pending.get(topic_id, {}), **epochs}
    if _owns_any(given.owned, pending):
        return _moved(
            current, MemberState.UNREVOKED_PARTITIONS, current.member_epoch, assigned, pending
        )
    # All were revoked before; `reconcile` handles a member that still has to revoke others.
    return _moved(
        current, current.state, current.member_epoch, assigned, current.pending_revocation
    )


def _towards_target(given: ReconciliationInput, member_epoch: int) -> CurrentAssignment:
    """Revoke partitions that are not in the target, or else assign the target's free partitions."""
    current, target = given.current, given.target
    assigned: dict[bytes, dict[int, int]] = {}
    pending: dict[bytes, dict[int, int]] = {}
    for topic_id, epochs in current.assigned.items():
        is_subscribed = topic_id in given.subscribed
        wanted = target.get(topic_id, _NOTHING) if is_subscribed else _NOTHING
        for partition, epoch in epochs.items():
            part = assigned if partition in wanted else pending
            part.setdefault(topic_id, {})[partition] = epoch
    if pending and _owns_any(given.owned, pending):
        return _moved(current, MemberState.UNREVOKED_PARTITIONS, member_epoch, assigned, pending)
    state = MemberState.STABLE
    for topic_id, wanted in target.items():
        if topic_id not in given.subscribed:
            continue
        had = current.assigned.get(topic_id, {})
        own_revoked = current.pending_revocation.get(topic_id, {})
        for partition in sorted(wanted):
            if partition in had:
                continue
            if given.is_held(topic_id, partition) and partition not in own_revoked:
                state = MemberState.UNRELEASED_PARTITIONS
            else:
                assigned.setdefault(topic_id, {})[partition] = given.target_epoch
    return _moved(current, state, given.target_epoch, assigned, {})


def _moved(
    current: CurrentAssignment,
    state: int,
    member_epoch: int,
    assigned: EpochsByTopic,
    pending_revocation: EpochsByTopic,
) -> CurrentAssignment:
    """Return the current assignment with changes, or the same object without changes.

    As in Kafka, a change within an epoch also makes that epoch the previous one.
    """
    moved = replace(
        current,
        member_epoch=member_epoch,
        previous_member_epoch=current.member_epoch,
        state=int(state),
        assigned=assigned,
        pending_revocation=pending_revocation,
    )
    return current if moved == current else moved
