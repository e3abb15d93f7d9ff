"""Check A5: a read-process-write job uses every input once, in order.

The job must also commit the right offsets. Inputs are the records of the last reading of the
topics, in the partitions for which the group committed offsets. They begin at the lowest offset
from which a transaction of the group read, even a failed one, and end at the last committed offset.
The intervals of offsets that the group's visible transactions committed must follow one another.
An overlap is work done twice, and a hole with records is omitted work. A transaction of unknown
outcome without a visible record may have moved the offsets or not. Therefore a hole that such
transactions would fill, or an end where such a transaction would leave the offsets, is not judged.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np

from ..analysis.arrays import Array, begins, grouped
from ..analysis.evidence import Evidence, Facts
from ..analysis.findings import Anomaly, Case, Finding, finding
from ..analysis.view import Reads, View
from ..history.schema import OpOutcome

INPUT_LOST = Anomaly("input-lost", "A5", "an input whose offset is committed has no output")
INPUT_DOUBLED = Anomaly("input-doubled", "A5", "an input has several visible outputs")
INPUT_INVISIBLE = Anomaly("input-invisible", "A5", "an output was made from an invisible record")
OFFSET_OVERLAP = Anomaly("offset-overlap", "A5", "two transactions committed the same offsets")
OFFSET_GAP = Anomaly("offset-gap", "A5", "committed offsets skip records or decrease")
OUTPUT_ORDER = Anomaly("output-order", "A5", "outputs have another order than their inputs")
ANOMALIES = (INPUT_LOST, INPUT_DOUBLED, INPUT_INVISIBLE, OFFSET_OVERLAP, OFFSET_GAP, OUTPUT_ORDER)


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find inputs that a group used twice or not at all, and wrong committed offsets.

    Nothing is judged if the topics were not read at the end of the run.
    """
    if view.scanned is None:
        return
    commits = _Commits(view)
    yield from _offsets(view, evidence, view.scanned, commits)
    yield from _inputs(view, evidence, view.scanned, commits)


class _Commits:
    """The offsets committed in transactions and outside of them, and the transactions' outcomes."""

    def __init__(self, view: View) -> None:
        history = view.history
        self.group = history.column("offset_commits", "group")
        self.partition = history.column("offset_commits", "partition")
        self.low = history.column("offset_commits", "from_offset")
        self.high = history.column("offset_commits", "to_offset")
        transactions = view.transactions
        owner = transactions.rows_of(history.column("offset_commits", "transaction"))
        shown = np.zeros(transactions.count + 1, bool)
        shown[view.transaction[view.is_scanned & (view.transaction >= 0)]] = True
        sent = np.zeros(transactions.count + 1, bool)
        sent[view.transaction[view.is_expected & (view.transaction >= 0)]] = True
        own = history.column("offset_commits", "outcome")
        outcome = np.where(owner >= 0, transactions.outcome[owner], own)
        is_shown = (owner >= 0) & shown[owner]
        self.is_done = (outcome == OpOutcome.OK) | is_shown
        # a transaction that sent records and shows none was not committed
        may_be = (outcome == OpOutcome.INFO) & ~is_shown
        self.is_unknown = may_be & ~((owner >= 0) & sent[owner])
        self.ends = {
            (int(g), int(p)): int(o)
            for g, p, o in zip(
                *(history.column("committed", c) for c in ("group", "partition", "offset")),
                strict=True,
            )
        }

    def chains(self) -> list[tuple[int, int, Array]]:
        """Return (group, partition, the rows of its commits in the order of their offsets)."""
        rows = np.flatnonzero(self.is_done)
        rows = rows[np.lexsort((self.high[rows], self.low[rows]))]
        return [
            (int(self.group[part[0]]), int(self.partition[part[0]]), part)
            for part in grouped(rows, self.group, self.partition)
        ]

    def begun_at(self, group: int, partition: int) -> int:
        """Return the lowest offset that a commit of the group covers in a partition."""
        return int(self.low[(self.group == group) & (self.partition == partition)].min())

    def may_fill(self, group: int, partition: int, offsets: Array) -> bool:
        """Return whether transactions of unknown outcome could cover all these input offsets."""
        is_filled = np.zeros(len(offsets), bool)
        for row in self._unknown(group, partition):
            is_filled |= (self.low[row] <= offsets) & (offsets < self.high[row])
        return bool(is_filled.all())

    def may_end_at(self, group: int, partition: int, offset: int) -> bool:
        """Return whether a transaction of unknown outcome could have committed this offset."""
        return bool((self.high[self._unknown(group, partition)] == offset).any())

    def _unknown(self, group: int, partition: int) -> Array:
        return np.flatnonzero(
            self.is_unknown & (self.group == group) & (self.partition == partition)
        )


