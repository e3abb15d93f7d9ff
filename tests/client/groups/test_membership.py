"""Test each state, event and heartbeat of a member of the newer group protocol."""

from collections.abc import Callable

import pytest

from oncelog.client.groups.membership import (
    JOINS,
    LEAVES,
    LEAVES_FOR_NOW,
    NOWHERE,
    Membership,
    MembershipState,
)
from oncelog.wire.errors import ErrorCode, error_for

S, E = MembershipState, ErrorCode
ONE, OTHER = (b"a" * 16, 0), (b"a" * 16, 1)
BOTH = frozenset({ONE, OTHER})


def refused(member: Membership, code: int) -> None:
    heartbeat = member.heartbeat()
    if heartbeat is not None:
        member.refused(heartbeat, code, is_retriable=error_for(code).retriable)


def answered(member: Membership, epoch: int = 5, given: frozenset | None = None) -> None:
    heartbeat = member.heartbeat()
    if heartbeat is not None:
        member.answered(heartbeat, epoch, 100, given)


def lost(member: Membership) -> None:
    heartbeat = member.heartbeat()
    if heartbeat is not None:
        member.lost(heartbeat)


def reconciled(member: Membership, owned: frozenset) -> None:
    member.reconciled(owned, member.target)


def in_state(state: MembershipState, instance: str | None = None) -> Membership:
    """Return a member that has reached a state by the shortest sequence of events."""
    member = Membership("m", instance)
    if state is S.OUTSIDE:
        return member
    member.subscribe(("t",), None)
    if state is S.JOINING:
        return member
    if state is S.RELEASING:
        lost(member)
        refused(member, E.UNRELEASED_INSTANCE_ID)
    elif state is S.FAILED:
        refused(member, E.UNSUPPORTED_ASSIGNOR)
    else:
        answered(member, 4, BOTH if state is not S.STABLE else NOWHERE)
        if state is S.ACKNOWLEDGING:
            reconciled(member, BOTH)
        elif state is S.FENCED:
            refused(member, E.FENCED_MEMBER_EPOCH)
        elif state is S.LEAVING:
            member.subscribe((), None)
    assert member.state is state
    return member


