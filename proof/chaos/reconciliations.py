"""Counts the faults of a run that hit a reconciliation in progress.

A fault counts when its effect was seen and it began while some member of a consumer group (KIP-848)
had not reached its target. This time begins with the answer that assigned other partitions to the
member. It ends when the member sends the heartbeat that reports the new partitions, or its last
heartbeat that was answered. Only certain knowledge of members counts. A member counts for less time
than in its coordinator's records if it waits for partitions of others and was not told so, if it
died, or if it was fenced.
"""

import numpy as np

from ..judge.history.columns import History


def faults_in_reconciliations(history: History) -> int:
    """Count the faults that hit a reconciliation in progress, from the tables of a history."""
    begun = history.column("reconciliations", "begun_ns")
    order = np.argsort(begun, kind="stable")
    begun = begun[order]
    latest = np.maximum.accumulate(history.column("reconciliations", "until_ns")[order])
    started = history.column("faults", "started_ns")
    before = np.searchsorted(begun, started, side="right")
    is_met = before > 0
    return int((latest[before[is_met] - 1] >= started[is_met]).sum())
