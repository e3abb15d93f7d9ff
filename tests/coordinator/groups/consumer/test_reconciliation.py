"""Test the next assignment of a member for each state and event."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.groups.consumer.reconciliation import (
    MemberState,
    ReconciliationInput,
    reconcile,
)
from oncelog.coordinator.groups.consumer.records import CurrentAssignment
from oncelog.wire.errors import FencedMemberEpoch

A, B = b"a" * 16, b"b" * 16
STABLE, UNREVOKED, UNRELEASED = MemberState
Epochs = Mapping[bytes, Mapping[int, int]]
Partitions = Mapping[bytes, set[int]]
NOTHING: Epochs = {}


def current(
    state: int, epoch: int, assigned: Epochs, pending: Epochs = NOTHING
) -> CurrentAssignment:
    return CurrentAssignment(epoch, epoch - 1, state, assigned, pending)


def after(state: int, epoch: int, assigned: Epochs, pending: Epochs = NOTHING) -> CurrentAssignment:
    """Return the expected assignment after an event of a member that was in epoch 5."""
    return CurrentAssignment(epoch, 5, state, assigned, pending)


@dataclass(frozen=True)
class Case:
    """A member before an event, and its expected assignment, or None if it stays unchanged.

    `held` has the partitions that other members hold.
    """

    name: str
    before: CurrentAssignment
    target_epoch: int
    target: Partitions
    expected: CurrentAssignment | None
    owned: Partitions | None = None
    held: Partitions = field(default_factory=dict[bytes, set[int]])
    subscribed: frozenset[bytes] = frozenset({A, B})
    has_changed: bool = False


HAS_ALL = {A: {1: 3, 2: 5}, B: {4: 5}}
OWNS_ALL: Partitions = {A: {1, 2}, B: {4}}
OWES_TWO = current(UNREVOKED, 5, {A: {1: 3}}, {A: {2: 5}, B: {4: 5}})
AWAITS = current(UNRELEASED, 5, {A: {1: 3}})
CASES = [
    # A stable member.
    Case("stable_of_the_target_epoch_stays", current(STABLE, 5, HAS_ALL), 5, OWNS_ALL, None),
    Case("stable_with_the_same_target_goes_to_its_epoch",
         current(STABLE, 5, HAS_ALL), 6, OWNS_ALL, after(STABLE, 6, HAS_ALL)),
    Case("stable_with_something_to_give_up_stays_in_its_epoch",
         current(STABLE, 5, HAS_ALL), 6, {A: {1, 3}},
         after(UNREVOKED, 5, {A: {1: 3}}, {A: {2: 5}, B: {4: 5}})),
    Case("stable_that_says_it_owns_what_it_must_give_up_stays_in_its_epoch",
         current(STABLE, 5, HAS_ALL), 6, {A: {1, 2}}, after(UNREVOKED, 5, {A: {1: 3, 2: 5}},
         {B: {4: 5}}), owned=OWNS_ALL),
    Case("stable_that_has_given_up_before_it_was_told_goes_on",
         current(STABLE, 5, HAS_ALL), 6, {A: {1, 3}}, after(STABLE, 6, {A: {1: 3, 3: 6}}),
         owned={A: {1}}),
    Case("stable_with_free_partitions_takes_them",
         current(STABLE, 5, {A: {1: 3}}), 6, {A: {1, 2}, B: {4}},
         after(STABLE, 6, {A: {1: 3, 2: 6}, B: {4: 6}})),
    Case("stable_with_some_held_by_others_takes_the_free_ones",
         current(STABLE, 5, {A: {1: 3}}), 6, {A: {1, 2}, B: {4}},
         after(UNRELEASED, 6, {A: {1: 3, 2: 6}}), held={B: {4}}),
    Case("stable_with_all_held_by_others_goes_to_the_target_epoch",
         current(STABLE, 5, {A: {1: 3}}), 6, {A: {1, 2}, B: {4}},
         after(UNRELEASED, 6, {A: {1: 3}}), held={A: {2}, B: {4}}),
    Case("stable_without_a_target_gives_all_up",
         current(STABLE, 5, HAS_ALL), 6, {}, after(UNREVOKED, 5, {}, HAS_ALL)),
    Case("stable_new_member_takes_its_target", current(STABLE, 5, {}), 6, {A: {1}},
         after(STABLE, 6, {A: {1: 6}})),
    Case("stable_skips_several_epochs", current(STABLE, 5, {A: {1: 3}}), 9, {A: {1, 2}},
         after(STABLE, 9, {A: {1: 3, 2: 9}})),
    # A member that has to revoke partitions.
    Case("unrevoked_that_does_not_say_what_it_owns_waits", OWES_TWO, 6, {A: {1, 3}}, None),
    Case("unrevoked_that_still_owns_one_waits", OWES_TWO, 6, {A: {1, 3}}, None,
         owned={A: {1}, B: {4}}),
    Case("unrevoked_that_still_owns_one_waits_for_any_newer_target", OWES_TWO, 8, {}, None,
         owned=OWNS_ALL),
    Case("unrevoked_that_owns_another_partition_of_the_topic_goes_on", OWES_TWO, 6, {A: {1}},
         after(STABLE, 6, {A: {1: 3}}), owned={A: {1}}),
    Case("unrevoked_that_gave_all_up_takes_the_free_ones", OWES_TWO, 6, {A: {1, 3}},
         after(STABLE, 6, {A: {1: 3, 3: 6}}), owned={A: {1}}),
    Case("unrevoked_that_gave_all_up_waits_for_others", OWES_TWO, 6, {A: {1, 3}},
         after(UNRELEASED, 6, {A: {1: 3}}), owned={A: {1}}, held={A: {3}}),
    Case("unrevoked_that_gave_all_up_meets_a_newer_target_with_less", OWES_TWO, 7, {B: {5}},
         after(UNREVOKED, 5, {}, {A: {1: 3}}), owned={A: {1}}),
    Case("unrevoked_gets_back_what_it_gave_up_itself", OWES_TWO, 7, {A: {1, 2}},
         after(STABLE, 7, {A: {1: 3, 2: 7}}), owned={A: {1}}),
    # A member that waits for others.
    Case("unreleased_waits_while_others_hold", AWAITS, 5, {A: {1, 2}},
         after(UNRELEASED, 5, {A: {1: 3}}), held={A: {2}}),
    Case("unreleased_waits_without_any_change", replace(AWAITS, previous_member_epoch=5), 5,
         {A: {1, 2}}, None, held={A: {2}}),
    Case("unreleased_takes_one_of_two", AWAITS, 5, {A: {1, 2, 3}},
         after(UNRELEASED, 5, {A: {1: 3, 2: 5}}), held={A: {3}}),
    Case("unreleased_takes_the_last_and_is_stable", AWAITS, 5, {A: {1, 2}},
         after(STABLE, 5, {A: {1: 3, 2: 5}})),
    Case("unreleased_with_a_newer_target_takes_it", AWAITS, 6, {A: {1}, B: {4}},
         after(STABLE, 6, {A: {1: 3}, B: {4: 6}})),
    Case("unreleased_with_a_newer_target_gives_up", AWAITS, 6, {B: {4}},
         after(UNREVOKED, 5, {}, {A: {1: 3}})),
    Case("unreleased_with_a_newer_target_waits_for_others", AWAITS, 6, {A: {1}, B: {4}},
         after(UNRELEASED, 6, {A: {1: 3}}), held={B: {4}}),
    # Subscriptions that were dropped before there is a new target.
    Case("stable_that_dropped_a_topic_gives_it_up_at_once",
         current(STABLE, 5, HAS_ALL), 5, OWNS_ALL, after(UNREVOKED, 5, {A: {1: 3, 2: 5}},
         {B: {4: 5}}), subscribed=frozenset({A}), has_changed=True),
    Case("stable_that_dropped_a_topic_and_owns_none_of_it_stays_stable",
         current(STABLE, 5, HAS_ALL), 5, OWNS_ALL, after(STABLE, 5, {A: {1: 3, 2: 5}}),
         owned={A: {1, 2}}, subscribed=frozenset({A}), has_changed=True),
    Case("stable_that_dropped_all_topics_gives_all_up",
         current(STABLE, 5, HAS_ALL), 5, OWNS_ALL, after(UNREVOKED, 5, {}, HAS_ALL),
         subscribed=frozenset(), has_changed=True),
    Case("stable_that_dropped_a_topic_it_has_nothing_of_stays",
         current(STABLE, 5, {A: {1: 3}}), 5, {A: {1}}, None, subscribed=frozenset({A}),
         has_changed=True),
    Case("stable_with_unchanged_subscription_keeps_topics_outside_of_it",
         current(STABLE, 5, HAS_ALL), 5, OWNS_ALL, None, subscribed=frozenset({A})),
    Case("unrevoked_that_dropped_a_topic_owes_it_too",
         current(UNREVOKED, 5, {A: {1: 3}, B: {4: 4}}, {B: {6: 2}}), 6, {A: {1}},
         after(UNREVOKED, 5, {A: {1: 3}}, {B: {6: 2, 4: 4}}), owned={B: {6}},
         subscribed=frozenset({A}), has_changed=True),
    Case("stable_does_not_take_a_topic_that_it_dropped",
         current(STABLE, 5, {A: {1: 3}}), 6, {A: {1}, B: {4}}, after(STABLE, 6, {A: {1: 3}}),
         subscribed=frozenset({A}), has_changed=True),
    Case("stable_gives_up_a_dropped_topic_that_a_newer_target_has",
         current(STABLE, 5, HAS_ALL), 6, OWNS_ALL, after(UNREVOKED, 5, {A: {1: 3, 2: 5}},
         {B: {4: 5}}), subscribed=frozenset({A}), has_changed=True),
    Case("unreleased_stops_waiting_for_a_topic_that_it_dropped", AWAITS, 5, {A: {1}, B: {4}},
         after(STABLE, 5, {A: {1: 3}}), held={B: {4}}, subscribed=frozenset({A}),
         has_changed=True),
    # A state of a later Kafka.
    Case("unknown_state_that_owns_nothing_starts_anew", current(9, 5, {A: {1: 3}}), 6, {A: {1}},
         after(STABLE, 6, {A: {1: 3}}), owned={}),
]  # fmt: skip


def frozen(partitions: Partitions) -> dict[bytes, frozenset[int]]:
    return {topic: frozenset(numbers) for topic, numbers in partitions.items()}


def holds(*parts: Mapping[bytes, Mapping[int, int] | set[int]]) -> Callable[[bytes, int], bool]:
    return lambda topic, number: any(number in part.get(topic, ()) for part in parts)


def reconciled(case: Case) -> CurrentAssignment:
    return reconcile(
        ReconciliationInput(
            current=case.before,
            target_epoch=case.target_epoch,
            target=frozen(case.target),
            subscribed=case.subscribed,
            has_subscription_changed=case.has_changed,
            owned=None if case.owned is None else frozen(case.owned),
            is_held=holds(case.held, case.before.assigned, case.before.pending_revocation),
        )
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reconciliation_of_each_member_state_gives_the_listed_assignment(case: Case) -> None:
    result = reconciled(case)
    if case.expected is None:
        assert result is case.before
    else:
        assert result == case.expected and result is not case.before


def test_reconciliation_table_has_members_with_and_without_owned_partitions() -> None:
    states = {(case.before.state, case.owned is None) for case in CASES}
    assert states >= {(state, said) for state in (STABLE, UNREVOKED) for said in (True, False)}


@pytest.mark.parametrize("owned", [None, {A: {1}}])
def test_reconciliation_of_a_member_in_an_unknown_state_with_partitions_fences_the_member(
    owned: Partitions | None,
) -> None:
    with pytest.raises(FencedMemberEpoch, match="abandon all its partitions"):
        reconciled(Case("", current(9, 5, {A: {1: 3}}), 6, {A: {1}}, None, owned=owned))


MEMBERS = 3
numbers = st.integers(0, 4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("target"), st.lists(st.integers(0, MEMBERS), min_size=5, max_size=5)),
        st.tuples(st.just("beat"), st.integers(0, MEMBERS - 1)),
        st.tuples(st.just("lost"), st.integers(0, MEMBERS - 1)),  # the answer is lost
        st.tuples(st.just("unsubscribe"), st.integers(0, MEMBERS - 1)),
    ),
    max_size=40,
)


@given(steps)
def test_reconciliation_never_gives_a_partition_two_owners_and_reaches_the_target(
    events: list[tuple[str, list[int] | int]],
) -> None:
    """Each member obeys an answer with its next heartbeat. Some answers are lost."""
    members = [CurrentAssignment(0, 0, STABLE, {}, {}) for _ in range(MEMBERS)]
    owned = [set[int]() for _ in members]
    subscribed = [frozenset({A}) for _ in members]
    epoch, targets = 1, [set[int]() for _ in members]

    def beat(index: int, is_lost: bool = False, has_changed: bool = False) -> None:
        others = [m for m in members if m is not members[index]]
        held = [m.assigned for m in others] + [m.pending_revocation for m in others]
        mine = [members[index].assigned, members[index].pending_revocation]
        before = members[index]
        members[index] = now = reconcile(
            ReconciliationInput(
                current=before,
                target_epoch=epoch,
                target={A: frozenset(targets[index])} if targets[index] else {},
                subscribed=subscribed[index],
                has_subscription_changed=has_changed,
                owned={A: frozenset(owned[index])},
                is_held=holds(*held, *mine),
            )
        )
        assert now.member_epoch >= before.member_epoch
        if not is_lost:
            owned[index] = set(now.assigned.get(A, ()))
        everything = [
            number
            for m in members
            for part in (m.assigned, m.pending_revocation)
            for number in part.get(A, ())
        ]
        assert len(everything) == len(set(everything))
        for number in range(5):
            assert sum(number in own for own in owned) <= 1

    for kind, value in events:
        if isinstance(value, list):
            epoch += 1
            targets = [{n for n, owner in enumerate(value) if owner == i} for i in range(MEMBERS)]
        elif kind == "unsubscribe":
            subscribed[value] = frozenset() if subscribed[value] else frozenset({A})
            beat(value, has_changed=True)
        else:
            beat(value, is_lost=kind == "lost")
    for _ in range(4):
        for index in range(MEMBERS):
            beat(index)
    for index, now in enumerate(members):
        assert (now.state, now.member_epoch) == (STABLE, epoch)
        reached = targets[index] if subscribed[index] else set[int]()
        assert set(now.assigned.get(A, ())) <= targets[index]
        assert set(now.assigned.get(A, ())) == owned[index] or not subscribed[index]
        assert reached <= set(now.assigned.get(A, ())) or now.assigned == {}
