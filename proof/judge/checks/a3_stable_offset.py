"""Check A3: a read_committed reader never reads beyond an open transaction (KIP-98).

For each transaction a time is known before which it was certainly open. This is the commit call of
a committed transaction, otherwise the time of its last send that was acknowledged. A record must
not be read before the latest such time of the transactions with records at lower offsets of its
partition. Records that A2 reports are left out.
"""

from collections.abc import Iterable
from functools import partial

import numpy as np

from ..analysis.arrays import Array
from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Case, Finding, finding
from ..analysis.view import Reads, View
from ..history.schema import NONE
from .a2_dirty_read import is_dirty

READ_PAST_OPEN = Anomaly(
    "read-past-open", "A3", "a committed reader read beyond an open transaction"
)
ANOMALIES = (READ_PAST_OPEN,)


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find records that were read while an older transaction of their partition was open."""
    if not view.transactions.count or not view.committed:
        return
    open_until = _open_until(view)
    sent = np.flatnonzero((view.send_place >= 0) & (view.transaction >= 0))
    at_place = np.zeros(view.places.size, np.int64)
    np.maximum.at(at_place, view.send_place[sent], open_until[view.transaction[sent]])
    before = at_place.copy()
    for _, span in view.places.each_group():
        np.maximum.accumulate(before[span], out=before[span])

    def case(reads: Reads, row: int) -> Case:
        returned_ns = evidence.read_ns(reads)[row]
        place = int(reads.place[row])
        start = int(view.places.starts[int(reads.partition[row]) - view.places.group_low])
        older = start + int(np.argmax(at_place[start : place + 1] > returned_ns))
        send = int(sent[view.send_place[sent] == older][0])
        _, offset = evidence.place(older)
        partition = evidence.partition(int(reads.partition[row]))
        at = int(reads.offset[row])
        facts = {
            "value": view.value(int(reads.writer[row])),
            "partition": partition,
            "offset": at,
            "reader": evidence.read(reads, row),
            "undecided": evidence.row("transactions", int(view.transaction[send])),
            "undecided_since_offset": offset,
            **evidence.around(int(reads.partition[row]), offset),
        }
        return Case(f"{partition}@{at} was read while @{offset} was undecided", facts)

    for reads in view.committed:
        is_past_open = evidence.read_ns(reads) < before[reads.place]
        rows = np.flatnonzero(is_past_open & ~is_dirty(evidence, reads))
        yield from finding(READ_PAST_OPEN, rows, partial(case, reads))


def _open_until(view: View) -> Array:
    """Return, for each transaction, the last time at which it was certainly open, 0 if unknown."""
    transactions = view.transactions
    found = np.zeros(transactions.count + 1, np.int64)
    invoked = view.history.column("sends", "invoked_ns")
    acknowledged = view.history.column("sends", "acknowledged_ns") >= 0
    own = view.transaction[: view.sends]
    rows = np.flatnonzero(acknowledged & (own >= 0))
    np.maximum.at(found, own[rows], invoked[rows])
    is_committed = np.zeros(transactions.count + 1, bool)
    is_committed[own[view.is_proven[: view.sends] & (own >= 0)]] = True
    asked = transactions.commit_invoked_ns
    found = np.where(is_committed & (asked != NONE), np.maximum(found, asked), found)
    found[-1] = 0
    return found
