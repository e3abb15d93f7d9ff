"""What the protocol shows only when it is known that outputs are wrong."""

from collections import defaultdict

from .rule import FindingRule, Tell
from .seen import (
    Partition,
    SeenFetch,
    SeenJoin,
    SeenOffsetCommit,
    SeenOffsetFetch,
    SeenProduce,
    SeenTxnOffsetCommit,
    SeenVerdict,
    Sighting,
)


class StateNotRebuilt(FindingRule):
    """Final values are wrong, and who took over offsets read nothing but what comes after them."""

    def __init__(self) -> None:
        self._joined = set[tuple[str, str]]()
        self._from = defaultdict[str, dict[Partition, int]](dict[Partition, int])
        self._rebuilds = set[str]()

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenJoin):
            self._joined.add((seen.instance, seen.group))
        elif isinstance(seen, SeenOffsetFetch):
            if (seen.instance, seen.group) in self._joined:
                taken = {p: offset for p, offset in seen.offsets if offset > 0}
                self._from[seen.instance].update(taken)
        elif isinstance(seen, SeenFetch):
            topics = {partition[0] for partition in self._from[seen.instance]}
            for partition, offset in seen.positions:
                begun = self._from[seen.instance].get(partition)
                if (topics and partition[0] not in topics) or (begun and offset < begun):
                    self._rebuilds.add(seen.instance)
        elif isinstance(seen, SeenVerdict) and seen.wrong_finals:
            self._judge(seen, tell)

    def _judge(self, seen: SeenVerdict, tell: Tell) -> None:
        for instance, taken in self._from.items():
            if taken and instance not in self._rebuilds:
                (topic, index), offset = next(iter(taken.items()))
                text = (
                    f"{seen.wrong_finals} final values are wrong; {instance or 'an instance'} took "
                    f"over {topic}/{index} at {offset} and read neither a topic of state nor "
                    "anything before"
                )
                tell("state-not-rebuilt", seen, topic, text)


class SinkNotAtomic(FindingRule):
    """Rows are wrong, the application writes nothing to Kafka, and its offsets are committed."""

    def __init__(self) -> None:
        self._groups = set[str]()
        self._writes = False

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenProduce):
            self._writes = True
        elif isinstance(seen, (SeenOffsetCommit, SeenTxnOffsetCommit)):
            self._groups.add(seen.group)
        elif isinstance(seen, SeenVerdict) and seen.is_sink and (seen.doubled or seen.lost):
            if self._writes:
                return
            groups = f"group {', '.join(sorted(self._groups))}" if self._groups else "no group"
            text = f"{seen.doubled} rows doubled, {seen.lost} lost; offsets are those of {groups}"
            tell("sink-not-atomic", seen, "sink", text)
