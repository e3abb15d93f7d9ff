"""Check A6: a partition has one owner in each generation of a group, and commits are not undone.

The members of a generation commit one after the other, and no member of an earlier generation comes
in between. The final offset is therefore that of a commit after which no other was acknowledged. A
commit is overtaken if it had returned before another commit began, or if it is of an earlier
generation. If the outcome of a commit is unknown, or the commit was requested several times, a
request may have been executed late, but within its generation. A static member that joins again
replaces its former incarnation, in the same generation (KIP-345).
"""

from collections.abc import Iterable, Iterator

import numpy as np

from ...analysis.arrays import Array, grouped
from ...analysis.evidence import Evidence, Facts
from ...analysis.findings import Anomaly, Case, Finding, finding
from ...analysis.view import View
from ...history.schema import OpOutcome

COMMIT_UNDONE = Anomaly(
    "commit-undone", "A6", "a group has another offset than the last acknowledged one"
)
TWO_OWNERS = Anomaly("two-owners", "A6", "two members owned a partition in one generation")
ANOMALIES = (COMMIT_UNDONE, TWO_OWNERS)
NEAR_MAX = 4


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find acknowledged commits that were undone, and partitions with two owners at once."""
    yield from finding(COMMIT_UNDONE, list(_undone(view, evidence)), lambda case: case)
    yield from finding(TWO_OWNERS, list(_two_owners(view, evidence)), lambda case: case)


def _undone(view: View, evidence: Evidence) -> Iterator[Case]:
    history = view.history

    def column(name: str) -> Array:
        return history.column("group_commits", name)

    ends = {
        (int(group), int(partition)): int(offset)
        for group, partition, offset in zip(
            *(history.column("committed", name) for name in ("group", "partition", "offset")),
            strict=True,
        )
    }
    group, partition = column("group"), column("partition")
    invoked, returned, outcome = column("invoked_ns"), column("returned_ns"), column("outcome")
    generation, offset = column("generation"), column("offset")
    is_over = (outcome == OpOutcome.OK) & (column("attempts") == 1)
    for rows in grouped(np.arange(len(group)), group, partition):
        key = int(group[rows[0]]), int(partition[rows[0]])
        done = rows[outcome[rows] == OpOutcome.OK]
        if key not in ends or not len(done):
            continue
        last_generation = generation[done].max()
        begun_last = invoked[done[generation[done] == last_generation]].max()
        may_be_last = (outcome[rows] != OpOutcome.FAIL) & (
            (generation[rows] > last_generation)
            | (
                (generation[rows] == last_generation)
                & (~is_over[rows] | (returned[rows] >= begun_last))
            )
        )
        stands = ends[key]
        if not (offset[rows[may_be_last]] == stands).any():
            last = done[np.lexsort((invoked[done], generation[done]))][-NEAR_MAX:]
            facts: Facts = {
                "group": history.name(key[0]),
                "partition": evidence.partition(key[1]),
                "offset": stands,
                "commits": [evidence.row("group_commits", int(row)) for row in last],
            }
            yield Case(
                f"{facts['group']}: {facts['partition']} stands at {stands}, and "
                f"{int(offset[last[-1]])} was acknowledged last",
                facts,
            )


def _two_owners(view: View, evidence: Evidence) -> Iterator[Case]:
    history = view.history
    names = "group", "generation", "partition"
    keys = [history.column("ownerships", name) for name in names]
    owner = history.column("ownerships", "owner")
    for rows in grouped(np.arange(len(owner)), *keys):
        owners = np.unique(owner[rows])
        if len(owners) > 1:
            told = [evidence.row("ownerships", int(row)) for row in rows[:NEAR_MAX]]
            group, generation, partition = (int(each[rows[0]]) for each in keys)
            where = f"{history.name(group)}: {evidence.partition(partition)}"
            yield Case(
                f"{where} had {len(owners)} owners in generation {generation}", {"owners": told}
            )
