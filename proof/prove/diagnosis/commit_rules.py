"""Rules about offsets committed outside of transactions, by a timer, or before the output."""

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median

from .commit_ticks import CommitTicks
from .rule import FindingRule, Recent, Tell
from .seen import (
    Partition,
    SeenClosed,
    SeenJoin,
    SeenOffsetCommit,
    SeenOpened,
    SeenProduce,
    SeenRecords,
    SeenRequest,
    SeenTxnOffsetCommit,
    Sighting,
)

OUTSIDE_MIN = 2  # commits that moved offsets, with output in a transaction before each
PERIODS_MIN, PERIOD_MIN_S, JITTER = 3, 0.8, 0.1
BATCHES_BETWEEN_MIN = 2  # one batch, one commit: that is not a timer
LATE_MIN = 5


@dataclass(slots=True)
class _Commits:
    """The commits that one instance sent for one group."""

    offsets: dict[Partition, int] = field(default_factory=dict[Partition, int])
    outside: int = 0
    times: list[float] = field(default_factory=list[float])


class PlainCommits(FindingRule):
    """The rules offsets-outside-transaction and auto-commit.

    offsets-outside-transaction: several commits of an instance increased a group's offsets after
    transactional output. The instance's first commit in the group is not counted.

    auto-commit: a timer sends the commits while output is written all the time. That is so if they
    come at equal intervals while the instance stays in its group, or if `commit_ticks` says so.
    """

    def __init__(self) -> None:
        self._commits = defaultdict[tuple[str, str], _Commits](_Commits)
        self._written = defaultdict[str, int](int)  # batches since the last commit
        self._in_transactions = defaultdict[str, int](int)
        self._written_since_s = dict[str, float]()  # the first of them
        self._ticks = CommitTicks()

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenProduce):
            self._written_since_s.setdefault(seen.instance, seen.at_s)
            for batch in seen.batches:
                self._written[seen.instance] += 1
                self._in_transactions[seen.instance] += batch.is_transactional
        elif isinstance(seen, SeenTxnOffsetCommit):
            self._in_transactions[seen.instance] += 1
        elif isinstance(seen, SeenJoin):
            self._commits[seen.instance, seen.group].times.clear()
            self._written_since_s.pop(seen.instance, None)
            self._ticks.rebalanced(seen.instance, seen.at_s)
        elif isinstance(seen, SeenRequest) and seen.api in ("JoinGroup", "LeaveGroup"):
            # Taken at the request, as the answer may wait for other members, or for a dead one's
            # session.
            self._ticks.rebalanced(seen.instance, seen.at_s)
        elif isinstance(seen, SeenOpened):
            self._ticks.opened(seen.instance, seen.at_s)
        elif isinstance(seen, SeenClosed):
            self._ticks.closed(seen.instance, seen.at_s)
        elif isinstance(seen, SeenOffsetCommit):
            self._committed(seen, tell)

    def _committed(self, seen: SeenOffsetCommit, tell: Tell) -> None:
        known = self._commits[seen.instance, seen.group]
        went_on = [(p, o) for p, o in seen.offsets if o > known.offsets.get(p, -1)]
        is_first = not known.offsets
        known.offsets.update(seen.offsets)
        if not went_on:
            return
        written = self._written.pop(seen.instance, 0)
        in_transactions = self._in_transactions.pop(seen.instance, 0)
        since_s = self._written_since_s.pop(seen.instance, None)
        if in_transactions and not is_first:
            known.outside += 1
        if known.outside >= OUTSIDE_MIN:
            (topic, index), offset = went_on[0]
            tell(
                "offsets-outside-transaction",
                seen,
                seen.group,
                f"group {seen.group}: OffsetCommit of {topic}/{index} at {offset}, after output "
                "was written in transactions",
            )
        if written >= BATCHES_BETWEEN_MIN or in_transactions >= BATCHES_BETWEEN_MIN:
            known.times = [*known.times[-PERIODS_MIN:], seen.at_s]
            self._look_at_the_clock(seen, known, tell)
            found = self._ticks.committed(seen.instance, seen.group, seen.at_s, since_s)
            if found:
                tell("auto-commit", seen, seen.group, f"group {seen.group}: {found}")
        else:
            known.times.clear()

    def _look_at_the_clock(self, seen: SeenOffsetCommit, known: _Commits, tell: Tell) -> None:
        gaps = [b - a for a, b in zip(known.times, known.times[1:], strict=False)]
        if len(gaps) < PERIODS_MIN:
            return
        period_s = median(gaps)
        if period_s >= PERIOD_MIN_S and all(abs(g - period_s) <= JITTER * period_s for g in gaps):
            tell(
                "auto-commit",
                seen,
                seen.group,
                f"group {seen.group}: an OffsetCommit every {period_s:.1f} s while output is "
                "written all the time",
            )


class CommitBeforeOutput(FindingRule):
    """The rule that an instance must not commit an input's offset before it writes the output.

    An output is recognised by the key of its input. A key that occurs in two inputs proves nothing.
    Keys before a batch with unknown keys prove nothing either, since they may occur again in that
    batch. A finding needs five outputs after the commit of their input, and more than before.
    """

    def __init__(self) -> None:
        self._inputs = defaultdict[str, Recent[int, tuple[Partition, int] | None]](Recent)
        self._committed = defaultdict[tuple[str, Partition], int](int)
        self._late, self._in_time = defaultdict[str, int](int), defaultdict[str, int](int)

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenRecords):
            if not seen.keys:
                self._inputs.pop(seen.instance, None)
            inputs = self._inputs[seen.instance]
            for offset, key in seen.keys:
                place = (seen.partition, offset)
                inputs.put(key, place if key not in inputs or inputs.get(key) == place else None)
        elif isinstance(seen, SeenOffsetCommit):
            for partition, offset in seen.offsets:
                self._committed[seen.instance, partition] = offset
        elif isinstance(seen, SeenProduce):
            for batch in seen.batches:
                for key, _ in batch.records:
                    self._written(seen, key, tell)

    def _written(self, seen: SeenProduce, key: int, tell: Tell) -> None:
        place = self._inputs[seen.instance].pop(key)
        if place is None:
            return
        partition, offset = place
        if offset >= self._committed[seen.instance, partition]:
            self._in_time[seen.instance] += 1
            return
        self._late[seen.instance] += 1
        late = self._late[seen.instance]
        if late >= LATE_MIN and late > self._in_time[seen.instance]:
            tell(
                "commit-before-output",
                seen,
                partition[0],
                f"{late} outputs were sent after the offset of their input was committed, the last "
                f"of {partition[0]}/{partition[1]} at {offset}",
            )
