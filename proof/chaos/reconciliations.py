"""The faults of a run that met a reconciliation in flight.

A fault counts when it was seen to happen and it began while some member of a consumer group
(KIP-848) had not reached its target. A member has not reached its target from the answer that gave
it other partitions than it had until the last heartbeat began that was answered well, up to the one
that said that it had them. All of it is what members know for certain: a member that waits for
partitions of others without having been told, that died, or that was fenced meanwhile counts for
less time than its coordinator's records would.
"""

import numpy as np

from ..judge.history.columns import History


def faults_in_reconciliations(history: History) -> int:
    """Count them, from the tables `faults` and `reconciliations`."""
    begun = history.column("reconciliations", "begun_ns")
    order = np.argsort(begun, kind="stable")
    begun = begun[order]
    latest = np.maximum.accumulate(history.column("reconciliations", "until_ns")[order])
    started = history.column("faults", "started_ns")
    before = np.searchsorted(begun, started, side="right")
    is_met = before > 0
    return int((latest[before[is_met] - 1] >= started[is_met]).sum())
