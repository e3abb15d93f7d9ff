"""Check W1: the raw log of every partition follows Kafka's rules, and markers match decisions.

One replica of each partition is read, which is the leader's, or else the one with the most batches.
W2 compares the others with it. The markers of one transaction are of one kind in all partitions,
which is the kind that the coordinator's log has for that producer id and epoch. Transactions that
share an epoch (before KIP-890) are distinguished by what their clients recorded. A producer's
marker between two records of one transaction was meant for another transaction.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import numpy as np

from .. import log_anomalies as log
from ..analysis.arrays import begins, grouped
from ..analysis.evidence import Evidence, Facts
from ..analysis.findings import Anomaly, Case, Finding, finding
from ..analysis.view import View
from ..history.schema import Marker
from ..logs import raw_log
from ..logs.raw_log import Ended, LoggedBatch, Problem, RawLog

RAW_ANOMALIES = {
    each: Anomaly.of_log(each, "A4" if each is log.ZOMBIE_APPEND else "W1")
    for each in raw_log.ANOMALIES
}
OPEN_TRANSACTION = Anomaly.of_log(log.OPEN_TRANSACTION)
MIXED_MARKERS = Anomaly.of_log(log.MIXED_MARKERS)
AGAINST_DECISION = Anomaly(
    "marker-against-decision", "W1", "a marker contradicts the decision in the coordinator's log"
)
ENDED_EARLY = Anomaly("ended-early", "W1", "a marker is between the records of one transaction")
ANOMALIES = (
    *RAW_ANOMALIES.values(),
    OPEN_TRANSACTION,
    MIXED_MARKERS,
    AGAINST_DECISION,
    ENDED_EARLY,
)
_STATES = {
    "PrepareCommit": Marker.COMMIT,
    "CompleteCommit": Marker.COMMIT,
    "PrepareAbort": Marker.ABORT,
    "PrepareEpochFence": Marker.ABORT,
    "CompleteAbort": Marker.ABORT,
}


def check(view: View, evidence: Evidence) -> Iterable[Finding]:
    problems: dict[Anomaly, list[tuple[int, Problem]]] = {}
    opened: list[Facts] = []
    early: list[tuple[int, LoggedBatch, int]] = []
    within = _Spans(view)
    ended: list[tuple[int, Ended]] = []
    for partition, is_compacted, batches in dumped(view):
        first = next(iter(batches))
        replay = RawLog(is_whole=first.base_offset == 0, is_compacted=is_compacted)
        for batch in batches:
            for problem in replay.feed(batch):
                problems.setdefault(RAW_ANOMALIES[problem.anomaly], []).append((partition, problem))
        ended += [(partition, one) for one in replay.ended]
        early += [(partition, *one) for one in within.ended_early(partition, batches)]
        name = evidence.partition(partition)
        opened += [{"partition": name} | one._asdict() for one in replay.open_transactions()]

    def case(found: tuple[int, Problem]) -> Case:
        partition, problem = found
        facts = {"partition": evidence.partition(partition)} | problem.batch._asdict()
        around = evidence.around(partition, problem.batch.base_offset)
        where = f"{facts['partition']}@{problem.batch.base_offset}"
        return Case(f"{where}: {problem.sentence}", facts | around)

    for anomaly in RAW_ANOMALIES.values():
        yield from finding(anomaly, problems.get(anomaly, []), case)

    def open_case(facts: Facts) -> Case:
        what = log.OPEN_TRANSACTION.sentence % (facts["producer_id"], facts["producer_epoch"])
        return Case(f"{facts['partition']}@{facts['first_offset']}: {what}", facts)

    # at its end, a run has no faults and no load; a cluster in use may have open transactions
    is_at_rest = bool(view.history.settings.get("is_at_rest", True))
    yield from finding(OPEN_TRANSACTION, opened if is_at_rest else [], open_case)
    yield from _across(view, evidence, ended)

    def early_case(found: tuple[int, LoggedBatch, int]) -> Case:
        partition, marker, transaction = found
        where = f"{evidence.partition(partition)}@{marker.base_offset}"
        facts = {
            "transaction": evidence.row("transactions", transaction),
            "marker": marker._asdict(),
            **evidence.around(partition, marker.base_offset),
        }
        return Case(f"{where}: a marker in the middle of a transaction of its producer", facts)

    yield from finding(ENDED_EARLY, early, early_case)


class _Spans:
    """The first and last offset of each transaction in each partition, as its client knows them."""

    def __init__(self, view: View) -> None:
        offset = view.history.column("sends", "offset")
        transaction = view.transaction[: len(offset)]
        rows = np.flatnonzero((offset >= 0) & (transaction >= 0))
        rows = rows[transaction[rows] < view.transactions.count]
        partition = view.partition[rows]
        rows = rows[np.lexsort((offset[rows], transaction[rows], partition))]
        partition, transaction, offset = view.partition[rows], transaction[rows], offset[rows]
        starts = np.flatnonzero(begins(partition, transaction))
        ends = np.append(starts[1:], len(rows)) - 1 if len(starts) else starts
        wide = offset[starts] < offset[ends]
        self._partition, self._transaction = partition[starts[wide]], transaction[starts[wide]]
        self._first, self._last = offset[starts[wide]], offset[ends[wide]]

    def ended_early(
        self, partition: int, batches: list[LoggedBatch]
    ) -> Iterator[tuple[LoggedBatch, int]]:
        """Yield each marker between two records of one transaction, and the transaction's row."""
        left, right = np.searchsorted(self._partition, [partition, partition + 1])
        markers: dict[int, list[LoggedBatch]] = {}
        for batch in batches:
            if batch.marker != Marker.NONE:
                markers.setdefault(batch.producer_id, []).append(batch)
        bases = [batch.base_offset for batch in batches]
        for row in range(left, right) if markers else ():
            first, last = int(self._first[row]), int(self._last[row])
            at = bisect_right(bases, first) - 1
            known = markers.get(batches[at].producer_id, []) if at >= 0 else []
            after = bisect_right(known, first, key=lambda marker: marker.base_offset)
            if after < len(known) and known[after].base_offset < last:
                yield known[after], int(self._transaction[row])


