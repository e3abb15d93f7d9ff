"""J8: a transaction never reads what it wrote itself: that is invisible until it commits."""

from collections.abc import Iterable

import numpy as np

from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Case, Finding, finding
from ..analysis.view import Reads, View

PRECOMMITTED_READ = Anomaly("precommitted-read", "J8", "a transaction read its own value")
ANOMALIES = (PRECOMMITTED_READ,)


def check(view: View) -> Iterable[Finding]:
    """Polls for a transaction that is also their writer."""
    evidence = Evidence(view)
    for reads in view.committed:
        yield from _of(view, evidence, reads)


def _of(view: View, evidence: Evidence, reads: Reads) -> Iterable[Finding]:
    own = view.transaction[reads.writer]
    rows = np.flatnonzero((own >= 0) & (own == reads.transaction))

    def case(row: int) -> Case:
        facts = {
            "value": view.value(int(reads.writer[row])),
            "writer": evidence.send(int(reads.writer[row])),
            "reader": evidence.read(reads, row),
        }
        return Case(f"value {facts['value']} was read by its own transaction", facts)

    return finding(PRECOMMITTED_READ, rows, case)
