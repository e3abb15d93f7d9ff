"""Check J9: transactions do not read each other's values in a cycle (G1c).

An edge leads from the writer of a value to a transaction that read the value. Each transaction has
a time, which is that of its commit call. A send without a transaction has the time of its call, and
a poll without one the time of its return. If every edge goes forward in time, there can be no
cycle, not even one that uses the order of real time. Therefore only the edges that do not go
forward, normally none, are searched. An edge u -> v is part of a cycle when u can be reached from
v. (Check A2 reports these edges as dirty reads.)

Cycles that need the order of writes are legal in Kafka (G0, and G1c with such edges). They are
searched for only between two transactions, and counted as information.
"""

from collections import deque
from collections.abc import Iterable

import numpy as np

from ..analysis.arrays import Array, begins
from ..analysis.evidence import Evidence, Facts, told
from ..analysis.findings import Anomaly, Finding, finding
from ..analysis.view import View

CYCLE = Anomaly("G1c", "J9", "transactions read values of one another in a cycle")
REALTIME_CYCLE = Anomaly(
    "G1c-realtime", "J9", "a transaction read a value of a transaction that began after its end"
)
WRITE_CYCLE = Anomaly(
    "G0",
    "J9",
    "each of two transactions has a value before a value of the other",
    is_legal=True,
)
MIXED_CYCLE = Anomaly(
    "G1c-ww",
    "J9",
    "a transaction was read by a transaction with an earlier value",
    is_legal=True,
)
ANOMALIES = (CYCLE, REALTIME_CYCLE, WRITE_CYCLE, MIXED_CYCLE)
SUSPECTS_MAX = 1_000


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    """Find transactions that have read each other's values, directly or through others."""
    writers, readers = _edges(view)
    potential = view.transactions.commit_invoked_ns
    suspect = np.flatnonzero(potential[writers] >= potential[readers])[:SUSPECTS_MAX]
    on_cycle = _on_cycle(writers, readers, suspect) if len(suspect) else []
    ended, begun = view.transactions.ended_ns, view.transactions.begun_ns
    backward = suspect[
        (ended[readers[suspect]] >= 0) & (ended[readers[suspect]] < begun[writers[suspect]])
    ]

    def pair(edge: int) -> Facts:
        return evidence.transactions(int(writers[edge]), int(readers[edge]))

    case = told("{later} read from {earlier}, and the other way round", pair)
    yield from finding(CYCLE, on_cycle, case)
    yield from finding(REALTIME_CYCLE, backward, case)
    yield from _write_cycles(view, evidence, writers, readers)


def _edges(view: View) -> tuple[Array, Array]:
    """Return the (writer, reader) transactions of each value that another transaction read."""
    writers, readers = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for reads in view.committed:
        writer = view.transaction[reads.writer]
        is_edge = (reads.transaction >= 0) & (writer >= 0) & (writer != reads.transaction)
        is_edge &= reads.is_ok & (writer < view.transactions.count)
        # readings of one transaction from one writer mostly follow one another
        rows = np.flatnonzero(is_edge)
        chosen = rows[begins(writer[rows], reads.transaction[rows])] if len(rows) else rows
        writers.append(writer[chosen])
        readers.append(reads.transaction[chosen])
    return np.concatenate(writers), np.concatenate(readers)


def _on_cycle(writers: Array, readers: Array, suspect: Array) -> list[int]:
    """Return the numbers of those suspect edges that are part of a cycle."""
    order = np.argsort(writers, kind="stable")
    keys, targets = writers[order], readers[order]

    def reaches(start: int, goal: int) -> bool:
        seen, waiting = {start}, deque([start])
        while waiting:
            node = waiting.popleft()
            if node == goal:
                return True
            low, high = np.searchsorted(keys, [node, node + 1])
            fresh = set(targets[low:high].tolist()) - seen
            seen |= fresh
            waiting.extend(fresh)
        return False

    return [int(e) for e in suspect if reaches(int(readers[e]), int(writers[e]))]


def _write_cycles(
    view: View, evidence: Evidence, writers: Array, readers: Array
) -> Iterable[Finding]:
    """Report pairs of transactions of which each precedes the other.

    A transaction precedes another if it wrote a value that the other read, or wrote the previous
    value of a partition. Pairs that precede each other only by reads are cycles for `check`.
    """
    held = np.flatnonzero(view.order.holder >= 0)
    owner = view.transaction[view.order.holder[held]]
    partition = view.places.group_of(held)
    is_pair = (owner[1:] != owner[:-1]) & (owner[1:] >= 0) & (owner[:-1] >= 0)
    is_pair &= partition[1:] == partition[:-1]
    is_pair &= (owner[1:] < view.transactions.count) & (owner[:-1] < view.transactions.count)
    width = view.transactions.count + 1
    earlier = owner[:-1][is_pair].astype(np.int64)
    later = owner[1:][is_pair].astype(np.int64)
    del held, owner, partition, is_pair
    keys = np.sort(earlier * width + later)
    mirrored = np.sort(later * width + earlier)
    both = np.unique(np.intersect1d(keys, mirrored))
    first, second = both // width, both % width
    once = first < second
    written = list(zip(first[once].tolist(), second[once].tolist(), strict=True))
    read_keys = np.unique(writers.astype(np.int64) * width + readers)
    mixed_keys = np.intersect1d(read_keys, mirrored)
    mixed = [(int(k) // width, int(k) % width) for k in mixed_keys]

    def pair(both: tuple[int, int]) -> Facts:
        return evidence.transactions(*both)

    case = told("{earlier} and {later} each precede the other", pair)
    yield from finding(WRITE_CYCLE, written, case)
    yield from finding(MIXED_CYCLE, mixed, case)
