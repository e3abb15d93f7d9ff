"""Check J6: a consumer reads a partition in order, without omissions or repetitions.

Two consecutive records that a process read within a session are compared by index. Between
operations (`poll-skip`, `nonmonotonic-poll`) the earlier record is the last one of the last
successful operation, since the polls of a failed transaction are repeated. If no operation has
succeeded yet, the session must begin at its assigned offset, unless that offset was deleted
meanwhile. In a compacted partition, readers may skip values. Within an operation (a transaction or
a poll call), the names of the anomalies begin with `int-`.
"""

from collections.abc import Iterable

import numpy as np

from ..analysis.arrays import Array, begins, stable_order
from ..analysis.evidence import Evidence
from ..analysis.findings import Anomaly, Case, Finding, finding
from ..analysis.view import Reads, View

POLL_SKIP = Anomaly("poll-skip", "J6", "between two operations a consumer skipped values")
NONMONOTONIC_POLL = Anomaly(
    "nonmonotonic-poll", "J6", "between two operations a consumer went back to earlier values"
)
INT_POLL_SKIP = Anomaly("int-poll-skip", "J6", "within one operation a consumer skipped values")
INT_NONMONOTONIC_POLL = Anomaly(
    "int-nonmonotonic-poll", "J6", "within one operation a consumer went back to earlier values"
)
ANOMALIES = (POLL_SKIP, NONMONOTONIC_POLL, INT_POLL_SKIP, INT_NONMONOTONIC_POLL)


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find omissions and repetitions in the polls of read_committed consumers.

    The last reading of the topics counts as one more consumer.
    """
    for reads in view.committed:
        yield from _check(view, evidence, reads)


def _check(view: View, evidence: Evidence, reads: Reads) -> Iterable[Finding]:
    total = len(reads.rows)
    if reads.table == "scan":
        process = session = call = np.zeros(total, np.int32)
    else:
        process, session, call = (
            view.history.column("polls", name)[reads.rows]
            for name in ("process", "session", "call")
        )
    order = stable_order(process, reads.partition, session)
    is_first = begins(process[order], reads.partition[order], session[order])
    transaction, call = reads.transaction[order], call[order]
    # a transaction is one operation, however often it polled
    same_call = (transaction[1:] < 0) & (transaction[:-1] < 0) & (call[1:] == call[:-1])
    is_new_operation = np.ones(total, bool)
    is_new_operation[1:] = ~(
        ((transaction[1:] >= 0) & (transaction[1:] == transaction[:-1])) | same_call
    )
    is_new_operation |= is_first
    del transaction, call, process, session
    index = view.order.index[reads.place[order]]
    number = np.arange(total, dtype=np.int32)
    group_start = np.maximum.accumulate(np.where(is_first, number, 0))
    # the reading before: for an operation's first one, the last that succeeded
    ok_before = np.full(total, -1, np.int32)
    ok_before[1:] = np.maximum.accumulate(np.where(reads.is_ok[order], number, -1))[:-1]
    before = np.where(is_new_operation, ok_before, number - 1)
    has_before = (before >= group_start) & ~is_first
    delta = np.where(has_before, index - index[before], 1)
    first = np.flatnonzero(is_new_operation & ~has_before)
    expected, starts = _assigned(view, reads, order[first])
    delta[first] = np.where(starts < 0, 1, index[first] - expected + 1)
    start = dict(zip(first[starts >= 0].tolist(), starts[starts >= 0].tolist(), strict=True))
    delta[(delta > 1) & view.is_compacted[reads.partition[order]]] = 1
    for anomaly, chosen in (
        (POLL_SKIP, is_new_operation & (delta > 1)),
        (NONMONOTONIC_POLL, is_new_operation & (delta < 1)),
        (INT_POLL_SKIP, ~is_new_operation & (delta > 1)),
        (INT_NONMONOTONIC_POLL, ~is_new_operation & (delta < 1)),
    ):

        def case(row: int) -> Case:
            if row in start:
                facts = evidence.reading(reads, int(order[row])) | {"assigned_at": start[row]}
                where = f"{facts['partition']}: {facts['offset']} is the first"
                return Case(f"{where} that was read from {start[row]} on", facts)
            one, other = int(order[before[row]]), int(order[row])
            sends = int(reads.writer[one]), int(reads.writer[other])
            places = int(reads.place[one]), int(reads.place[other])
            facts = evidence.step(sends, places, int(delta[row]))
            facts |= {"earlier": evidence.read(reads, one), "later": evidence.read(reads, other)}
            what = f"leaving out {facts['skipped']}" if delta[row] > 1 else "which is not onward"
            offsets = facts["offsets"]
            return Case(f"{facts['partition']}: {offsets[1]} after {offsets[0]}, {what}", facts)

        yield from finding(anomaly, np.flatnonzero(chosen), case)


def _assigned(view: View, reads: Reads, rows: Array) -> tuple[Array, Array]:
    """Return the (index, offset) at which the session of each of these reads was assigned to begin.

    Both are -1 if no assignment is known, or if the offset was deleted. An index is an offset
    without gaps.
    """
    index, starts = np.full(len(rows), -1, np.int64), np.full(len(rows), -1, np.int64)
    if reads.table == "scan":
        return index, starts
    table = (
        view.history.column("assignments", name).tolist()
        for name in ("process", "session", "partition", "start_offset")
    )
    known = {(p, s, at): offset for p, s, at, offset in zip(*table, strict=True)}
    process, session = (
        view.history.column("polls", c)[reads.rows[rows]] for c in ("process", "session")
    )
    partition = reads.partition[rows]
    keys = zip(process.tolist(), session.tolist(), partition.tolist(), strict=True)
    starts[:] = [known.get(key, -1) for key in keys]
    starts[starts < view.log_start[partition]] = -1
    for at, span in view.places.each_group():
        asked = np.flatnonzero((partition == at) & (starts >= 0))
        if len(asked):
            held = np.flatnonzero(view.order.holder[span] >= 0) + span.start
            index[asked] = np.searchsorted(view.places.number_of(held), starts[asked])
    return index, starts
