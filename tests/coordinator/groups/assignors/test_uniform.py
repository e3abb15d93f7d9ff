"""Test that uniform assignments are complete, even and sticky, and run in short steps."""

from collections.abc import Iterable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.groups.assignors.spec import AssignmentSpec
from oncelog.coordinator.groups.assignors.uniform import assign_uniform
from oncelog.runtime.steps import run_to_end

from ..step_lengths import longest_step
from .specs import A, B, C, check_complete, followed_by, member, pairs, sizes, spec, specs

STEP_MS_MAX = 5


def assigned(given: AssignmentSpec) -> dict[str, dict[bytes, set[int]]]:
    assignment = run_to_end(assign_uniform(given))
    check_complete(given, assignment)
    return {
        id: {topic: set(numbers) for topic, numbers in partitions.items()}
        for id, partitions in assignment.items()
    }


def test_uniform_group_without_members_has_no_assignment() -> None:
    assert run_to_end(assign_uniform(spec({A: 3}))) == {}


def test_uniform_members_without_topics_get_no_partition() -> None:
    assert assigned(spec({A: 3}, m=member([]), n=member([]))) == {"m": {}, "n": {}}


def test_uniform_topic_that_does_not_exist_is_not_assigned() -> None:
    assert assigned(spec({A: 1}, m=member([A, B]))) == {"m": {A: {0}}}


def test_uniform_first_assignment_gives_each_member_an_equal_share() -> None:
    assert assigned(spec({A: 3, B: 3}, m=member([A, B]), n=member([A, B]))) == {
        "m": {A: {0, 1, 2}},
        "n": {B: {0, 1, 2}},
    }


def test_uniform_with_fewer_partitions_than_members_leaves_the_last_members_empty() -> None:
    given = spec({A: 2}, m=member([A]), n=member([A]), o=member([A]))
    assert assigned(given) == {"m": {A: {0}}, "n": {A: {1}}, "o": {}}


def test_uniform_new_member_takes_one_partition_like_apache_kafka() -> None:
    """Kafka 4.3 assigns as follows: c1 keeps partition 0, c2 keeps 2, and the new member gets 1."""
    given = spec({A: 3}, c1=member([A], {A: [0, 1]}), c2=member([A], {A: [2]}), n1=member([A]))
    assert assigned(given) == {"c1": {A: {0}}, "c2": {A: {2}}, "n1": {A: {1}}}


def test_uniform_members_keep_their_partitions_and_share_those_of_a_member_that_left() -> None:
    given = spec({A: 6}, m=member([A], {A: [0, 3]}), o=member([A], {A: [2, 5]}))
    result = assigned(given)
    assert result["m"][A] > {0, 3} and result["o"][A] > {2, 5}


def test_uniform_assignor_with_an_odd_count_leaves_the_larger_share_with_its_member() -> None:
    given = spec({A: 5}, m=member([A], {A: [0, 1]}), n=member([A], {A: [2, 3, 4]}))
    assert assigned(given) == {"m": {A: {0, 1}}, "n": {A: {2, 3, 4}}}


def test_uniform_members_with_an_unchanged_target_get_the_same_object() -> None:
    given = spec({A: 4}, m=member([A], {A: [0, 1]}), n=member([A], {A: [2, 3]}))
    result = run_to_end(assign_uniform(given))
    assert all(result[id] is given.members[id].target for id in ("m", "n"))


def test_uniform_new_partitions_of_a_topic_go_to_the_members_with_the_fewest() -> None:
    given = spec({A: 5}, m=member([A], {A: [0, 1]}), n=member([A], {A: [2]}))
    assert assigned(given) == {"m": {A: {0, 1, 3}}, "n": {A: {2, 4}}}


def test_uniform_member_subscribed_to_fewer_topics_is_balanced_by_the_other_topics() -> None:
    given = spec({A: 3, B: 3}, m=member([A]), n=member([A, B]))
    assert assigned(given) == {"m": {A: {0, 1, 2}}, "n": {B: {0, 1, 2}}}