EVENTS: dict[str, Callable[[Membership], object]] = {
    "subscribes": lambda m: m.subscribe(("u",), None),
    "unsubscribes": lambda m: m.subscribe((), None),
    "is given the same": lambda m: answered(m, 5, m.owned),
    "is given more": lambda m: answered(m, 5, m.owned | {(b"z" * 16, 9)}),
    "hears nothing new": answered,
    "hears nothing": lost,
    "coordinator moved": lambda m: refused(m, E.NOT_COORDINATOR),
    "is unknown": lambda m: refused(m, E.UNKNOWN_MEMBER_ID),
    "is fenced": lambda m: refused(m, E.FENCED_MEMBER_EPOCH),
    "group is gone": lambda m: refused(m, E.GROUP_ID_NOT_FOUND),
    "is not released": lambda m: refused(m, E.UNRELEASED_INSTANCE_ID),
    "instance is fenced": lambda m: refused(m, E.FENCED_INSTANCE_ID),
    "may not": lambda m: refused(m, E.GROUP_AUTHORIZATION_FAILED),
    "has taken all": lambda m: reconciled(m, m.target),
    "could take nothing": lambda m: reconciled(m, m.owned),
    "has given up": Membership.given_up,
    "is too slow": Membership.too_slow,
    "leaves": Membership.leave,
    "has left": Membership.left,
}
NEXT: dict[MembershipState, dict[str, MembershipState]] = {
    S.OUTSIDE: {"subscribes": S.JOINING},
    S.JOINING: {
        "unsubscribes": S.LEAVING,
        "is given the same": S.STABLE,
        "is given more": S.RECONCILING,
        "hears nothing new": S.STABLE,
        "group is gone": S.FAILED,
        "is not released": S.FAILED,
        "instance is fenced": S.FAILED,
        "may not": S.FAILED,
        "leaves": S.OUTSIDE,
    },
    S.RELEASING: {
        "unsubscribes": S.LEAVING,
        "is given the same": S.JOINING,
        "is given more": S.JOINING,
        "hears nothing new": S.JOINING,
        "is unknown": S.JOINING,
        "group is gone": S.JOINING,
        "is not released": S.FAILED,
        "instance is fenced": S.FAILED,
        "may not": S.FAILED,
        "leaves": S.OUTSIDE,
    },
    S.STABLE: {
        "unsubscribes": S.LEAVING,
        "is given more": S.RECONCILING,
        "is unknown": S.FENCED,
        "is fenced": S.FENCED,
        "group is gone": S.FENCED,
        "is not released": S.FAILED,
        "instance is fenced": S.FAILED,
        "may not": S.FAILED,
        "is too slow": S.FENCED,
        "leaves": S.OUTSIDE,
    },
    S.RECONCILING: {
        "unsubscribes": S.LEAVING,
        "is unknown": S.FENCED,
        "is fenced": S.FENCED,
        "group is gone": S.FENCED,
        "is not released": S.FAILED,
        "instance is fenced": S.FAILED,
        "may not": S.FAILED,
        "has taken all": S.ACKNOWLEDGING,
        "could take nothing": S.ACKNOWLEDGING,  # missing parts of the assignment are reported
        "is too slow": S.FENCED,
        "leaves": S.OUTSIDE,
    },
    S.ACKNOWLEDGING: {
        "unsubscribes": S.LEAVING,
        "is given the same": S.STABLE,
        "is given more": S.RECONCILING,
        "hears nothing new": S.STABLE,
        "hears nothing": S.STABLE,  # its next heartbeat reports everything
        "coordinator moved": S.STABLE,
        "is unknown": S.FENCED,
        "is fenced": S.FENCED,
        "group is gone": S.FENCED,
        "is not released": S.FAILED,
        "instance is fenced": S.FAILED,
        "may not": S.FAILED,
        "is too slow": S.FENCED,
        "leaves": S.OUTSIDE,
    },
    S.FENCED: {"has given up": S.JOINING, "leaves": S.OUTSIDE},
    S.LEAVING: {"leaves": S.OUTSIDE},
    S.FAILED: {},
}


def test_member_transition_table_has_every_state() -> None:
    assert NEXT.keys() == set(S)
    assert all(events.keys() <= EVENTS.keys() for events in NEXT.values())


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", S)
def test_member_in_each_state_moves_to_the_listed_state_at_an_event(
    state: MembershipState, event: str
) -> None:
    member = in_state(state, "i" if state is S.RELEASING else None)
    EVENTS[event](member)
    assert member.state is NEXT[state].get(event, state)


# -- heartbeats


def test_heartbeat_reports_everything_at_first_and_then_only_changes() -> None:
    member = Membership("m", None, 300, "range", "rack-1")
    member.subscribe(("t",), None)
    first = member.heartbeat()
    assert first is not None and first.member_epoch == JOINS and first.owned == NOWHERE
    assert first.fields["rebalance_timeout"] == 300
    assert first.fields["subscribed_topic_names"] == ("t",)
    assert first.fields["server_assignor"] == "range"
    assert first.fields["rack_id"] == "rack-1"
    member.answered(first, 7, 100, BOTH)
    assert (member.epoch, member.interval_ms, member.target) == (7, 100, BOTH)
    second = member.heartbeat()
    assert second is not None and second.member_epoch == 7
    assert second.owned is None and second.fields == {"instance_id": None}
    member.answered(second, 7, 100, None)
    reconciled(member, BOTH)
    third = member.heartbeat()
    assert third is not None and third.owned == BOTH
    member.answered(third, 8, 100, None)
    fourth = member.heartbeat()
    assert fourth is not None and (fourth.member_epoch, fourth.owned) == (8, None)


