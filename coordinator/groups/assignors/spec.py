"""The immutable input and result of an assignor."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ....runtime.steps import StepCounter, Steps

PartitionsByTopic = Mapping[bytes, frozenset[int]]  # by topic id of 16 bytes
Assignment = dict[str, PartitionsByTopic]  # by member id, with an entry for each member of the spec


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignableMember:
    """A member as assignors see it. `target` is its part of the previous target assignment."""

    topic_ids: frozenset[bytes]
    instance_id: str | None = None
    target: PartitionsByTopic = field(default_factory=dict[bytes, frozenset[int]])


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentSpec:
    """The members of a group by their ids, and the number of partitions of each topic.

    A subscribed topic without a partition count does not exist and is not assigned. Members with
    equal subscriptions should share one frozenset, which is faster to compare.
    """

    members: Mapping[str, AssignableMember]
    partition_counts: Mapping[bytes, int]


Assignor = Callable[[AssignmentSpec], Steps[Assignment]]
ITEMS_A_STEP = 1_000


def is_homogeneous(spec: AssignmentSpec, counter: StepCounter) -> Steps[bool]:
    """Return whether all members are subscribed to the same topics."""
    first: frozenset[bytes] | None = None
    for member in spec.members.values():
        if first is None:
            first = member.topic_ids
        elif first is not member.topic_ids:
            if counter.ends_steps(len(first) + 1):
                yield
            if first != member.topic_ids:
                return False
    return True
