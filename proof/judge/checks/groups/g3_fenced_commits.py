"""Check G3: no offset of a former owner of a partition is accepted (KIP-848).

Assume that member A owned a partition, that member B got the partition after A, and that A then
sends an OffsetCommit or TxnOffsetCommit. The commit must be refused, because A's epoch is fenced
for the partition. B got the partition after A if B's heartbeat was sent after A had received the
answer with its assignment. If A has owned the partition twice, the epoch of the commit tells which
ownership is meant.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from ...analysis.arrays import Array, RowsByNumber
from ...analysis.evidence import Evidence
from ...analysis.findings import Anomaly, Case, Finding, finding
from ...analysis.view import View
from ...history.schema import OpOutcome
from .tenures import by_partition, tenure_column

INT_MAX = 2**31 - 1
FENCED_COMMIT = Anomaly(
    "fenced-commit",
    "G3",
    "a member's commit was accepted after another member had owned the partition",
)
ANOMALIES = (FENCED_COMMIT,)


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find accepted commits of a member after another member had got the partition."""
    yield from finding(FENCED_COMMIT, list(_fenced(view, evidence)), lambda case: case)


def _accepted(view: View) -> Iterator[tuple[str, Array]]:
    """Yield each table of commits with its rows of commits that the coordinator accepted."""
    history = view.history
    plain = history.column("group_commits", "outcome") == OpOutcome.OK
    yield "group_commits", np.flatnonzero(plain)
    transactions = history.column("transactions", "outcome")
    if len(transactions):
        number = history.column("transactions", "transaction")
        rows = RowsByNumber(number).of(history.column("offset_commits", "transaction"))
        yield (
            "offset_commits",
            np.flatnonzero((rows >= 0) & (transactions[rows] == OpOutcome.OK)),
        )


def _fenced(view: View, evidence: Evidence) -> Iterator[Case]:
    history = view.history
    tenures = {(group, where): rows for group, where, rows in by_partition(history)}
    asked, taken, owner, epoch = (
        tenure_column(history, name) for name in ("asked_ns", "taken_ns", "process", "epoch")
    )
    for table, rows in _accepted(view):
        group, partition, process, invoked = (
            history.column(table, name) for name in ("group", "partition", "process", "invoked_ns")
        )
        epoch_max = (
            history.column(table, "generation")
            if table == "group_commits"
            else np.full(len(group), INT_MAX)  # the history does not record it for transactions
        )
        for row in rows:
            of_partition = tenures.get((int(group[row]), int(partition[row])))
            if of_partition is None:
                continue
            before = of_partition[taken[of_partition] < invoked[row]]
            is_own = owner[before] == process[row]
            own = before[is_own & (epoch[before] <= epoch_max[row])]
            others = before[~is_own]
            later = others[asked[others] >= taken[own[-1]]] if len(own) else own
            if len(later):
                told = evidence.row(table, int(row))
                yield Case(
                    f"{told['group']}: {told['partition']} had another member before a commit of "
                    "the one before it, which was accepted",
                    {
                        "commit": told,
                        "tenures": [
                            evidence.row("tenures", int(each)) for each in (own[-1], later[-1])
                        ],
                    },
                )