def test_heartbeat_after_a_lost_request_reports_everything_again() -> None:
    member = in_state(S.ACKNOWLEDGING)
    lost(member)
    again = member.heartbeat()
    assert again is not None and again.member_epoch == 4 and again.owned == BOTH
    assert again.fields["subscribed_topic_names"] == ("t",)


def test_member_takes_partitions_only_while_all_reports_of_owned_ones_are_answered() -> None:
    """The coordinator may give a partition that a report lacks to another member."""
    member = in_state(S.RECONCILING)
    assert member.may_take
    heartbeat = member.heartbeat()
    assert heartbeat is not None and heartbeat.owned is None and member.may_take
    member.lost(heartbeat)
    assert not member.may_take
    again = member.heartbeat()
    assert again is not None and again.owned == NOWHERE and not member.may_take
    member.answered(again, 5, 100, None)
    assert member.state is S.RECONCILING and member.may_take


def test_heartbeat_after_a_lost_request_reports_partitions_that_are_being_taken() -> None:
    member = in_state(S.RECONCILING)
    member.takes(BOTH)
    lost(member)
    again = member.heartbeat()
    assert again is not None and again.owned == BOTH
    member.answered(again, 5, 100, None)
    reconciled(member, BOTH)
    assert member.state is S.ACKNOWLEDGING and member.owned == BOTH


def test_heartbeat_after_a_pattern_subscription_reports_and_later_removes_the_pattern() -> None:
    member = in_state(S.STABLE)
    member.subscribe((), "t.*")
    assert member.is_urgent
    heartbeat = member.heartbeat()
    assert heartbeat is not None
    assert heartbeat.fields["subscribed_topic_names"] == ()
    assert heartbeat.fields["subscribed_topic_regex"] == "t.*"
    member.answered(heartbeat, 5, 100, None)
    assert not member.is_urgent
    member.subscribe(("t",), None)
    heartbeat = member.heartbeat()
    assert heartbeat is not None
    assert heartbeat.fields["subscribed_topic_names"] == ("t",)
    assert heartbeat.fields["subscribed_topic_regex"] == ""


def test_subscription_changed_during_a_heartbeat_is_reported_by_the_next_heartbeat() -> None:
    member = in_state(S.JOINING)
    heartbeat = member.heartbeat()
    assert heartbeat is not None
    member.subscribe(("u",), None)
    member.answered(heartbeat, 1, 100, NOWHERE)
    following = member.heartbeat()
    assert following is not None and following.fields["subscribed_topic_names"] == ("u",)


@pytest.mark.parametrize(("instance", "epoch"), [(None, LEAVES), ("i", LEAVES_FOR_NOW)])
def test_member_leave_has_epoch_minus_one_or_minus_two_if_static(
    instance: str | None, epoch: int
) -> None:
    for leave in (Membership.leave, Membership.too_slow):
        heartbeat = leave(in_state(S.STABLE, instance))
        assert heartbeat is not None and heartbeat.member_epoch == epoch
    assert in_state(S.FENCED, instance).leave() is None, "nobody knows it"


def test_heartbeat_answer_after_the_membership_ended_changes_no_state() -> None:
    member = in_state(S.STABLE)
    heartbeat = member.heartbeat()
    assert heartbeat is not None
    member.too_slow()
    member.given_up()
    member.answered(heartbeat, 9, 100, BOTH)
    assert (member.state, member.epoch, member.target) == (S.JOINING, 4, NOWHERE)
    member.refused(heartbeat, E.FENCED_INSTANCE_ID, is_retriable=False)
    assert member.state is S.JOINING


def test_target_changed_during_a_reconciliation_is_reconciled_next() -> None:
    member = in_state(S.RECONCILING)
    before = member.target
    answered(member, 5, frozenset({ONE}))
    member.reconciled(BOTH, before)
    assert member.state is S.ACKNOWLEDGING
    answered(member, 5)
    assert member.state is S.RECONCILING and member.target == {ONE}
    answered(member, 5, BOTH)
    member.reconciled(BOTH, frozenset({ONE}))
    assert member.state is S.RECONCILING, "not with the newer one"