def _offsets(
    view: View, evidence: Evidence, scanned: Reads, commits: _Commits
) -> Iterable[Finding]:
    overlaps: list[tuple[int, int, int, int]] = []
    gaps: list[tuple[int, int, int, int]] = []
    for group, partition, rows in commits.chains():
        offsets = np.sort(scanned.offset[scanned.partition == partition])

        def records(low: int, high: int, offsets: Array = offsets) -> Array:
            return offsets[np.searchsorted(offsets, low) : np.searchsorted(offsets, high)]

        before = np.maximum.accumulate(commits.high[rows])[:-1]
        low = commits.low[rows][1:]
        for at in np.flatnonzero(low < before):
            end = min(int(before[at]), int(commits.high[rows][at + 1]))
            if len(records(int(low[at]), end)):
                overlaps.append((group, partition, int(low[at]), end))
        holes = [(commits.begun_at(group, partition), int(commits.low[rows[0]]))]
        holes += [(int(before[at]), int(low[at])) for at in np.flatnonzero(low > before)]
        last = int(commits.high[rows].max())
        committed = commits.ends.get((group, partition), last)
        holes.append((last, committed))
        gaps += [
            (group, partition, a, b)
            for a, b in holes
            if len(found := records(a, b)) and not commits.may_fill(group, partition, found)
        ]
        has_fallen = len(records(committed, last)) > 0
        if has_fallen and not commits.may_end_at(group, partition, committed):
            gaps.append((group, partition, committed, last))

    def case(word: str, interval: tuple[int, int, int, int]) -> Case:
        group, partition, low, high = interval
        facts: Facts = {
            "group": view.history.name(group),
            "partition": evidence.partition(partition),
            "from_offset": low,
            "to_offset": high,
            "commits": _near(commits, evidence, *interval),
        }
        return Case(f"{facts['group']}: {facts['partition']} [{low}, {high}) {word}", facts)

    yield from finding(OFFSET_OVERLAP, overlaps, partial(case, "committed twice"))
    yield from finding(OFFSET_GAP, gaps, partial(case, "left out"))


def _near(
    commits: _Commits, evidence: Evidence, group: int, partition: int, low: int, high: int
) -> list[Facts]:
    rows = np.flatnonzero(
        (commits.group == group)
        & (commits.partition == partition)
        & (commits.high >= low)
        & (commits.low <= high)
    )
    return [evidence.row("offset_commits", int(row)) for row in rows[:6]]


def _inputs(view: View, evidence: Evidence, scanned: Reads, commits: _Commits) -> Iterable[Finding]:
    history = view.history
    if not history.count("derivations"):
        return
    groups = history.column("derivations", "group")
    partition = history.column("derivations", "partition")
    offset = history.column("derivations", "offset")
    outputs = view.find(history.column("derivations", "value"))
    is_shown = (outputs >= 0) & view.is_scanned[outputs]
    source = view.places.of(partition, offset)
    is_there = np.zeros(view.places.size + 1, bool)
    is_there[scanned.place] = True
    is_there[-1] = False

    def output_case(row: int, why: str) -> Case:
        facts: Facts = {
            "group": history.name(int(groups[row])),
            "input": f"{evidence.partition(int(partition[row]))}@{int(offset[row])}",
            "output": evidence.send(int(outputs[row])),
        }
        return Case(f"{facts['input']} {why}", facts)

    hidden = np.flatnonzero(is_shown & ~is_there[source] & ~view.may_be_gone(partition, offset))
    yield from finding(
        INPUT_INVISIBLE, hidden, lambda row: output_case(row, "is not visible, its output is")
    )
    for group in np.unique(groups):
        chosen = np.flatnonzero(is_shown & (groups == group) & (source >= 0))
        uses = np.bincount(source[chosen], minlength=view.places.size)
        doubled = np.flatnonzero(uses > 1)

        def doubled_case(place: int, chosen: Array = chosen) -> Case:
            rows = chosen[source[chosen] == place]
            sends = [evidence.send(int(outputs[row])) for row in rows[:4]]
            at = "@".join(map(str, evidence.place(place)))
            return Case(f"{at} was used {len(rows)} times", {"input": at, "outputs": sends})

        yield from finding(INPUT_DOUBLED, doubled, doubled_case)
        due = np.zeros(view.places.size, bool)
        for of_group, of_partition, rows in commits.chains():
            if of_group == group:
                last = commits.ends.get((of_group, of_partition), int(commits.high[rows].max()))
                is_due = (scanned.partition == of_partition) & (scanned.offset < last)
                is_due &= scanned.offset >= commits.low[rows].min()
                due[scanned.place[is_due]] = True

        def lost_case(place: int, group: int = int(group)) -> Case:
            name, at = evidence.place(place)
            number = history.name_id(name)
            near = _near(commits, evidence, group, number, at, at + 1)
            facts: Facts = {"input": f"{name}@{at}", "commits": near}
            return Case(f"{name}@{at} is committed as done and has no output", facts)

        yield from finding(INPUT_LOST, np.flatnonzero(due & (uses == 0)), lost_case)
        target = view.order.first_place[outputs[chosen]]
        into = view.places.group_of(target)
        order = np.lexsort((target, into, partition[chosen]))
        rows = chosen[order]
        is_first = begins(partition[rows], into[order])
        is_back = np.zeros(len(rows), bool)
        is_back[1:] = ~is_first[1:] & (offset[rows][1:] < offset[rows][:-1])
        yield from finding(
            OUTPUT_ORDER, rows[is_back], lambda row: output_case(row, "came out after a later one")
        )
