"""Test classic groups with sequences of requests, deadlines and failures."""

import pytest

from oncelog.coordinator.groups import group_table
from oncelog.coordinator.groups.consumer_protocol import subscribed_topics
from oncelog.coordinator.groups.group_states import GroupState
from oncelog.runtime.steps import MADE_A_STEP, StepCounter, run_to_end
from oncelog.wire.errors import ErrorCode, GroupIdNotFound, NonEmptyGroup, error_for

from .group_driver import GROUP, REBALANCE_MS, SESSION_MS, Groups

CHANGED = (("range", b"changed"), ("sticky", b"changed"))


@pytest.fixture
def groups() -> Groups:
    return Groups()


def test_first_generation_leader_gets_the_subscriptions_of_all_members(groups: Groups) -> None:
    first, one = groups.new_member()
    second, two = groups.new_member()
    groups.pass_time(0)
    assert (one.answer.generation, two.answer.generation) == (1, 1)
    assert one.answer.leader == two.answer.leader == first
    assert [member.member_id for member in one.answer.members] == [first, second]
    assert two.answer.members == ()
    assert one.answer.protocol_name == "range"


def test_sync_group_is_answered_only_after_the_assignment_is_committed(groups: Groups) -> None:
    first, second = groups.joined(2)
    groups.holds_stores = True
    follower = groups.sync(second)
    leader = groups.sync(first, assignments={second: b"all", "nobody": b"x"})
    assert follower.is_waiting
    assert leader.is_waiting
    groups.settle_store()
    assert (leader.answer.assignment, follower.answer.assignment) == (b"", b"all")
    stored = groups.log[GROUP]
    assert [(m.member_id, m.assignment) for m in stored.members] == [(first, b""), (second, b"all")]


def test_sync_group_fails_when_the_assignment_cannot_be_stored(groups: Groups) -> None:
    (first,) = groups.joined(1)
    groups.holds_stores = True
    leader = groups.sync(first, assignments={first: b"all"})
    groups.settle_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert leader.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert groups.group.state is GroupState.PREPARING_REBALANCE


def test_stored_assignment_of_a_past_generation_is_ignored(groups: Groups) -> None:
    (first,) = groups.joined(1)
    groups.holds_stores = True
    leader = groups.sync(first, assignments={first: b"all"})
    groups.new_member()
    assert leader.error == ErrorCode.REBALANCE_IN_PROGRESS
    groups.settle_store()
    assert groups.group.state is GroupState.PREPARING_REBALANCE


# -- the initial delay (KIP-134)


def test_members_that_join_within_the_initial_delay_share_the_first_generation() -> None:
    groups = Groups(initial_rebalance_delay_ms=3000)
    _, one = groups.new_member()
    groups.pass_time(2000)
    _, two = groups.new_member()
    groups.pass_time(3999)
    assert one.is_waiting, "the second one has prolonged the wait"
    groups.pass_time(1)
    assert one.answer.generation == two.answer.generation == 1


def test_initial_rebalance_delay_is_not_prolonged_beyond_the_rebalance_timeout() -> None:
    groups = Groups(initial_rebalance_delay_ms=3000)
    _, one = groups.new_member(rebalance_ms=5000)
    for _ in range(4):
        groups.pass_time(1000)
        groups.new_member(rebalance_ms=5000)
    assert one.is_waiting
    groups.pass_time(1000)
    assert one.answer.generation == 1


def test_classic_group_with_a_first_member_that_leaves_in_the_initial_delay_is_empty() -> None:
    groups = Groups(initial_rebalance_delay_ms=3000)
    member, ticket = groups.new_member()
    assert groups.leave((member, None)) == [0]
    assert ticket.error == ErrorCode.UNKNOWN_MEMBER_ID
    groups.pass_time(3000)
    assert (groups.group.state, groups.group.generation) == (GroupState.EMPTY, 1)


# -- timeouts


