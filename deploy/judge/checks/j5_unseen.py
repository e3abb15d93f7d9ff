"""J5: at the end everything acknowledged is there; and every log can be read to its end.

The last reading is the judge. Where a partition was not read at last, a value counts as seen when
any reader that succeeded saw it (it may then be late, not lost).
"""

from collections.abc import Iterable

import numpy as np

from ..analysis.arrays import Array
from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Case, Finding, finding
from ..analysis.view import View
from ..history.schema import NONE, Outcome

UNSEEN = Anomaly("unseen", "J5", "an acknowledged value is not in the last reading")
LSO_STUCK = Anomaly("lso-stuck", "J5", "at the end the last stable offset is below the log's end")
ANOMALIES = (UNSEEN, LSO_STUCK)


def check(view: View) -> Iterable[Finding]:
    """Acknowledged sends that nobody has seen at the end; partitions with an open end."""
    evidence = Evidence(view)
    is_seen = np.where(view.scanned_partitions[view.partition], view.is_scanned, view.is_read)
    is_due = (view.outcome == Outcome.OK) & ~is_seen
    unseen = np.flatnonzero(is_due & (view.is_expected | ~view.scanned_partitions[view.partition]))

    def case(send: int) -> Case:
        partition = evidence.partition(int(view.partition[send]))
        facts = {
            "value": view.value(send),
            "partition": partition,
            "unseen_in_partition": int((view.partition[unseen] == view.partition[send]).sum()),
            "writer": evidence.send(send),
            "seen_before_by": evidence.first_reader(send),
        }
        return Case(f"value {facts['value']}, acknowledged in {partition}, is not there", facts)

    yield from finding(UNSEEN, unseen, case)

    history = view.history
    stable = history.column("ends", "last_stable_offset")
    end = history.column("ends", "high_watermark")
    is_leader = history.column("ends", "replica") == NONE
    stuck = np.flatnonzero(is_leader & (stable >= 0) & (end >= 0) & (stable < end))

    def stuck_case(row: int) -> Case:
        facts = evidence.row("ends", row)
        place = facts.get("partition")
        return Case(f"{place}: stable up to {int(stable[row])} of {int(end[row])}", facts)

    yield from finding(LSO_STUCK, stuck, stuck_case)


def unseen_over_time(view: View) -> tuple[Array, Array, Array]:
    """(times in ns, partitions, how many values acknowledged and not yet read) as steps.

    For drawings: how far readers are behind. A send counts from its operation's end on, until a
    reader that succeeded returned it.
    """
    history = view.history
    sent_ns = np.append(
        history.column("sends", "acknowledged_ns"), np.full(len(view.strange_values), NONE)
    )
    in_transaction = view.transaction >= 0
    ended = view.transactions.ended_ns[view.transaction]
    sent_ns = np.where(in_transaction, ended, sent_ns)
    never = np.iinfo(np.int64).max
    seen_ns = np.full(len(view.partition), never)
    evidence = Evidence(view)
    for reads in view.committed:
        times = evidence.read_ns(reads)[reads.is_ok]
        np.minimum.at(seen_ns, reads.writer[reads.is_ok], times)
    sent = np.flatnonzero((view.outcome == Outcome.OK) & (sent_ns >= 0) & (seen_ns > sent_ns))
    seen = sent[seen_ns[sent] < never]
    times = np.concatenate([sent_ns[sent], seen_ns[seen]])
    partitions = view.partition[np.concatenate([sent, seen])]
    change = np.concatenate([np.ones(len(sent), np.int64), np.full(len(seen), -1)])
    order = np.lexsort((times, partitions))
    times, partitions, change = times[order], partitions[order], change[order]
    total = np.cumsum(change)
    first = np.searchsorted(partitions, partitions, "left")
    total -= np.where(first > 0, total[first - 1], 0)
    # of several changes at one moment the last tells
    is_last = np.ones(len(times), bool)
    is_last[:-1] = (times[1:] != times[:-1]) | (partitions[1:] != partitions[:-1])
    return times[is_last], partitions[is_last], total[is_last]