def dumped(view: View) -> Iterator[tuple[int, bool, list[LoggedBatch]]]:
    """Yield (partition, whether compacted, batches in order) of one replica of each partition."""
    history = view.history
    partition = history.column("batches", "partition")
    replica = history.column("batches", "replica")
    ends = history.column("ends", "partition")
    compacted = set(ends[history.column("ends", "is_compacted") == 1].tolist())
    chosen: dict[int, tuple[tuple[bool, int], np.ndarray]] = {}
    for rows in grouped(np.arange(len(partition)), partition, replica):
        rank = (int(replica[rows[0]]) < 0, len(rows))
        at = int(partition[rows[0]])
        if at not in chosen or rank > chosen[at][0]:
            chosen[at] = (rank, rows)
    columns = [history.column("batches", name) for name in LoggedBatch._fields]
    for at, (_, rows) in sorted(chosen.items()):
        values = [column[rows].tolist() for column in columns]
        yield at, at in compacted, [LoggedBatch(*row) for row in zip(*values, strict=True)]


def _across(view: View, evidence: Evidence, ended: list[tuple[int, Ended]]) -> Iterable[Finding]:
    by_transaction: dict[tuple[int, int], list[tuple[int, Ended]]] = {}
    for partition, one in ended:
        if one.marker_epoch > one.data_epoch:
            key = (one.producer_id, one.marker_epoch)
            by_transaction.setdefault(key, []).append((partition, one))
    mixed = [parts for parts in by_transaction.values() if len({p.marker for _, p in parts}) > 1]

    def facts_of(parts: list[tuple[int, Ended]]) -> Facts:
        listed = [
            {"partition": evidence.partition(p)}
            | one._asdict()
            | {"marker": Marker(one.marker).name.lower()}
            for p, one in parts[:8]
        ]
        return {"ended": listed}

    def mixed_case(parts: list[tuple[int, Ended]]) -> Case:
        one = parts[0][1]
        who = f"producer {one.producer_id} epoch {one.marker_epoch}"
        return Case(f"{who} is committed here and aborted there", facts_of(parts))

    yield from finding(MIXED_MARKERS, mixed, mixed_case)
    history = view.history
    decided: dict[tuple[int, int], set[Marker]] = {}
    for number, producer_id, epoch in zip(
        *(history.column("decisions", c) for c in ("state", "producer_id", "producer_epoch")),
        strict=True,
    ):
        kind = _STATES.get(history.name(int(number)) or "")
        if kind is not None:
            decided.setdefault((int(producer_id), int(epoch)), set()).add(kind)
    against = [
        (partition, one)
        for partition, one in ended
        if (kinds := decided.get((one.producer_id, one.marker_epoch))) and one.marker not in kinds
    ]

    def against_case(found: tuple[int, Ended]) -> Case:
        partition, one = found
        kind = Marker(one.marker).name.lower()
        who = f"producer {one.producer_id} epoch {one.marker_epoch}"
        where = f"{evidence.partition(partition)}@{one.last_offset}"
        return Case(f"{where}: {kind} marker of {who}, decided otherwise", facts_of([found]))

    yield from finding(AGAINST_DECISION, against, against_case)
