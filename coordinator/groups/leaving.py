"""LeaveGroup, and the expiry of members' sessions.

From version 3 on LeaveGroup names several members (KIP-345), by member id, by instance id (used by
administrators to remove static members), or by both. Each member gets its own answer, and all
together cause one rebalance. A pending member, which got its id and never joined, is removed
without a rebalance when its session expires.
"""

from collections.abc import Sequence

from ...wire.errors import CoordinatorNotAvailable, ErrorCode, KafkaError
from .classic_group import ClassicGroup
from .group_messages import NO_MEMBER, LeavingMember
from .group_states import GroupState
from .rebalance import begin_or_complete, complete_if_all_joined, complete_rebalance, remove_member
from .turn import HEARTBEAT, Turn

_HAS_A_GENERATION = frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE})


def leave(group: ClassicGroup, leaving: Sequence[LeavingMember], turn: Turn) -> list[int]:
    """Remove members. Return an ErrorCode for each.

    Raises CoordinatorNotAvailable for a dead group.
    """
    if group.state is GroupState.DEAD:
        raise CoordinatorNotAvailable
    errors = [_leave_one(group, each, turn) for each in leaving]
    if ErrorCode.NONE in errors:
        if group.state in _HAS_A_GENERATION:
            reasons = {each.reason for each in leaving if each.reason}
            begin_or_complete(group, turn, f"members leave ({', '.join(sorted(reasons))})")
        else:
            complete_if_all_joined(group, turn)
    return errors


def _leave_one(group: ClassicGroup, leaving: LeavingMember, turn: Turn) -> int:
    member_id, instance_id = leaving.member_id, leaving.group_instance_id
    if member_id == NO_MEMBER:
        holder = group.static_members.get(instance_id or "")
        if instance_id is None or holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        remove_member(group, group.members[holder], turn)
        return ErrorCode.NONE
    if member_id in group.pending_join:
        group.remove(member_id)
        turn.cancel_deadline(HEARTBEAT, group.group_id, member_id)
        return ErrorCode.NONE
    try:
        remove_member(group, group.check_member(member_id, instance_id), turn)
    except KafkaError as error:
        return error.number
    return ErrorCode.NONE


def session_deadline(group: ClassicGroup, member_id: str, turn: Turn) -> None:
    """Remove a member when its session expires, unless the member `counts_as_alive`."""
    if member_id in group.pending_join:
        group.remove(member_id)
        _complete_if_the_last(group, turn)
        return
    member = group.members.get(member_id)
    if member is None or member.counts_as_alive:
        return
    remove_member(group, member, turn)
    if group.state in _HAS_A_GENERATION:
        begin_or_complete(group, turn, f"the session of {member_id} has expired")
    else:
        _complete_if_the_last(group, turn)


def _complete_if_the_last(group: ClassicGroup, turn: Turn) -> None:
    if group.state is GroupState.PREPARING_REBALANCE and group.have_all_joined:
        complete_rebalance(group, turn)
