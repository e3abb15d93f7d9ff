"""A1: of a transaction all records are visible at the end, or none; its offsets move with them.

A transaction that succeeded shows all; one of unknown outcome all or none; one that failed none
(that is J3's to say). Only records that the last reading would have met are counted. What a
transaction did to a group's offsets is judged by A5, which follows their chain; here it is asked
whether the last committed offset is one that the visible transactions left.
"""

from collections.abc import Iterable

import numpy as np

from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Case, Finding, finding
from ..analysis.view import View
from ..history.schema import OpOutcome

TORN = Anomaly("torn-transaction", "A1", "a part of a transaction is visible, a part is not")
ANOMALIES = (TORN,)
VALUES_MAX = 8


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Transactions with sends that the last reading should have met, and some that it did."""
    if view.scanned is None:
        return []
    counted = (view.transaction >= 0) & view.is_expected
    counted &= view.transaction < view.transactions.count
    owner = view.transaction[counted]
    total = np.bincount(owner, minlength=view.transactions.count)
    seen = np.bincount(owner[view.is_scanned[counted]], minlength=view.transactions.count)
    outcome = view.transactions.outcome[:-1]
    is_torn = (seen > 0) & (seen < total) & (outcome != OpOutcome.FAIL)
    is_torn |= (outcome == OpOutcome.OK) & (seen < total) & (total > 0)

    def case(row: int) -> Case:
        sends = np.flatnonzero((view.transaction == row) & view.is_expected)
        is_seen = view.is_scanned[sends]
        parts = {
            word: sorted({evidence.partition(int(view.partition[s])) for s in chosen})
            for word, chosen in (("visible_in", sends[is_seen]), ("missing_in", sends[~is_seen]))
        }
        missing = int(sends[~is_seen][0])
        where = int(view.partition[missing])
        facts = {
            "transaction": evidence.row("transactions", row),
            "visible": [view.value(int(s)) for s in sends[is_seen][:VALUES_MAX]],
            "missing": [view.value(int(s)) for s in sends[~is_seen][:VALUES_MAX]],
            **parts,
            "first_missing": evidence.send(missing),
            **evidence.around(where, int(view.history.column("sends", "offset")[missing])),
        }
        number = facts["transaction"]["transaction"]
        return Case(
            f"transaction {number}: {int(seen[row])} of {int(total[row])} are visible", facts
        )

    return finding(TORN, np.flatnonzero(is_torn), case)
