"""The view of a group without the proxy, from repeated answers of Describe and List APIs.

The file does no I/O. `cli/observe.py` sends the requests. An open transaction lists its partitions.
Therefore a few answers connect a group (by its partition of `__consumer_offsets`) with the ids that
commit its offsets, and with their output.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

OFFSETS_TOPIC = "__consumer_offsets"
Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GroupLook:
    """One observation, with the partitions of each open transaction, and the committed offsets."""

    open: Mapping[str, frozenset[Partition]]
    offsets: Mapping[Partition, int]


@dataclass(slots=True, kw_only=True)
class WatchedGroup:
    """All that is known about the observed group.

    offsets_partitions: the number of partitions of `__consumer_offsets`. min_insync: by topic.
    open: the open transactions in all observations. first, last: the committed offsets in the first
    and in the last observation.
    """

    group: str
    state: str
    members: int
    offsets_partitions: int = 1
    min_insync: Mapping[str, int] = field(default_factory=dict[str, int])
    open: dict[str, set[Partition]] = field(default_factory=dict[str, set[Partition]])
    first: Mapping[Partition, int] | None = None
    last: Mapping[Partition, int] = field(default_factory=dict[Partition, int])

    def see(self, look: GroupLook) -> None:
        for name, places in look.open.items():
            self.open.setdefault(name, set()).update(places)
        self.first = look.offsets if self.first is None else self.first
        self.last = look.offsets

    @property
    def place(self) -> Partition:
        return OFFSETS_TOPIC, group_partition(self.group, self.offsets_partitions)


def group_partition(group: str, partitions: int) -> int:
    """Return a group's partition of `__consumer_offsets`, by Java's hash of its name."""
    code = 0
    for unit in _units(group):
        code = (code * 31 + unit) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % max(partitions, 1)


def _units(text: str) -> list[int]:
    data = text.encode("utf-16-be")
    return [int.from_bytes(data[at : at + 2]) for at in range(0, len(data), 2)]


def transactional_ids(facts: WatchedGroup) -> set[str]:
    """Return the ids whose transactions included the group's partition of `__consumer_offsets`."""
    return {name for name, places in facts.open.items() if facts.place in places}


def outputs(facts: WatchedGroup) -> set[str]:
    return {
        topic
        for name in transactional_ids(facts)
        for topic, _ in facts.open[name]
        if not topic.startswith("__")
    }


def has_moved(facts: WatchedGroup) -> bool:
    """Return whether a committed offset of the group rose since the first observation."""
    first = facts.first or {}
    return any(offset > first.get(place, -1) for place, offset in facts.last.items())


def conclusions(facts: WatchedGroup) -> list[str]:
    """Return lines of text about how the group commits its offsets and what it writes."""
    ids, written = transactional_ids(facts), outputs(facts)
    lines = [f"group {facts.group}: {facts.state}, {facts.members} members"]
    if ids:
        lines.append(f"its offsets are committed in transactions of {_listed(ids)}")
        lines.append(f"which write {_listed(written) if written else 'no topic that was seen'}")
    elif has_moved(facts):
        lines.append(
            "its offsets advanced, and no open transaction with them was seen. Either they are "
            "committed outside of transactions, or the transactions were too short to be seen"
        )
    else:
        lines.append("its offsets did not advance, so it is unknown how they are committed")
    if len(ids) > max(facts.members, 1):
        lines.append(
            f"{len(ids)} transactional ids for {facts.members} members: new ids at each start, or "
            "one for each input partition"
        )
    lines += [
        f"min-insync-1: {topic} has min.insync.replicas={least}; raise it to 2"
        for topic, least in sorted(facts.min_insync.items())
        if least < 2
    ]
    return lines


NOT_SEEN = (
    "isolation levels, acks and idempotence of its clients",
    "generation and member in its commits, require_stable in its reads of offsets",
    "the order of output and commits, what follows an abort, retries",
)


def _listed(names: Iterable[str]) -> str:
    names = sorted(names)
    rest = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + rest