def test_uniform_member_that_drops_a_topic_is_compensated_with_other_partitions() -> None:
    given = spec(
        {A: 2, B: 2, C: 2},
        m=member([A, B], {A: [0], B: [0], C: [0]}),
        n=member([A, B, C], {A: [1], B: [1], C: [1]}),
    )
    result = assigned(given)
    assert result == {"m": {A: {0, 1}, B: {0}}, "n": {B: {1}, C: {0, 1}}}


def test_uniform_members_with_different_subscriptions_are_balanced_over_topics() -> None:
    given = spec(
        {A: 4, B: 4},
        m=member([A], {A: [0, 1, 2, 3]}),
        n=member([A, B], {B: [0, 1, 2, 3]}),
        o=member([B]),
    )
    assert sizes(run_to_end(assign_uniform(given))) == [2, 3, 3]


@given(specs(homogeneous=True))
def test_uniform_members_with_equal_subscriptions_differ_by_at_most_one_partition(
    given: AssignmentSpec,
) -> None:
    assignment = run_to_end(assign_uniform(given))
    check_complete(given, assignment)
    counts = sizes(assignment)
    assert not counts or counts[-1] - counts[0] <= 1


@given(specs(homogeneous=False))
def test_uniform_assignment_with_different_subscriptions_cannot_be_improved_by_a_move(
    given: AssignmentSpec,
) -> None:
    """No move of one partition makes the assignment more even.

    A second assignment is equal to it.
    """
    assignment = run_to_end(assign_uniform(given))
    check_complete(given, assignment)
    counts = {id: len(pairs(partitions)) for id, partitions in assignment.items()}
    for owner, partitions in assignment.items():
        for topic in partitions:
            others = [id for id, old in given.members.items() if topic in old.topic_ids]
            assert all(counts[owner] - counts[id] <= 1 for id in others)
    again = run_to_end(assign_uniform(followed_by(given, assignment)))
    assert again == assignment


@given(specs(homogeneous=True), st.data())
def test_uniform_members_that_leave_move_only_their_own_partitions(
    given: AssignmentSpec, data: st.DataObject
) -> None:
    """The shares of the other members only grow, so they keep their partitions."""
    before = run_to_end(assign_uniform(given))
    gone = data.draw(st.sets(st.sampled_from(sorted(before)))) if before else set[str]()
    after_spec = followed_by(given, before, without=gone)
    after = run_to_end(assign_uniform(after_spec))
    check_complete(after_spec, after)
    for id, partitions in after.items():
        assert pairs(before[id]) <= pairs(partitions)


@given(specs(homogeneous=True), st.integers(1, 4))
def test_uniform_members_that_join_take_only_their_share(given: AssignmentSpec, new: int) -> None:
    """No partition moves between two members that were in the group before."""
    before = run_to_end(assign_uniform(given))
    topics = next(iter(given.members.values())).topic_ids if given.members else frozenset[bytes]()
    old = followed_by(given, before)
    members = dict(old.members) | {f"zz{i}": member(topics) for i in range(new)}
    after_spec = AssignmentSpec(members=members, partition_counts=given.partition_counts)
    after = run_to_end(assign_uniform(after_spec))
    check_complete(after_spec, after)
    for id, partitions in before.items():
        assert pairs(after[id]) <= pairs(partitions)


def test_uniform_target_of_many_deleted_topics_is_read_in_steps() -> None:
    deleted: dict[bytes, Iterable[int]] = {number.to_bytes(16): (0,) for number in range(1, 5_001)}
    assert sum(1 for _ in assign_uniform(spec({A: 1}, m=member([A], target=deleted)))) >= 5


@pytest.mark.parametrize("homogeneous", [True, False])
def test_uniform_assignment_of_500_members_runs_in_short_steps(homogeneous: bool) -> None:
    topics = [bytes([number, 9]) * 8 for number in range(10)]
    members = {
        f"member-{i:03}": member(topics if homogeneous else topics[i % 3 :]) for i in range(500)
    }
    counts = {topic: 100 for topic in topics}
    given = AssignmentSpec(members=members, partition_counts=counts)
    for _ in range(2):  # the second one with targets, and 50 members fewer
        assignment, longest_ms = longest_step(partial(assign_uniform, given))
        check_complete(given, assignment)
        assert longest_ms < STEP_MS_MAX
        given = followed_by(given, assignment, without={f"member-{i:03}" for i in range(50)})
