"""SyncGroup and Heartbeat, by which members get their assignment and extend their sessions.

The group leader's SyncGroup has the assignments of all members. All assignments are committed to
the log before any member gets its own, so the next coordinator knows every assignment that was
sent.

               Empty     PreparingRebalance     CompletingRebalance      Stable
    sync       unknown   rebalance in progress  waits for the leader's   the assignment
    heartbeat  unknown   rebalance in progress  ok                       ok
"""

from collections.abc import Mapping
from functools import partial

from ...wire.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    IllegalGeneration,
    InconsistentGroupProtocol,
    KafkaError,
    RebalanceInProgress,
    UnknownMemberId,
)
from .classic_group import ClassicGroup
from .group_member import Member
from .group_messages import SyncAnswer, SyncRequest
from .group_states import GroupState
from .rebalance import (
    begin_or_complete,
    drop_assignments,
    expect_heartbeat,
    prepare_rebalance,
    remove_member,
)
from .turn import SYNC, Turn


def sync(group: ClassicGroup, request: SyncRequest, ticket: object, turn: Turn) -> None:
    """Handle SyncGroup.

    The member gets its assignment when the group leader's assignments are committed.
    """
    try:
        member = _check_sync(group, request)
    except KafkaError as error:
        return turn.answer(ticket, SyncAnswer(error=error.number))
    group.pending_sync.discard(member.member_id)
    if not group.pending_sync:
        turn.cancel_deadline(SYNC, group.group_id)
    if group.state is GroupState.STABLE:
        return turn.answer(ticket, _assigned(group, member))
    # A second SyncGroup while the first waits means that the client has abandoned the first one.
    group.answer_sync(member, SyncAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS), turn)
    member.sync_ticket = ticket
    if member.member_id == group.leader_id:
        assignments = {each: request.assignments.get(each, b"") for each in group.members}
        turn.store(
            group.group_id,
            group.to_store(assignments),
            partial(_assignment_stored, group, group.generation, assignments),
        )


def _check_sync(group: ClassicGroup, request: SyncRequest) -> Member:
    if group.state is GroupState.DEAD:
        raise CoordinatorNotAvailable
    if group.state is GroupState.EMPTY:
        raise UnknownMemberId
    member = group.check_member(request.member_id, request.group_instance_id)
    if request.generation != group.generation:
        raise IllegalGeneration
    if request.protocol_type not in (None, group.protocol_type):
        raise InconsistentGroupProtocol
    if group.protocol_name is not None and request.protocol_name not in (
        None,
        group.protocol_name,
    ):
        raise InconsistentGroupProtocol
    if group.state is GroupState.PREPARING_REBALANCE:
        raise RebalanceInProgress
    return member


def _assignment_stored(
    group: ClassicGroup,
    generation: int,
    assignments: Mapping[str, bytes],
    error: int,
    turn: Turn,
) -> None:
    """Answer the waiting SyncGroups if the assignments are committed, else begin a rebalance."""
    if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
        return  # another rebalance has begun in the meantime
    if error:
        drop_assignments(group, turn, error)
        begin_or_complete(group, turn, "the assignment could not be stored")
        return
    group.move_to(GroupState.STABLE, turn.wall_ms)
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
        if group.answer_sync(member, _assigned(group, member), turn):
            # The member's session did not run while its request waited.
            expect_heartbeat(group, member, turn)


def _assigned(group: ClassicGroup, member: Member) -> SyncAnswer:
    return SyncAnswer(
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def sync_deadline(group: ClassicGroup, turn: Turn) -> None:
    """Remove members that sent no SyncGroup within the rebalance timeout, and rebalance."""
    if (
        group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
        or not group.pending_sync
    ):
        return
    absent = sorted(group.pending_sync)
    for member_id in absent:
        remove_member(group, group.members[member_id], turn)
    prepare_rebalance(group, turn, f"no SyncGroup from {', '.join(absent)}")


def heartbeat(
    group: ClassicGroup,
    member_id: str,
    instance_id: str | None,
    generation: int,
    turn: Turn,
) -> None:
    """Extend the member's session. Raises the error of the answer, such as RebalanceInProgress."""
    if group.state is GroupState.DEAD:
        raise CoordinatorNotAvailable
    member = group.check_member(member_id, instance_id)
    if generation != group.generation:
        raise IllegalGeneration
    if group.state is GroupState.EMPTY:
        raise UnknownMemberId
    expect_heartbeat(group, member, turn)
    if group.state is GroupState.PREPARING_REBALANCE:
        raise RebalanceInProgress
