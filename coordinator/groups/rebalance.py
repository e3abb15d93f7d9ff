"""The change from one generation of a group to the next.

A rebalance begins (`prepare_rebalance`), members rejoin, and the rebalance ends
(`complete_rebalance`) when all have joined or the rebalance timeout has expired. Dynamic members
that did not rejoin are then removed, while static members stay. The first members of an empty group
may join for `group.initial.rebalance.delay.ms` (KIP-134). Each further member prolongs this delay,
up to the rebalance timeout.
"""

from ...wire.errors import ErrorCode
from .classic_group import ClassicGroup
from .group_member import Member
from .group_messages import JoinAnswer, SyncAnswer
from .group_states import GroupState
from .turn import HEARTBEAT, JOIN, SYNC, Turn

LOOK_AGAIN_MS = 100  # the minimum delay, for members with a rebalance timeout of 0


def expect_heartbeat(
    group: ClassicGroup, member: Member, turn: Turn, timeout_ms: int | None = None
) -> None:
    """Start a member's timeout now, which is its session timeout unless `timeout_ms` is given."""
    delay_ms = member.session_timeout_ms if timeout_ms is None else timeout_ms
    turn.set_deadline(HEARTBEAT, group.group_id, member.member_id, delay_ms)


def begin_or_complete(group: ClassicGroup, turn: Turn, reason: str) -> None:
    """Begin a rebalance after a change of members, or complete one if all have joined."""
    if group.may_rebalance:
        prepare_rebalance(group, turn, reason)
    else:
        complete_if_all_joined(group, turn)


def prepare_rebalance(group: ClassicGroup, turn: Turn, reason: str) -> None:
    """Begin a rebalance, in which all members must rejoin.

    Members that wait for an assignment get REBALANCE_IN_PROGRESS.
    """
    if group.state is GroupState.COMPLETING_REBALANCE:
        drop_assignments(group, turn, ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    turn.cancel_deadline(SYNC, group.group_id)
    is_first = group.state is GroupState.EMPTY
    if is_first:
        delay_ms = turn.settings.initial_rebalance_delay_ms
        group.initial_wait_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        group.new_member_added = False
        turn.set_deadline(JOIN, group.group_id, "", delay_ms)
    group.move_to(GroupState.PREPARING_REBALANCE, turn.wall_ms)
    words = f"the group rebalances after generation {group.generation}. Reason: {reason}"
    turn.note(group.group_id, "rebalance", words)
    if is_first:
        return
    if group.have_all_joined:
        complete_rebalance(group, turn)
    else:
        turn.set_deadline(JOIN, group.group_id, "", group.rebalance_timeout_ms)


def complete_if_all_joined(group: ClassicGroup, turn: Turn) -> None:
    """Complete the rebalance if all members have joined, unless an initial delay is running."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.have_all_joined
    ):
        complete_rebalance(group, turn)


def join_deadline(group: ClassicGroup, turn: Turn) -> None:
    """Complete the rebalance after its timeout, or extend the initial delay of an empty group."""
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    delay_ms = min(turn.settings.initial_rebalance_delay_ms, group.initial_wait_left_ms)
    if group.previous_state is GroupState.EMPTY and group.new_member_added and delay_ms:
        group.new_member_added = False
        group.initial_wait_left_ms -= delay_ms
        turn.set_deadline(JOIN, group.group_id, "", delay_ms)
    else:
        complete_rebalance(group, turn)


def complete_rebalance(group: ClassicGroup, turn: Turn) -> None:
    """Begin the next generation with the members that have joined."""
    turn.cancel_deadline(JOIN, group.group_id)
    absent = [
        member
        for member in group.members.values()
        if member.join_ticket is None and not member.is_static
    ]
    for member in absent:
        group.remove(member.member_id)
        turn.cancel_deadline(HEARTBEAT, group.group_id, member.member_id)
    if absent:
        gone = ", ".join(member.member_id for member in absent)
        words = f"the group continues without {gone}, which did not rejoin in time"
        turn.note(group.group_id, "timeout", words)
    if group.state is GroupState.DEAD:
        return
    if group.members and not _has_leader_who_joined(group):
        # Only static members remain, and none of them has joined, so their sessions decide.
        delay_ms = max(group.rebalance_timeout_ms, LOOK_AGAIN_MS)
        turn.set_deadline(JOIN, group.group_id, "", delay_ms)
        return
    group.generation += 1
    group.pending_sync.clear()
    if not group.members:
        group.protocol_name = None
        group.read_subscriptions(turn)
        group.move_to(GroupState.EMPTY, turn.wall_ms)
        turn.note(group.group_id, "empty", f"the group is empty in generation {group.generation}")
        # If this record is lost, the log has the previous generation, which has no members left.
        turn.store(group.group_id, group.to_store({}), lambda error, later: None)
        return
    group.protocol_name = group.choose_protocol()
    group.read_subscriptions(turn)
    took_ms = max(0, turn.wall_ms - group.state_since_ms)
    count = len(group.members)
    words = (
        f"generation {group.generation} has {count} member{'s' * (count != 1)} after {took_ms} ms"
    )
    turn.note(group.group_id, "generation", words)
    group.move_to(GroupState.COMPLETING_REBALANCE, turn.wall_ms)
    for member in group.members.values():
        group.answer_join(member, group.generation_for(member), turn)
        expect_heartbeat(group, member, turn)
        member.is_new = False
        group.pending_sync.add(member.member_id)
    turn.set_deadline(SYNC, group.group_id, "", group.rebalance_timeout_ms)


def _has_leader_who_joined(group: ClassicGroup) -> bool:
    leader = group.members.get(group.leader_id or "")
    if leader is not None and leader.join_ticket is not None:
        return True
    for member in group.members.values():
        if member.join_ticket is not None:
            group.leader_id = member.member_id
            return True
    return False


def remove_member(group: ClassicGroup, member: Member, turn: Turn) -> None:
    """Remove a member. Its waiting requests are answered with UNKNOWN_MEMBER_ID."""
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    group.answer_join(member, JoinAnswer(error=unknown), turn)
    group.answer_sync(member, SyncAnswer(error=unknown), turn)
    group.remove(member.member_id)
    turn.cancel_deadline(HEARTBEAT, group.group_id, member.member_id)


def drop_assignments(group: ClassicGroup, turn: Turn, error: int) -> None:
    """Discard this generation's assignments. Answer the waiting SyncGroups with the error."""
    for member in group.members.values():
        member.assignment = b""
        if group.answer_sync(member, SyncAnswer(error=error), turn):
            expect_heartbeat(group, member, turn)


def release(group: ClassicGroup, turn: Turn, error: int) -> None:
    """Answer all waiting requests with `error`, and cancel all deadlines of a removed group."""
    for member in group.members.values():
        group.answer_join(member, JoinAnswer(error=error, member_id=member.member_id), turn)
        group.answer_sync(member, SyncAnswer(error=error), turn)
        turn.cancel_deadline(HEARTBEAT, group.group_id, member.member_id)
    for member_id in group.pending_join:
        turn.cancel_deadline(HEARTBEAT, group.group_id, member_id)
    group.pending_join.clear()
    turn.cancel_deadline(JOIN, group.group_id)
    turn.cancel_deadline(SYNC, group.group_id)
    group.move_to(GroupState.DEAD, turn.wall_ms)
