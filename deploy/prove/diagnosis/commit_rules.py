"""Offsets that are committed beside the transactions, by a timer, or before the output."""

from collections import defaultdict
from dataclasses import dataclass, field
from statistics import median

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

OUTSIDE_MIN = 2  # commits that went on, with output in a transaction before each
PERIODS_MIN, PERIOD_MIN_S, JITTER = 3, 0.8, 0.1
DEFAULT_S, DEFAULT_JITTER_S = 5.0, 0.1  # auto.commit.interval.ms of all clients
TICKS_MIN, TICKS_BEHIND_MAX, SPARSE_MAX = 3, 2, 5
REVOKED_S = 1.0  # a commit so close before a JoinGroup or LeaveGroup is that of a rebalance
BATCHES_BETWEEN_MIN = 2  # one batch, one commit: that is no timer
LATE_MIN = 5


@dataclass(slots=True)
class _Commits:
    """Of a group, from an instance."""

    offsets: dict[Partition, int] = field(default_factory=dict[Partition, int])
    outside: int = 0
    times: list[float] = field(default_factory=list[float])
    of_life: list[float] = field(default_factory=list[float])  # across rebalances
    is_tick: bool = False  # the last of them


class PlainCommits(FindingRule):
    """offsets-outside-transaction: each commit went on, and transactional output lay before it.
    auto-commit: the commits come as a clock ticks while output is written all the time: at equal
    distances within a stay in the group, or, since a timer goes on through rebalances, most of
    them whole defaults of 5 s behind one another, or behind the start of the client. Those that a
    rebalance brings about do not count."""

    def __init__(self) -> None:
        self._commits = defaultdict[tuple[str, str], _Commits](_Commits)
        self._written = defaultdict[str, int](int)  # batches since the last commit
        self._in_transactions = defaultdict[str, int](int)
        self._ticks, self._commits_of = defaultdict[str, int](int), defaultdict[str, int](int)
        self._connections = defaultdict[str, int](int)  # open ones, of an instance
        self._started_s = dict[str, float]()

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenProduce):
            for batch in seen.batches:
                self._written[seen.instance] += 1
                self._in_transactions[seen.instance] += batch.is_transactional
        elif isinstance(seen, SeenTxnOffsetCommit):
            self._in_transactions[seen.instance] += 1
        elif isinstance(seen, SeenJoin):
            self._commits[seen.instance, seen.group].times.clear()
            self._rebalances(seen)
        elif isinstance(seen, SeenRequest) and seen.api == "LeaveGroup":
            self._rebalances(seen)
        elif isinstance(seen, SeenOpened):
            if not self._connections[seen.instance]:
                self._started_s[seen.instance] = seen.at_s
            self._connections[seen.instance] += 1
        elif isinstance(seen, SeenClosed):
            self._connections[seen.instance] = max(0, self._connections[seen.instance] - 1)
        elif isinstance(seen, SeenOffsetCommit):
            self._committed(seen, tell)

    def _rebalances(self, seen: Sighting) -> None:
        for (instance, group), known in self._commits.items():
            if instance != seen.instance or known.is_tick or not known.of_life:
                continue
            if seen.at_s - known.of_life[-1] <= REVOKED_S:
                known.of_life.pop()
                self._commits_of[group] -= 1

    def _committed(self, seen: SeenOffsetCommit, tell: Tell) -> None:
        known = self._commits[seen.instance, seen.group]
        went_on = [(p, o) for p, o in seen.offsets if o > known.offsets.get(p, -1)]
        is_first = not known.offsets
        known.offsets.update(seen.offsets)
        if not went_on:
            return
        written = self._written.pop(seen.instance, 0)
        in_transactions = self._in_transactions.pop(seen.instance, 0)
        if in_transactions and not is_first:
            known.outside += 1
        if known.outside >= OUTSIDE_MIN:
            (topic, index), offset = went_on[0]
            tell(
                "offsets-outside-transaction", seen, seen.group,
                f"group {seen.group}: OffsetCommit of {topic}/{index} at {offset}, after output "
                "was written in transactions",
            )  # fmt: skip
        if written >= BATCHES_BETWEEN_MIN or in_transactions >= BATCHES_BETWEEN_MIN:
            known.times = [*known.times[-PERIODS_MIN:], seen.at_s]
            self._look_at_the_clock(seen, known, tell)
            self._look_at_ticks(seen, known, tell)
        else:
            known.times.clear()

    def _look_at_the_clock(self, seen: SeenOffsetCommit, known: _Commits, tell: Tell) -> None:
        gaps = [b - a for a, b in zip(known.times, known.times[1:], strict=False)]
        if len(gaps) < PERIODS_MIN:
            return
        period_s = median(gaps)
        if period_s >= PERIOD_MIN_S and all(abs(g - period_s) <= JITTER * period_s for g in gaps):
            tell(
                "auto-commit", seen, seen.group,
                f"group {seen.group}: an OffsetCommit every {period_s:.1f} s while output is "
                "written all the time",
            )  # fmt: skip

    def _look_at_ticks(self, seen: SeenOffsetCommit, known: _Commits, tell: Tell) -> None:
        back_s = TICKS_BEHIND_MAX * DEFAULT_S + DEFAULT_JITTER_S
        before = [at_s for at_s in known.of_life if seen.at_s - at_s <= back_s]
        known.of_life = [*before[-2 * SPARSE_MAX :], seen.at_s]
        self._commits_of[seen.group] += 1
        behind_s = [seen.at_s - at_s for at_s in before]
        if (started_s := self._started_s.get(seen.instance)) is not None:
            behind_s.append(seen.at_s - started_s)
        known.is_tick = len(before) <= SPARSE_MAX and any(
            abs(gap_s - round(gap_s / DEFAULT_S) * DEFAULT_S) <= DEFAULT_JITTER_S
            for gap_s in behind_s if gap_s > DEFAULT_S / 2
        )  # fmt: skip
        self._ticks[seen.group] += known.is_tick
        ticks, commits = self._ticks[seen.group], self._commits_of[seen.group]
        if ticks >= TICKS_MIN and 2 * ticks >= commits:
            tell(
                "auto-commit", seen, seen.group,
                f"group {seen.group}: {ticks} of {commits} OffsetCommits come a multiple of "
                f"{DEFAULT_S:g} s after another, whatever is written between them",
            )  # fmt: skip


class CommitBeforeOutput(FindingRule):
    """The key of an input that was committed already comes out of the same instance afterwards.

    Keys that come in twice say nothing. An output that came before the commit counts against it.
    """

    def __init__(self) -> None:
        self._inputs = defaultdict[str, Recent[int, tuple[Partition, int] | None]](Recent)
        self._committed = defaultdict[tuple[str, Partition], int](int)
        self._late, self._in_time = defaultdict[str, int](int), defaultdict[str, int](int)

    def see(self, seen: Sighting, tell: Tell) -> None:
        if isinstance(seen, SeenRecords):
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
                "commit-before-output", seen, partition[0],
                f"{late} outputs were sent after the offset of their input was committed, the last "
                f"of {partition[0]}/{partition[1]} at {offset}",
            )  # fmt: skip
