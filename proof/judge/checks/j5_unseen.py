"""Check J5: all acknowledged records are there at the end, and every log is readable.

The last reading of the topics decides. If a partition was not read at the end, a value counts as
seen when any successful reader saw it (the value may then be late, not lost).
"""

from collections.abc import Iterable

import numpy as np

from ..analysis.evidence import Evidence, Facts, told
from ..analysis.findings import Anomaly, Finding, finding
from ..analysis.view import View
from ..history.schema import NONE, OpOutcome

UNSEEN = Anomaly("unseen", "J5", "an acknowledged value is not in the last reading")
LSO_STUCK = Anomaly("lso-stuck", "J5", "at the end the last stable offset is below the log's end")
EXPIRED = Anomaly("expired", "J5", "fresh records are gone from the start of a log")
ANOMALIES = (UNSEEN, LSO_STUCK, EXPIRED)


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find acknowledged records missing at the end, and partitions with an LSO below the HW.

    If the run keeps all records, a log start offset above 0 is a finding, too.
    """
    is_seen = np.where(view.scanned_partitions[view.partition], view.is_scanned, view.is_read)
    is_due = (view.outcome == OpOutcome.OK) & ~is_seen
    unseen = np.flatnonzero(is_due & (view.is_expected | ~view.scanned_partitions[view.partition]))

    def facts_of(send: int) -> Facts:
        return {
            "value": view.value(send),
            "partition": evidence.partition(int(view.partition[send])),
            "unseen_in_partition": int((view.partition[unseen] == view.partition[send]).sum()),
            "writer": evidence.send(send),
            "seen_before_by": evidence.first_reader(send),
        }

    sentence = "value {value}, acknowledged in {partition}, is not there"
    yield from finding(UNSEEN, unseen, told(sentence, facts_of))

    history = view.history
    stable = history.column("ends", "last_stable_offset")
    end = history.column("ends", "high_watermark")
    is_leader = history.column("ends", "replica") == NONE
    stuck = np.flatnonzero(is_leader & (stable >= 0) & (end >= 0) & (stable < end))
    sentence = "{partition}: stable up to {last_stable_offset} of {high_watermark}"
    yield from evidence.of_rows(LSO_STUCK, "ends", stuck, sentence)
    if history.settings.get("keeps_all"):
        expired = np.flatnonzero(is_leader & (history.column("ends", "log_start_offset") > 0))
        sentence = "{partition} begins at {log_start_offset}"
        yield from evidence.of_rows(EXPIRED, "ends", expired, sentence)
