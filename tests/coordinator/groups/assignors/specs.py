"""The input of assignors (members and topics) for tests, and checks of any assignment."""

from collections.abc import Collection, Iterable

from hypothesis import strategies as st

from oncelog.coordinator.groups.assignors.spec import (
    AssignableMember,
    Assignment,
    AssignmentSpec,
    PartitionsByTopic,
)

TOPICS = [bytes([number]) * 16 for number in range(1, 7)]
A, B, C = TOPICS[:3]


def member(
    topics: Iterable[bytes],
    target: dict[bytes, Iterable[int]] | None = None,
    instance_id: str | None = None,
) -> AssignableMember:
    partitions = {topic: frozenset(numbers) for topic, numbers in (target or {}).items()}
    return AssignableMember(topic_ids=frozenset(topics), instance_id=instance_id, target=partitions)


def spec(counts: dict[bytes, int], **members: AssignableMember) -> AssignmentSpec:
    return AssignmentSpec(members=members, partition_counts=counts)


def pairs(partitions: PartitionsByTopic) -> set[tuple[bytes, int]]:
    return {(topic, number) for topic, numbers in partitions.items() for number in numbers}


def sizes(assignment: Assignment) -> list[int]:
    return sorted(len(pairs(partitions)) for partitions in assignment.values())


def followed_by(
    given: AssignmentSpec, assignment: Assignment, without: Collection[str] = ()
) -> AssignmentSpec:
    """Return the input of the next assignment, in which `assignment` is the members' target.

    The members in `without` have left.
    """
    members = {
        id: AssignableMember(
            topic_ids=old.topic_ids, instance_id=old.instance_id, target=assignment[id]
        )
        for id, old in given.members.items()
        if id not in without
    }
    return AssignmentSpec(members=members, partition_counts=given.partition_counts)


def check_complete(given: AssignmentSpec, assignment: Assignment) -> None:
    """Check that each partition of a subscribed topic has one owner, which is subscribed to it."""
    assert assignment.keys() == given.members.keys()
    owned: list[tuple[bytes, int]] = []
    for id, partitions in assignment.items():
        assert partitions.keys() <= given.members[id].topic_ids
        assert all(partitions.values())  # no topic without a partition
        owned += pairs(partitions)
    subscribed = {topic for old in given.members.values() for topic in old.topic_ids}
    expected = {
        (topic, number)
        for topic in subscribed
        for number in range(given.partition_counts.get(topic, 0))
    }
    assert len(owned) == len(set(owned)) and set(owned) == expected


counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12))
targets = st.dictionaries(
    st.sampled_from(TOPICS), st.frozensets(st.integers(0, 14), min_size=1, max_size=9), max_size=4
)
subscriptions = st.frozensets(st.sampled_from(TOPICS))


@st.composite
def specs(draw: st.DrawFn, homogeneous: bool) -> AssignmentSpec:
    """Draw members and topics. The current targets of members may overlap or be outdated."""
    shared = draw(subscriptions) if homogeneous else None
    members = draw(
        st.dictionaries(
            st.text("mnopq", min_size=1, max_size=3),
            st.builds(
                AssignableMember,
                topic_ids=subscriptions if shared is None else st.just(shared),
                instance_id=st.none() | st.sampled_from(["i", "j", "k"]),
                target=targets,
            ),
            max_size=9,
        )
    )
    return AssignmentSpec(members=members, partition_counts=draw(counts))
