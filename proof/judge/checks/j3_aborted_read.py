"""Check J3: failed records are not read with read_committed, and never-sent ones not at all.

If the client does not know the outcome of its transaction, the marker in the log decides.
"""

from collections.abc import Iterable

import numpy as np

from .. import log_anomalies
from ..analysis.aborted import is_aborted
from ..analysis.arrays import Array
from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Finding
from ..analysis.view import Reads, View
from ..history.schema import OpOutcome

ABORTED_READ = Anomaly("G1a", "J3", "a value of a failed send or aborted transaction was read")
PHANTOM_READ = Anomaly.of_log(log_anomalies.PHANTOM_READ, "J3")
ANOMALIES = (ABORTED_READ, PHANTOM_READ)


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find records that were read although their send failed or never happened."""

    def has_failed(reads: Reads) -> Array:
        outcome = view.outcome[reads.writer]
        found = outcome == OpOutcome.FAIL
        unknown = np.flatnonzero(
            (outcome == OpOutcome.INFO) & (view.transaction[reads.writer] >= 0)
        )
        found[unknown] = is_aborted(view, reads.partition[unknown], reads.offset[unknown])
        return found

    def is_unsent(reads: Reads) -> Array:
        return reads.writer >= view.sends

    sentence = "value {value} at {partition}@{offset}, %s, was read"
    yield from evidence.of_readings(ABORTED_READ, has_failed, sentence % "whose writer failed")
    unsent = sentence % "which nobody sent"
    yield from evidence.of_readings(PHANTOM_READ, is_unsent, unsent, is_of_all=True)
