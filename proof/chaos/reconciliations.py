"""Counts the faults of a run that hit a reconciliation in progress.

A fault counts when its effect was seen and it began while some member of a consumer group (KIP-848)
had not yet the partitions of its assignment. In the history this time begins with the answer that
assigned the partitions to the member. It ends with the start of the heartbeat that reported them,
or of the member's last answered heartbeat. The real time may be longer, for a member that waits for
partitions of others and was not told so, that died, or that was fenced.
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
