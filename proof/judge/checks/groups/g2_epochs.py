"""Check G2: the epochs of a consumer group (KIP-848) never decrease.

A member never gets an epoch below its last epoch. A joining member gets the epoch of the newest
target assignment, which is not below any epoch that a member got before.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np

from ...analysis.arrays import Array, grouped
from ...analysis.evidence import Evidence
from ...analysis.findings import Anomaly, Case, Finding, finding
from ...analysis.view import View

EPOCH_FELL = Anomaly("member-epoch-fell", "G2", "a member got a lower epoch than before")
ANOMALIES = (EPOCH_FELL,)
JOINS = 0


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find member epochs that are lower than an earlier epoch of the member or the group."""
    yield from finding(EPOCH_FELL, list(_fallen(view, evidence)), lambda case: case)


def _fallen(view: View, evidence: Evidence) -> Iterator[Case]:
    history = view.history

    def column(name: str) -> Array:
        return history.column("member_epochs", name)

    group, process, epoch = column("group"), column("process"), column("epoch")
    invoked, returned, said = column("invoked_ns"), column("returned_ns"), column("said")
    for rows in grouped(np.arange(len(group)), group):
        by_return = rows[np.argsort(returned[rows], kind="stable")]
        highest = np.maximum.accumulate(epoch[by_return])
        for of_one in grouped(rows, process):
            for before, row in pairwise(of_one):
                if epoch[row] < epoch[before]:
                    yield _case(evidence, before, row)
        for row in rows[said[rows] == JOINS]:
            told = int(np.searchsorted(returned[by_return], invoked[row]))
            if told and highest[told - 1] > epoch[row]:
                before = by_return[int(np.argmax(epoch[by_return[:told]]))]
                if process[before] != process[row]:
                    yield _case(evidence, before, row)


def _case(evidence: Evidence, before: int, after: int) -> Case:
    first, then = (evidence.row("member_epochs", int(row)) for row in (before, after))
    return Case(
        f"{then['group']}: {then['owner']} was told epoch {then['epoch']} after {first['owner']} "
        f"had been told {first['epoch']}",
        {"told": [first, then]},
    )
