"""Check L1: after the repair of all faults, every partition, transaction and broker works.

Every partition must have a leader, all replicas in its ISR, and no record above the high watermark.
Every transaction must have been decided within its timeout and two timeout checks. Every broker
must serve a produce, a commit and a consume.
"""

from collections.abc import Iterable

import numpy as np

from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Case, Finding, finding
from ..analysis.view import View
from ..history.schema import NONE, OpOutcome

NO_LEADER = Anomaly("no-leader", "L1", "at the end a partition has no leader")
NOT_IN_SYNC = Anomaly("not-in-sync", "L1", "at the end an ISR lacks replicas")
NOT_REPLICATED = Anomaly("not-replicated", "L1", "at the end records are above the high watermark")
UNDECIDED = Anomaly(
    "undecided", "L1", "a transaction was not decided within its timeout and two timeout checks"
)
PROBE_FAILED = Anomaly(
    "probe-failed", "L1", "a produce, commit or consume failed after the faults were repaired"
)
NOTHING_SUCCEEDED = Anomaly(
    "nothing-succeeded", "L1", "a kind of operation never succeeded: the run proves nothing"
)
ANOMALIES = (NO_LEADER, NOT_IN_SYNC, NOT_REPLICATED, UNDECIDED, PROBE_FAILED, NOTHING_SUCCEEDED)
SCAN_INTERVAL_MS = 1_000  # transaction.abort.timed.out.transaction.cleanup.interval.ms, ours
FINAL_STATES = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find partitions, transactions and brokers that do not work after the faults were repaired."""
    history = view.history
    is_leader = history.column("ends", "replica") == NONE
    by_row = {
        NO_LEADER: history.column("ends", "leader") < 0,
        NOT_IN_SYNC: history.column("ends", "in_sync") < history.column("ends", "replicas"),
        NOT_REPLICATED: (history.column("ends", "high_watermark") >= 0)
        & (history.column("ends", "high_watermark") < history.column("ends", "log_end_offset")),
    }
    for anomaly, is_bad in by_row.items():
        rows = np.flatnonzero(is_bad & is_leader)
        yield from evidence.of_rows(anomaly, "ends", rows, f"{{partition}}: {anomaly.what}")
    yield from _undecided(view, evidence)
    failed = np.flatnonzero(history.column("probes", "outcome") != OpOutcome.OK)
    sentence = "{kind} through broker {broker} did not succeed"
    yield from evidence.of_rows(PROBE_FAILED, "probes", failed, sentence)
    yield from _nothing(view)


def _undecided(view: View, evidence: Evidence) -> Iterable[Finding]:
    history = view.history
    scan_ms = int(history.settings.get("scan_interval_ms", SCAN_INTERVAL_MS))
    taken = history.column("ends", "taken_ns")
    now_ns = int(taken.max()) if len(taken) else -1
    names = history.column("decisions", "transactional_id").tolist()
    last = {name: row for row, name in enumerate(names)}
    state = history.column("decisions", "state")
    started = history.column("decisions", "started_ns")
    timeout = history.column("decisions", "timeout_ms")
    late = [
        row
        for row in last.values()
        if history.name(int(state[row])) not in FINAL_STATES
        and started[row] >= 0
        and now_ns > started[row] + (int(timeout[row]) + 2 * scan_ms) * 1_000_000
    ]
    sentence = "{transactional_id} is {state} at the end"
    return evidence.of_rows(UNDECIDED, "decisions", late, sentence)


def _nothing(view: View) -> Iterable[Finding]:
    """Find kinds of operations (send, transaction, poll) of which none succeeded."""
    history = view.history
    reads = sum(int(reads.is_ok.sum()) for reads in (*view.committed, *view.uncommitted))
    kinds = {
        "send": (history.count("sends"), int((view.outcome == OpOutcome.OK).sum())),
        "transaction": (
            history.count("transactions"),
            int((view.transactions.outcome[:-1] == OpOutcome.OK).sum()),
        ),
        "poll": (max(history.count("poll_calls"), 1), reads),
    }
    never = [kind for kind, (tried, succeeded) in kinds.items() if tried and not succeeded]
    is_raw_only = not history.count("sends") and history.count("batches")

    def case(kind: str) -> Case:
        return Case(f"no {kind} succeeded", {"kind": kind, "tried": kinds[kind][0]})

    return finding(NOTHING_SUCCEEDED, [] if is_raw_only else never, case)
