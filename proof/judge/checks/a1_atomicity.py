"""Check A1: either all records of a transaction are visible at the end, or none.

A successful transaction shows all records, a transaction of unknown outcome all or none, and a
failed transaction none (J3 reports that). Only records in the range of the last reading of the
topics count. The offsets of a transaction must move together with its records, which A5 checks.
"""

from collections.abc import Iterable

import numpy as np

from ..analysis.evidence import Evidence, Facts, told
from ..analysis.findings import Anomaly, Finding, finding
from ..analysis.view import View
from ..history.schema import OpOutcome

TORN = Anomaly("torn-transaction", "A1", "only a part of a transaction is visible")
ANOMALIES = (TORN,)
VALUES_MAX = 8


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find transactions of which the last reading of the topics shows only some records."""
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

    def facts_of(row: int) -> Facts:
        sends = np.flatnonzero((view.transaction == row) & view.is_expected)
        is_seen = view.is_scanned[sends]
        parts: Facts = {}
        for word, chosen in (("visible", sends[is_seen]), ("missing", sends[~is_seen])):
            parts[word] = [view.value(int(send)) for send in chosen[:VALUES_MAX]]
            found = {evidence.partition(int(view.partition[send])) for send in chosen}
            parts[f"{word}_in"] = sorted(found)
        missing = int(sends[~is_seen][0])
        offset = int(view.history.column("sends", "offset")[missing])
        return {
            "transaction": evidence.row("transactions", row),
            "seen": int(seen[row]),
            "sent": int(total[row]),
            **parts,
            "first_missing": evidence.send(missing),
            **evidence.around(int(view.partition[missing]), offset),
        }

    sentence = "transaction {transaction[transaction]}: {seen} of {sent} are visible"
    return finding(TORN, np.flatnonzero(is_torn), told(sentence, facts_of))
