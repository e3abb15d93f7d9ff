"""The range assignor, which gives a member consecutive partitions of each topic.

Members with equal subscriptions to topics of equal size get the same partition numbers of every
topic, so that they can join the topics. Static members come first, sorted by instance id, so that
they get the same partitions after a restart.
"""

from ....runtime.steps import StepCounter, Steps
from .spec import ITEMS_A_STEP, Assignment, AssignmentSpec


def assign_range(spec: AssignmentSpec) -> Steps[Assignment]:
    """Return ranges of each topic. The first members get the larger ranges."""
    counter = StepCounter(ITEMS_A_STEP)
    subscribers: dict[bytes, int] = {}
    for member in spec.members.values():
        for topic_id in member.topic_ids:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
            if counter.ends_step():
                yield
    quotas = {
        topic_id: divmod(spec.partition_counts.get(topic_id, 0), count)
        for topic_id, count in subscribers.items()
    }
    # The number of members that have got their range of a topic.
    given = dict.fromkeys(subscribers, 0)
    assignment: Assignment = {}
    for member_id in sorted(spec.members, key=lambda id: _order(spec, id)):
        member = spec.members[member_id]
        partitions: dict[bytes, frozenset[int]] = {}
        for topic_id in member.topic_ids:
            share, extra = quotas[topic_id]
            before = given[topic_id]
            given[topic_id] = before + 1
            begin = before * share + min(before, extra)
            end = begin + share + (before < extra)
            if begin < end:
                partitions[topic_id] = frozenset(range(begin, end))
            if counter.ends_steps(end - begin + 1):
                yield
        assignment[member_id] = member.target if partitions == member.target else partitions
    return assignment


def _order(spec: AssignmentSpec, member_id: str) -> tuple[bool, str]:
    instance_id = spec.members[member_id].instance_id
    return (instance_id is None, member_id if instance_id is None else instance_id)
