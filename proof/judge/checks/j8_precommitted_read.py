"""Check J8: a transaction never reads its own records, which are invisible until its commit."""

from collections.abc import Iterable

from ..analysis.arrays import Array
from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Finding
from ..analysis.view import Reads, View

PRECOMMITTED_READ = Anomaly("precommitted-read", "J8", "a transaction read its own value")
ANOMALIES = (PRECOMMITTED_READ,)


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find polls within a transaction that return records of that transaction."""

    def is_own(reads: Reads) -> Array:
        writer = view.transaction[reads.writer]
        return (writer >= 0) & (writer == reads.transaction)

    sentence = "value {value} was read by its own transaction"
    return evidence.of_readings(PRECOMMITTED_READ, is_own, sentence)
