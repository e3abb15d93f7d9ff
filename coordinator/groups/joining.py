"""JoinGroup, for new members, and for members that get the current generation immediately.

    member        Empty         PreparingRebalance   CompletingRebalance   Stable
    new dynamic   its id first (version 4 on, KIP-394), else a member and a rebalance
    pending       a member and a rebalance
    new static    a member and a rebalance
    restarted     -             its place            its place; rebalance  its place (1)
    known, same   unknown       waits                the generation        the generation (2)
    known, other  unknown       waits                rebalance             rebalance

    (1) a rebalance only if the chosen protocol changes
    (2) a rebalance if the member is the leader

The cells name what the request gets or begins. A restarted static member has lost its member id,
and gets its place under a new one. A known member is "same" if its protocols are unchanged. The
file implements KIP-345 (static members), KIP-394, KIP-814 (the leader need not assign again after
the restart of a static member) and KIP-800 (reason).
"""

from dataclasses import replace
from functools import partial

from ...wire.errors import ErrorCode, KafkaError
from .classic_group import ClassicGroup
from .group_member import Member, member_of
from .group_messages import NO_MEMBER, JoinAnswer, JoinRequest
from .group_states import GroupState
from .rebalance import (
    begin_or_complete,
    complete_if_all_joined,
    expect_heartbeat,
    prepare_rebalance,
)
from .turn import HEARTBEAT, Turn

PENDING_MAX = 10_000  # the limit of members of one group that have an id and have not joined yet
NOT_GIVEN = "not provided"


