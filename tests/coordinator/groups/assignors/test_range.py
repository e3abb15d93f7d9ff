"""Test that range assignments are complete and contiguous, and equal for topics of equal size."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.groups.assignors.range import assign_range
from oncelog.coordinator.groups.assignors.spec import AssignmentSpec
from oncelog.runtime.steps import run_to_end

from ..step_lengths import longest_step
from .specs import A, B, C, check_complete, member, spec, specs

STEP_MS_MAX = 5


def assigned(given: AssignmentSpec) -> dict[str, dict[bytes, list[int]]]:
    assignment = run_to_end(assign_range(given))
    check_complete(given, assignment)
    return {
        id: {topic: sorted(numbers) for topic, numbers in partitions.items()}
        for id, partitions in assignment.items()
    }


def test_range_group_without_members_has_no_assignment() -> None:
    assert run_to_end(assign_range(spec({A: 3}))) == {}


def test_range_topic_that_does_not_exist_is_not_assigned() -> None:
    assert assigned(spec({A: 1}, m=member([A, B]))) == {"m": {A: [0]}}


def test_range_first_members_get_the_larger_ranges() -> None:
    given = spec({A: 5, B: 3}, m=member([A, B]), n=member([A, B]))
    assert assigned(given) == {"m": {A: [0, 1, 2], B: [0, 1]}, "n": {A: [3, 4], B: [2]}}


def test_range_with_fewer_partitions_than_members_leaves_the_last_members_empty() -> None:
    given = spec({A: 1, B: 1}, m=member([A, B]), n=member([A, B]))
    assert assigned(given) == {"m": {A: [0], B: [0]}, "n": {}}


def test_range_topic_is_divided_among_its_own_subscribers() -> None:
    given = spec({A: 3, B: 3, C: 2}, m=member([A, B]), n=member([B]), o=member([B, C]))
    assert assigned(given) == {
        "m": {A: [0, 1, 2], B: [0]},
        "n": {B: [1]},
        "o": {B: [2], C: [0, 1]},
    }


def test_range_static_members_are_sorted_first_by_instance_id() -> None:
    given = spec(
        {A: 3},
        m=member([A]),
        n=member([A], instance_id="second"),
        o=member([A], instance_id="first"),
    )
    assert assigned(given) == {"o": {A: [0]}, "n": {A: [1]}, "m": {A: [2]}}


def test_range_static_member_that_restarts_gets_the_same_partitions() -> None:
    before = spec({A: 4}, a=member([A], instance_id="i"), b=member([A], instance_id="j"))
    after = spec({A: 4}, z=member([A], instance_id="i"), b=member([A], instance_id="j"))
    assert assigned(before)["a"] == assigned(after)["z"]


def test_range_members_with_an_unchanged_target_get_the_same_object() -> None:
    given = spec({A: 4}, m=member([A], {A: [0, 1]}), n=member([A], {A: [2, 3]}))
    result = run_to_end(assign_range(given))
    assert all(result[id] is given.members[id].target for id in ("m", "n"))


@given(specs(homogeneous=True) | specs(homogeneous=False))
def test_range_assignment_of_any_group_is_complete_contiguous_and_even(
    given: AssignmentSpec,
) -> None:
    assignment = run_to_end(assign_range(given))
    check_complete(given, assignment)
    for topic in given.partition_counts:
        subscribers = [id for id, old in given.members.items() if topic in old.topic_ids]
        numbers = [sorted(assignment[id].get(topic, ())) for id in subscribers]
        assert all(right == left + 1 for part in numbers for left, right in pairwise(part))
        assert not numbers or max(map(len, numbers)) - min(map(len, numbers)) <= 1


@given(specs(homogeneous=True), st.integers(1, 12))
def test_range_topics_of_equal_size_get_equal_ranges(given: AssignmentSpec, count: int) -> None:
    same = AssignmentSpec(
        members=given.members, partition_counts=dict.fromkeys(given.partition_counts, count)
    )
    for partitions in run_to_end(assign_range(same)).values():
        assert len(set(partitions.values())) <= 1


def test_range_assignment_of_500_members_yields_in_short_steps() -> None:
    topics = [bytes([number, 9]) * 8 for number in range(10)]
    members = {f"member-{i:03}": member(topics) for i in range(500)}
    given = AssignmentSpec(members=members, partition_counts=dict.fromkeys(topics, 100))
    assignment, longest_ms = longest_step(lambda: assign_range(given))
    check_complete(given, assignment)
    assert longest_ms < STEP_MS_MAX