def test_classic_member_without_heartbeats_is_removed(groups: Groups) -> None:
    first, second = groups.stable()
    error = 0
    for _ in range(3):
        groups.pass_time(SESSION_MS // 2)
        error = groups.heartbeat(first)
    assert error == ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.heartbeat(second) == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.join(first).answer.generation == 2


def test_classic_member_that_does_not_rejoin_in_time_is_removed(groups: Groups) -> None:
    first, second = groups.stable(rebalance_ms=5000)
    ticket = groups.join(first, protocols=CHANGED, rebalance_ms=5000)
    for _ in range(5):
        groups.heartbeat(second)
        groups.pass_time(1000)
    assert [m.member_id for m in ticket.answer.members] == [first]
    assert groups.heartbeat(second) == ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_group_leader_that_does_not_rejoin_is_replaced_by_a_follower(
    groups: Groups,
) -> None:
    first, second = groups.stable(rebalance_ms=5000)
    ticket = groups.join(second, protocols=CHANGED, rebalance_ms=5000)
    groups.pass_time(5000)
    assert ticket.answer.leader == second
    assert first not in groups.group.members


def test_classic_member_that_never_syncs_is_removed(groups: Groups) -> None:
    first, second = groups.joined(2)
    groups.sync(first)
    for _ in range(REBALANCE_MS // 5000):
        groups.heartbeat(first)
        groups.heartbeat(second)
        groups.pass_time(5000)
    assert groups.heartbeat(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in groups.group.members


def test_classic_group_leader_that_never_syncs_is_removed_at_the_rebalance_timeout(
    groups: Groups,
) -> None:
    first, second = groups.joined(2)
    ticket = groups.sync(second)
    for _ in range(REBALANCE_MS // 5000):
        groups.heartbeat(first)
        groups.pass_time(5000)
    assert ticket.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.join(second).answer.leader == second


def test_pending_member_that_never_joins_delays_a_rebalance_for_one_session(
    groups: Groups,
) -> None:
    first, second = groups.stable()
    groups.join()
    tickets = [groups.join(first), groups.join(second)]
    assert all(ticket.is_waiting for ticket in tickets)
    groups.pass_time(SESSION_MS)
    assert [ticket.error for ticket in tickets] == [0, 0]


def test_new_member_of_a_vanished_client_is_removed_after_five_minutes(groups: Groups) -> None:
    static = groups.join(instance="i", rebalance_ms=10_000_000)
    groups.pass_time(0)
    groups.sync(static.answer.member_id)
    groups.join(version=3)
    for _ in range(31):
        groups.heartbeat(static.answer.member_id)
        groups.pass_time(10_000 - 1)
    assert len(groups.group.members) == 1


# -- static members (KIP-345, KIP-814)


def stable_static() -> tuple[Groups, str, str]:
    groups = Groups()
    groups.join(instance="a")
    groups.join(instance="b")
    groups.pass_time(0)
    leader, follower = (groups.group.static_members[each] for each in "ab")
    groups.sync_all([leader, follower])
    return groups, leader, follower


def test_static_member_that_restarts_keeps_its_place_and_assignment() -> None:
    groups, _, follower = stable_static()
    generation = groups.group.generation
    back = groups.join(instance="b").answer
    assert (back.generation, back.skip_assignment) == (generation, False)
    assert back.member_id != follower
    synced = groups.sync(back.member_id, instance="b").answer
    assert synced.assignment == f"of {follower}".encode()
    assert groups.log[GROUP].members[1].member_id == back.member_id


def test_static_member_incarnation_that_was_replaced_is_fenced() -> None:
    groups, _, follower = stable_static()
    groups.join(instance="b")
    assert groups.heartbeat(follower, instance="b") == ErrorCode.FENCED_INSTANCE_ID
    assert groups.sync(follower, instance="b").error == ErrorCode.FENCED_INSTANCE_ID
    assert groups.join(follower, instance="b").error == ErrorCode.FENCED_INSTANCE_ID
    assert groups.leave((follower, "b")) == [ErrorCode.FENCED_INSTANCE_ID]


def test_static_leader_that_restarts_skips_the_assignment() -> None:
    groups, leader, follower = stable_static()
    back = groups.join(instance="a").answer
    assert back.skip_assignment
    assert back.leader == back.member_id
    assert {m.member_id for m in back.members} == {back.member_id, follower}
    old_client = groups.join(instance="a", version=8).answer
    assert not old_client.skip_assignment
    assert old_client.leader == back.member_id != old_client.member_id
    assert leader not in groups.group.members


def test_static_member_that_restarts_with_another_protocol_causes_a_rebalance() -> None:
    groups, _, follower = stable_static()
    ticket = groups.join(instance="b", protocols=(("sticky", b""),))
    assert ticket.is_waiting
    assert groups.group.state is GroupState.PREPARING_REBALANCE
    assert follower not in groups.group.members


def test_static_member_restart_that_cannot_be_stored_restores_the_old_member() -> None:
    groups, _, follower = stable_static()
    groups.holds_stores = True
    ticket = groups.join(instance="b", session_ms=20_000)
    assert ticket.is_waiting
    groups.settle_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert ticket.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert groups.heartbeat(follower, instance="b") == 0
    assert groups.group.members[follower].session_timeout_ms == SESSION_MS


def test_static_member_that_restarts_again_during_the_store_fences_the_first_restart() -> None:
    groups, _, _ = stable_static()
    groups.holds_stores = True
    first, second = groups.join(instance="b"), groups.join(instance="b")
    assert first.error == ErrorCode.FENCED_INSTANCE_ID
    groups.settle_store()
    assert second.is_waiting
    groups.settle_store()
    assert second.error == 0
    assert groups.group.static_members["b"] == second.answer.member_id


def test_static_member_that_restarts_before_a_rebalance_joins_the_rebalance() -> None:
    groups, leader, _ = stable_static()
    groups.holds_stores = True
    ticket = groups.join(instance="b")
    groups.join(leader, instance="a")
    assert ticket.answer.generation == 2
    groups.settle_store()
    assert len(ticket.answers) == 1


def test_static_member_that_restarts_in_a_rebalance_does_not_get_the_old_generation() -> None:
    groups, leader, _ = stable_static()
    groups.holds_stores = True
    ticket = groups.join(instance="b")
    groups.new_member()
    assert groups.group.state is GroupState.PREPARING_REBALANCE
    groups.settle_store()
    assert ticket.is_waiting
    groups.join(leader, instance="a")
    assert ticket.answer.generation == 2


def test_static_member_restart_is_answered_even_if_its_sync_times_out(groups: Groups) -> None:
    for instance in "ab":
        groups.join(instance=instance)
    groups.pass_time(0)
    leader = groups.group.static_members["a"]
    groups.sync(leader, instance="a")
    for _ in range(REBALANCE_MS // 5000 - 1):
        groups.heartbeat(leader, instance="a")
        groups.heartbeat(groups.group.static_members["b"], instance="b")
        groups.pass_time(5000)
    groups.holds_stores = True
    ticket = groups.join(instance="b")
    assert ticket.is_waiting
    groups.pass_time(5000)
    assert ticket.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_static_member_away_for_less_than_a_session_stays_in_the_group() -> None:
    groups, leader, follower = stable_static()
    ticket = groups.join(leader, instance="a", protocols=CHANGED)
    groups.pass_time(SESSION_MS - 1)
    assert ticket.is_waiting
    assert follower in groups.group.members
    groups.pass_time(1)
    assert [m.member_id for m in ticket.answer.members] == [leader]


def test_leave_by_instance_id_removes_a_static_member() -> None:
    groups, leader, follower = stable_static()
    assert groups.leave(("", "b"), ("", "nobody")) == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert groups.heartbeat(follower, instance="b") == ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.join(leader, instance="a").answer.generation == 2


# -- size


def test_classic_group_at_its_maximum_size_refuses_new_members() -> None:
    groups = Groups(max_size=2)
    groups.stable(2)
    assert groups.join().error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert groups.join(version=3).error == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_classic_group_above_its_maximum_size_refuses_the_last_to_rejoin() -> None:
    groups = Groups(max_size=3)
    first, second, third = groups.stable(3)
    groups.settings = type(groups.settings)(max_size=2)
    tickets = [groups.join(each, protocols=CHANGED) for each in (first, second)]
    assert groups.join(third).error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert [ticket.error for ticket in tickets] == [0, 0]


def test_classic_group_above_its_maximum_size_at_loading_rebalances(groups: Groups) -> None:
    groups.stable(3)
    groups.settings = type(groups.settings)(max_size=2)
    groups.fail_over()
    assert groups.group.state is GroupState.PREPARING_REBALANCE


# -- fail-over


def test_next_group_coordinator_has_the_generation_and_the_assignments(groups: Groups) -> None:
    first, second = groups.stable()
    groups.fail_over()
    assert groups.heartbeat(first) == 0
    assert groups.sync(second).answer.assignment == f"of {second}".encode()


def test_requests_waiting_in_a_group_are_answered_when_the_coordinator_moves(
    groups: Groups,
) -> None:
    first, second = groups.stable()
    joining = groups.join(first)
    groups.fail_over()
    assert joining.error == ErrorCode.NOT_COORDINATOR
    assert groups.heartbeat(second) == 0
    ticket = groups.join(first)
    groups.join(second)
    assert ticket.answer.generation == 2


def test_members_of_a_loaded_group_get_a_whole_session_to_rejoin(groups: Groups) -> None:
    first, second = groups.stable()
    groups.pass_time(SESSION_MS - 1)
    groups.fail_over()
    groups.pass_time(SESSION_MS - 1)
    assert groups.heartbeat(first) == 0
    groups.pass_time(1)
    assert second not in groups.group.members


def test_empty_group_keeps_its_generation_over_a_coordinator_failover(groups: Groups) -> None:
    first, second = groups.stable()
    groups.leave((first, None), (second, None))
    assert groups.log[GROUP].generation == 2
    groups.fail_over()
    assert groups.group.state is GroupState.EMPTY
    _, ticket = groups.new_member()
    groups.pass_time(0)
    assert ticket.answer.generation == 3


def test_classic_group_protocol_is_chosen_by_vote(groups: Groups) -> None:
    _, one = groups.new_member(protocols=(("a", b""), ("b", b"")))
    groups.new_member(protocols=(("b", b""), ("a", b"")))
    groups.new_member(protocols=(("c", b""), ("b", b""), ("a", b"")))
    groups.pass_time(0)
    assert one.answer.protocol_name == "b"


def test_cooperative_members_keep_their_assignment_during_a_rebalance(groups: Groups) -> None:
    """KIP-429 requires only that the coordinator keeps the assignments during a rebalance."""
    first, second = groups.stable(2, protocols=(("cooperative-sticky", b"owns 1"),))
    generation = groups.group.generation
    third, _ = groups.new_member(protocols=(("cooperative-sticky", b"owns nothing"),))
    assert groups.heartbeat(first, generation=generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert groups.group.members[second].assignment == f"of {second}".encode()
    assert third in groups.group.members


# -- permission to commit (KIP-447) and to delete


@pytest.mark.parametrize("is_transactional", [False, True])
def test_offset_commit_is_checked_by_generation_and_member(
    groups: Groups, is_transactional
) -> None:
    groups.join(instance="i")
    groups.pass_time(0)
    member = groups.group.static_members["i"]
    groups.sync_all([member])

    def error(member_id: str, instance: str | None, generation: int) -> int:
        try:
            groups.group.check_offset_commit(
                member_id, instance, generation, is_transactional=is_transactional
            )
        except Exception as raised:
            return raised.number  # type: ignore[attr-defined]
        return 0

    assert error(member, "i", 1) == 0
    assert error(member, "i", 0) == ErrorCode.ILLEGAL_GENERATION
    assert error("other", "i", 1) == ErrorCode.FENCED_INSTANCE_ID
    assert error("other", None, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    # Old transactional producers send neither.
    assert error("", None, -1) == (0 if is_transactional else ErrorCode.UNKNOWN_MEMBER_ID)


def test_offset_commit_between_join_and_sync_is_refused_unless_transactional(
    groups: Groups,
) -> None:
    (member,) = groups.joined(1)
    groups.group.check_offset_commit(member, None, 1, is_transactional=True)
    with pytest.raises(type(error_for(ErrorCode.REBALANCE_IN_PROGRESS))):
        groups.group.check_offset_commit(member, None, 1, is_transactional=False)


def test_delete_of_a_group_that_is_not_empty_is_refused(groups: Groups) -> None:
    first, second = groups.stable()
    with pytest.raises(NonEmptyGroup):
        groups.group.check_delete()
    groups.leave((first, None), (second, None))
    group = groups.group
    group.check_delete()
    groups.release()
    with pytest.raises(GroupIdNotFound):
        group.check_delete()


def topics_in(metadata: bytes) -> set[str] | None:
    topics = set[str]()
    is_one = run_to_end(subscribed_topics(metadata, topics, StepCounter()))
    return topics if is_one else None


def test_subscribed_topics_are_parsed_from_valid_metadata_only() -> None:
    version = b"\0\3"
    good = version + b"\0\0\0\2" + b"\0\1a" + b"\0\2bc" + b"more of later versions"
    assert topics_in(good) == {"a", "bc"}
    assert topics_in(version + b"\0\0\0\0") == frozenset()
    for end in range(len(version + b"\0\0\0\2\0\1a\0\2bc")):
        assert topics_in(good[:end]) is None
    assert topics_in(version + b"\x7f\xff\xff\xff") is None
    assert topics_in(version + b"\0\0\0\1\0\1\xff") is None


def test_long_subscriptions_are_parsed_in_steps(groups: Groups) -> None:
    """Until all subscriptions are parsed, the group counts as subscribed to every topic."""
    names = [f"topic-{number}".encode() for number in range(500)]

    def subscription(member: int) -> bytes:
        mine = [*names, b"of %d" % member]
        array = b"".join(len(name).to_bytes(2, "big") + name for name in mine)
        return b"\0\1" + len(mine).to_bytes(4, "big") + array + b"owned by %d" % member

    for member in range(4):
        groups.new_member(protocols=(("range", subscription(member)),))
    assert groups.table.deadlines.next_ms is not None
    groups.now_ms = groups.table.deadlines.next_ms
    turn = groups.turn()
    groups.table.due(turn)
    group, (reading,) = groups.group, turn.steps
    assert group.state is GroupState.COMPLETING_REBALANCE
    assert "anything" in group.subscribed_or_all
    count = sum(1 for _ in reading)
    assert count >= 4 * len(names) // MADE_A_STEP
    assert group.subscribed == {name.decode() for name in names} | {f"of {n}" for n in range(4)}


def test_classic_group_member_metadata_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this bound the group of a closed client could hold gigabytes for half an hour."""
    monkeypatch.setattr(group_table, "METADATA_BYTES_MAX", 100_000)
    groups = Groups()
    held = groups.table.held_metadata
    first, _ = groups.new_member(protocols=(("range", bytes(60_000)),))
    groups.pass_time(0)
    room = 100_000 - held.size_bytes
    for said in ((("range", bytes(room)),), (("range", b""), (room * "x", b""))):
        refused = groups.join("", protocols=said)
        assert refused.error == ErrorCode.GROUP_MAX_SIZE_REACHED
    again = groups.join(first, protocols=(("range", bytes(60_000 + room)),))
    assert again.error == ErrorCode.NONE
    assert held.size_bytes == 100_000
    groups.pass_time(SESSION_MS + REBALANCE_MS)
    assert not groups.group.members
    assert not groups.table.held_metadata.size_bytes
    member_id, _ = groups.new_member(protocols=(("range", bytes(41)),))
    assert held.size_bytes == groups.group.members[member_id].held_bytes > 41


def test_pending_members_count_towards_the_memory_bound_until_they_join_or_expire(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of ten thousand pending member ids may contain a client id of 32 kB."""
    monkeypatch.setattr(group_table, "METADATA_BYTES_MAX", 200_000)
    groups, held = Groups(), 0
    while (told := groups.join("", client_id=30_000 * "x")).error == ErrorCode.MEMBER_ID_REQUIRED:
        assert groups.table.held_metadata.size_bytes >= held + 30_000
        held = groups.table.held_metadata.size_bytes
    assert told.error == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert held <= 200_000
    groups.pass_time(SESSION_MS)
    assert not groups.table.held_metadata.size_bytes
    assert groups.join("").error == ErrorCode.MEMBER_ID_REQUIRED
    groups.release()
    assert not groups.table.held_metadata.size_bytes


def test_static_member_memory_is_reserved_for_its_next_incarnation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = Groups()
    protocols = (("range", bytes(90)),)
    groups.join("", instance="i", protocols=protocols)
    groups.pass_time(0)
    held = groups.table.held_metadata.size_bytes
    monkeypatch.setattr(group_table, "METADATA_BYTES_MAX", held)
    again = groups.join("", instance="i", protocols=protocols)
    assert again.is_waiting or not again.error
    assert abs(groups.table.held_metadata.size_bytes - held) < 10  # another id
    groups.fail_over()
    members = groups.group.members.values()
    assert groups.table.held_metadata.size_bytes == sum(each.held_bytes for each in members)
