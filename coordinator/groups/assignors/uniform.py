"""The uniform assignor, which is as even as the subscriptions allow and moves few partitions.

With equal subscriptions a member's share is known in advance. One pass keeps the partitions that
fit into the share, and another pass distributes the rest. With different subscriptions, each
partition without an owner goes to the subscriber with the fewest partitions. Then each topic is
balanced in rounds until no partition moves. Members and topics are visited in the order of their
ids, so equal specs give equal results.
"""

from heapq import heapify, heappop, heappush, heapreplace

from ....runtime.steps import StepCounter, Steps
from .spec import (
    ITEMS_A_STEP,
    AssignableMember,
    Assignment,
    AssignmentSpec,
    PartitionsByTopic,
    is_homogeneous,
)

ROUNDS_MAX = 16  # the limit of balancing rounds, each of which halves the imbalance
_NO_OWNER = -1


def assign_uniform(spec: AssignmentSpec) -> Steps[Assignment]:
    """Return an even assignment that moves few partitions away from the members' targets."""
    counter = StepCounter(ITEMS_A_STEP)
    if not spec.members:
        return {}
    if (yield from is_homogeneous(spec, counter)):
        return (yield from _assign_equal(spec, counter))
    return (yield from _Uneven(spec, counter).assign())


def _assign_equal(spec: AssignmentSpec, counter: StepCounter) -> Steps[Assignment]:
    """Assign to members that are all subscribed to the same topics."""
    member_ids = sorted(spec.members)
    subscribed = spec.members[member_ids[0]].topic_ids
    counts = {id: spec.partition_counts[id] for id in subscribed if id in spec.partition_counts}
    share, extra = divmod(sum(counts.values()), len(member_ids))
    taken = {topic_id: bytearray(count) for topic_id, count in counts.items()}
    kept: dict[str, list[tuple[bytes, int]]] = {}
    for member_id in member_ids:
        target = spec.members[member_id].target
        kept[member_id] = own = []
        for topic_id in target:
            if counter.ends_step():
                yield
            marks = taken.get(topic_id)
            if marks is None:
                continue
            for partition in sorted(target[topic_id]):
                if counter.ends_step():
                    yield
                if len(own) <= share and partition < len(marks) and not marks[partition]:
                    marks[partition] = 1
                    own.append((topic_id, partition))
    has_extra: set[str] = set()
    # Members that already have one partition more than their share come first.
    for member_id in member_ids:
        own = kept[member_id]
        if len(own) > share and len(has_extra) < extra:
            has_extra.add(member_id)
        elif len(own) > share:
            topic_id, partition = own.pop()
            taken[topic_id][partition] = 0
        if counter.ends_step():
            yield
    # Owned partitions, and the number of missing ones.
    unfilled: list[tuple[list[tuple[bytes, int]], int]] = []
    for member_id in member_ids:
        if len(has_extra) < extra:
            has_extra.add(member_id)
        missing = share + (member_id in has_extra) - len(kept[member_id])
        if missing:
            unfilled.append((kept[member_id], missing))
        if counter.ends_step():
            yield
    unfilled.reverse()
    own: list[tuple[bytes, int]] = []
    missing = 0
    for topic_id in sorted(counts):
        for partition, mark in enumerate(taken[topic_id]):
            if counter.ends_step():
                yield
            if mark:
                continue
            if not missing:
                own, missing = unfilled.pop()
            own.append((topic_id, partition))
            missing -= 1
    assignment: Assignment = {}
    for member_id in member_ids:
        assignment[member_id] = _gathered(kept[member_id], spec.members[member_id])
        if counter.ends_steps(len(kept[member_id]) + 1):
            yield
    return assignment


def _gathered(own: list[tuple[bytes, int]], member: AssignableMember) -> PartitionsByTopic:
    """Group the partitions in `own` by topic. Return `member.target` itself if it is equal."""
    sets: dict[bytes, set[int]] = {}
    for topic_id, partition in own:
        sets.setdefault(topic_id, set()).add(partition)
    partitions = {topic_id: frozenset(numbers) for topic_id, numbers in sets.items()}
    return member.target if partitions == member.target else partitions