def join(group: ClassicGroup, request: JoinRequest, ticket: object, turn: Turn) -> None:
    """Handle JoinGroup.

    The answer for `ticket` is added to `turn`, or to a later turn if the request must wait.
    """

    def refuse(error: int, member_id: str = request.member_id) -> None:
        turn.answer(ticket, JoinAnswer(error=error, member_id=member_id))

    if not _has_room(group, request.member_id, turn.settings.max_size):
        _discard_member(group, request.member_id, turn)
        return refuse(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
    if group.state is GroupState.DEAD:
        return refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if not group.supports(request.protocol_type, request.protocols):
        return refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.member_id != NO_MEMBER:
        return _join_known(group, request, ticket, turn)
    if request.group_instance_id is not None:
        if request.group_instance_id in group.static_members:
            return _take_place(group, request, ticket, turn)
    elif request.requires_member_id:
        if len(group.pending_join) >= PENDING_MAX:
            return refuse(ErrorCode.GROUP_MAX_SIZE_REACHED)
        group.expect(request.new_member_id)
        turn.set_deadline(
            HEARTBEAT, group.group_id, request.new_member_id, request.session_timeout_ms
        )
        return refuse(ErrorCode.MEMBER_ID_REQUIRED, request.new_member_id)
    return _add(group, request, request.new_member_id, ticket, turn)


def _has_room(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    """Return whether the size limit of the group allows the member.

    During a rebalance only the members that have rejoined count, so the last members to rejoin are
    refused.
    """
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        is_waiting = member is not None and member.join_ticket is not None
        return is_waiting or group.awaiting_join_count < max_size
    if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return member is not None or len(group.members) < max_size
    return True


def _discard_member(group: ClassicGroup, member_id: str, turn: Turn) -> None:
    if member_id in group.members or member_id in group.pending_join:
        group.remove(member_id)
        turn.cancel_deadline(HEARTBEAT, group.group_id, member_id)
        complete_if_all_joined(group, turn)


def _join_known(group: ClassicGroup, request: JoinRequest, ticket: object, turn: Turn) -> None:
    if request.member_id in group.pending_join and request.group_instance_id is None:
        return _add(group, request, request.member_id, ticket, turn)
    try:
        member = group.check_member(request.member_id, request.group_instance_id)
    except KafkaError as error:
        refusal = JoinAnswer(error=error.number, member_id=request.member_id)
        return turn.answer(ticket, refusal)
    is_same = member.protocols == request.protocols
    is_leader = group.leader_id == member.member_id
    if group.state is GroupState.COMPLETING_REBALANCE and is_same:
        # The member did not get the answer to its JoinGroup.
        return turn.answer(ticket, group.generation_for(member))
    if group.state is GroupState.STABLE and is_same and not is_leader:
        return turn.answer(ticket, group.generation_for(member))
    _update(group, member, request, ticket, turn)
    what = "leader" if is_leader else "member"
    begin_or_complete(group, turn, _reason(f"{what} {member.member_id} joins again", request))


def _add(
    group: ClassicGroup, request: JoinRequest, member_id: str, ticket: object, turn: Turn
) -> None:
    member = member_of(request, member_id, is_new=True)
    if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
        group.new_member_added = True
    group.add(member, request.protocol_type, ticket)
    expect_heartbeat(group, member, turn, turn.settings.new_member_join_timeout_ms)
    begin_or_complete(group, turn, _reason(f"new member {member_id}", request))


def _update(
    group: ClassicGroup, member: Member, request: JoinRequest, ticket: object, turn: Turn
) -> None:
    # A second JoinGroup while the first waits means that the client has abandoned the first one.
    group.answer_join(
        member,
        JoinAnswer(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id),
        turn,
    )
    group.update(member, request)
    group.wait_for_join(member, ticket)


def _take_place(group: ClassicGroup, request: JoinRequest, ticket: object, turn: Turn) -> None:
    """Give the place of a static member to its restarted process, which has no member id yet."""
    instance_id = request.group_instance_id
    assert instance_id is not None
    leader_before = group.leader_id
    before = group.members[group.static_members[instance_id]]
    member = group.replace_static(instance_id, request.new_member_id, turn)
    expect_heartbeat(group, member, turn)
    _update(group, member, request, ticket, turn)
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may be assigning to the old id, so the new id would get no assignment.
        prepare_rebalance(group, turn, _reason(f"static member {instance_id} came back", request))
    elif group.state is not GroupState.STABLE:
        complete_if_all_joined(group, turn)
    elif group.choose_protocol() != group.protocol_name:
        begin_or_complete(
            group, turn, _reason(f"static member {instance_id} changed its protocols", request)
        )
    else:
        assignments = {each.member_id: each.assignment for each in group.members.values()}
        turn.store(
            group.group_id,
            group.to_store(assignments),
            partial(_place_stored, group, group.generation, member, before, leader_before, request),
        )


def _place_stored(
    group: ClassicGroup,
    generation: int,
    member: Member,
    before: Member,
    leader_before: str | None,
    request: JoinRequest,
    error: int,
    turn: Turn,
) -> None:
    """Answer with a static member's new id if its record is committed, else restore the old id."""
    if group.members.get(member.member_id) is not member:
        return  # the member has left or was itself replaced, and its request was answered then
    if group.state is not GroupState.STABLE or group.generation != generation:
        return  # the member waits for the next generation with the others
    expect_heartbeat(group, member, turn)
    as_before = JoinAnswer(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader_before or NO_MEMBER,
    )
    if error:
        group.answer_join(member, replace(as_before, error=error), turn)
        assert member.group_instance_id is not None
        restored = group.replace_static(member.group_instance_id, before.member_id, turn)
        group.update(restored, before)
        expect_heartbeat(group, restored, turn)
        return
    if request.can_skip_assignment:
        is_leader = group.leader_id == member.member_id
        answer = group.generation_for(member, skip_assignment=is_leader)
    else:
        # With the former leader's id the member does not act as leader and does not assign again.
        answer = replace(as_before, member_id=member.member_id)
    group.answer_join(member, answer, turn)


def _reason(what: str, request: JoinRequest) -> str:
    return f"{what} (client: {request.reason or NOT_GIVEN})"