def test_assigned_topic_with_an_unknown_name_is_looked_up_again_after_the_next_heartbeat() -> None:
    member = in_state(S.RECONCILING)
    reconciled(member, NOWHERE)
    assert member.state is S.ACKNOWLEDGING
    for _ in range(2):
        answered(member)
        assert member.state is S.RECONCILING
        reconciled(member, NOWHERE)
        assert member.state is S.STABLE and not member.is_urgent, "it was said already"


def test_partition_assigned_and_removed_before_a_poll_is_reported_as_no_longer_owned() -> None:
    """Without this report the coordinator would remove the member after the rebalance timeout."""
    member = in_state(S.ACKNOWLEDGING)
    answered(member, 5)
    answered(member, 5, BOTH | {(b"z" * 16, 9)})
    answered(member, 5, BOTH)
    assert member.state is S.RECONCILING
    reconciled(member, BOTH)
    heartbeat = member.heartbeat()
    assert heartbeat is not None and heartbeat.owned == BOTH
    member.answered(heartbeat, 6, 100, None)
    assert member.state is S.STABLE
    following = member.heartbeat()
    assert following is not None and following.owned is None


def test_heartbeat_answer_during_a_leave_provides_the_epoch_of_the_last_commit() -> None:
    member = in_state(S.STABLE)
    heartbeat = member.heartbeat()
    assert heartbeat is not None
    member.subscribe((), None)
    member.answered(heartbeat, 9, 100, BOTH)
    assert (member.state, member.identity) == (S.LEAVING, ("m", 9))
    assert member.target == NOWHERE, "it takes nothing more"


def test_heartbeat_answer_about_a_released_instance_id_gives_a_leaving_member_no_epoch() -> None:
    member = in_state(S.RELEASING, "i")
    heartbeat = member.heartbeat()
    assert heartbeat is not None
    member.subscribe((), None)
    member.answered(heartbeat, -2, 0, None)
    assert (member.state, member.identity) == (S.LEAVING, ("", -1))


def test_member_identity_has_its_last_epoch_and_is_empty_outside_the_group() -> None:
    member = in_state(S.JOINING)
    assert member.identity == ("", -1)
    answered(member, 3, NOWHERE)
    assert member.identity == ("m", 3)
    refused(member, E.UNKNOWN_MEMBER_ID)
    assert member.identity == ("m", 3), "what it read is judged by that"
    member.subscribe((), None)
    member.given_up()
    assert (member.state, member.identity) == (S.OUTSIDE, ("", -1))


@pytest.mark.parametrize("code", [E.FENCED_MEMBER_EPOCH, E.UNKNOWN_MEMBER_ID])
def test_static_member_that_may_still_be_in_the_group_releases_its_instance_id(
    code: ErrorCode,
) -> None:
    member = in_state(S.STABLE, "i")
    refused(member, code)
    member.given_up()
    refused(member, E.UNRELEASED_INSTANCE_ID)
    is_own = code is E.FENCED_MEMBER_EPOCH
    assert member.state is (S.RELEASING if is_own else S.FAILED)
    if is_own:
        release = member.heartbeat()
        assert release is not None and release.member_epoch == LEAVES_FOR_NOW
        member.answered(release, -2, 0, None)
        joining = member.heartbeat()
        assert joining is not None and joining.member_epoch == JOINS
        refused(member, E.UNRELEASED_INSTANCE_ID)
        assert member.state is S.FAILED, "another one was quicker"


def test_member_that_rejoined_during_its_leave_keeps_its_new_epoch() -> None:
    """The answer to the earlier leave request is late or lost."""
    member = in_state(S.LEAVING)
    assert member.leave() is not None
    member.subscribe(("t",), None)
    answered(member, 7, NOWHERE)
    member.left()
    assert (member.state, member.epoch) == (S.STABLE, 7)