class _Uneven:
    """The assignment under construction for members with different subscriptions."""

    def __init__(self, spec: AssignmentSpec, counter: StepCounter) -> None:
        self._spec, self._counter = spec, counter
        self._member_ids = sorted(spec.members)
        self._load = [0] * len(self._member_ids)
        # The indexes of subscribed members by topic, ascending.
        self._subscribers: dict[bytes, list[int]] = {}
        self._owners: dict[bytes, list[int]] = {}  # the owner's index for each partition of a topic

    def assign(self) -> Steps[Assignment]:
        yield from self._keep()
        topic_ids = sorted(self._subscribers, key=self._rank)
        for topic_id in topic_ids:
            yield from self._hand_out(topic_id)
        for _ in range(ROUNDS_MAX):
            moved = 0
            for topic_id in topic_ids:
                moved += yield from self._even_out(topic_id)
            if not moved:
                break
        return (yield from self._result())

    def _rank(self, topic_id: bytes) -> tuple[float, int, bytes]:
        """Return a sort key that puts topics with the most partitions per subscriber first.

        The later topics can then compensate for an imbalance.
        """
        subscribers = len(self._subscribers[topic_id])
        return -len(self._owners[topic_id]) / subscribers, subscribers, topic_id

    def _keep(self) -> Steps[None]:
        """Let every member keep those partitions of its target that it is still subscribed to."""
        counts = self._spec.partition_counts
        for index, member_id in enumerate(self._member_ids):
            member = self._spec.members[member_id]
            for topic_id in member.topic_ids:
                if self._counter.ends_step():
                    yield
                if topic_id not in counts:
                    continue
                if topic_id not in self._owners:
                    self._owners[topic_id] = [_NO_OWNER] * counts[topic_id]
                    self._subscribers[topic_id] = []
                self._subscribers[topic_id].append(index)
                owners = self._owners[topic_id]
                for partition in member.target.get(topic_id, ()):
                    if partition < len(owners) and owners[partition] == _NO_OWNER:
                        owners[partition] = index
                        self._load[index] += 1
                    if self._counter.ends_step():
                        yield

    def _hand_out(self, topic_id: bytes) -> Steps[None]:
        """Assign each partition without an owner to the subscriber with the fewest partitions."""
        owners = self._owners[topic_id]
        if self._counter.ends_steps(len(owners)):
            yield
        if _NO_OWNER not in owners:
            return
        poorest = [(self._load[index], index) for index in self._subscribers[topic_id]]
        heapify(poorest)
        if self._counter.ends_steps(len(poorest)):
            yield
        for partition, owner in enumerate(owners):
            if owner == _NO_OWNER:
                load, index = poorest[0]
                owners[partition] = index
                self._load[index] = load + 1
                heapreplace(poorest, (load + 1, index))
            if self._counter.ends_step():
                yield

    def _even_out(self, topic_id: bytes) -> Steps[int]:
        """Move partitions from the fullest owner to the emptiest subscriber. Return how many moved.

        A subscriber that has received a partition never has to give one, because it has at most one
        more than the emptiest. An owner that has given one never becomes the emptiest. Therefore
        the two heaps stay valid.
        """
        subscribers, load = self._subscribers[topic_id], self._load
        if self._counter.ends_steps(len(subscribers)):
            yield
        loads = [load[index] for index in subscribers]
        if max(loads) - min(loads) <= 1:
            return 0
        owners = self._owners[topic_id]
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(owners):
            owned.setdefault(owner, []).append(partition)
            if self._counter.ends_step():
                yield
        richest = [(-load[index], index) for index in owned]
        poorest = [(load[index], index) for index in subscribers]
        heapify(richest)
        heapify(poorest)
        moved = 0
        while richest and -richest[0][0] - poorest[0][0] > 1:
            _, giver = heappop(richest)
            lowest, taker = poorest[0]
            owners[owned[giver].pop()] = taker
            load[giver] -= 1
            load[taker] += 1
            heapreplace(poorest, (lowest + 1, taker))
            if owned[giver]:
                heappush(richest, (-load[giver], giver))
            moved += 1
            if self._counter.ends_step():
                yield
        return moved

    def _result(self) -> Steps[Assignment]:
        sets: list[dict[bytes, set[int]]] = [{} for _ in self._member_ids]
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                sets[owner].setdefault(topic_id, set()).add(partition)
                if self._counter.ends_step():
                    yield
        assignment: Assignment = {}
        for member_id, own in zip(self._member_ids, sets, strict=True):
            partitions = {topic_id: frozenset(numbers) for topic_id, numbers in own.items()}
            target = self._spec.members[member_id].target
            assignment[member_id] = target if partitions == target else partitions
            if self._counter.ends_steps(len(own) + 1):
                yield
        return assignment
