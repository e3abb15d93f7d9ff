"""One partition of a live topic, judged from the protocol alone: no history, no client.

Pure. It is shown the partition twice. First as a reader under read_committed gets it: each batch,
and whether the broker's list of aborted transactions hides it. Then, up to an end that was taken
later, every batch as it stands in the log. Whatever the first reader was shown must by then belong
to a transaction that a commit marker has ended, and whatever was hidden to one that was aborted.
Transactions that nothing has ended are listed: on a topic in use that is no violation.
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from ....wire.control_record import decode_marker
from ....wire.record_batch import BatchHeader, Buffer
from ..analysis.findings import CASES_MAX, Anomaly, Case, Finding
from ..checks.w1_raw_log import RAW_ANOMALIES
from ..history.schema import NONE, Marker
from .raw_log import Batch, Open, Problem, RawLog

ABORTED_VISIBLE = Anomaly(
    "aborted-visible", "W1", "a reader under read_committed was shown an aborted transaction"
)
COMMITTED_HIDDEN = Anomaly(
    "committed-hidden", "W1", "a committed transaction was hidden from a reader"
)
OPEN_VISIBLE = Anomaly("open-visible", "W1", "a reader was shown a transaction that nothing ended")
AUDIT_ANOMALIES = (*RAW_ANOMALIES, ABORTED_VISIBLE, COMMITTED_HIDDEN, OPEN_VISIBLE)


@dataclass(slots=True)
class PartitionAudit:
    """See the top of the file. `committed_batch` for the first reading, then `batch`."""

    name: str
    log_start_offset: int = 0
    is_compacted: bool = False
    batches: int = 0
    records: int = 0
    transactions: dict[str, int] = field(default_factory=lambda: {"committed": 0, "aborted": 0})
    _log: RawLog = field(init=False)
    _visible: "array[int]" = field(default_factory=lambda: array("q"))
    _hidden: "array[int]" = field(default_factory=lambda: array("q"))
    _counts: dict[str, int] = field(default_factory=dict[str, int])
    _cases: dict[str, list[Case]] = field(default_factory=dict[str, list[Case]])
    _running: dict[int, list[Batch]] = field(default_factory=dict[int, list[Batch]])

    def __post_init__(self) -> None:
        self._log = RawLog(self.log_start_offset == 0, self.is_compacted)

    def committed_batch(self, header: BatchHeader, *, is_aborted: bool) -> None:
        """A batch of the first reading."""
        if header.is_transactional and not header.is_control:
            (self._hidden if is_aborted else self._visible).append(header.base_offset)

    def batch(self, header: BatchHeader, data: Buffer) -> None:
        """A batch of the second reading."""
        batch = batch_of(header, data)
        self.batches += 1
        self.records += 0 if header.is_control else header.record_count
        ended = len(self._log.ended)
        problems = list(self._log.feed(batch))
        for problem in problems:
            self._found(problem)
        if any(problem.anomaly == "zombie-append" for problem in problems):
            return  # it belongs to no transaction that a marker could end
        if batch.marker == Marker.NONE:
            if header.is_transactional:
                self._running.setdefault(batch.producer_id, []).append(batch)
            return
        if len(self._log.ended) > ended:
            self._transaction_ended(batch)
            self._log.ended.clear()  # a long log has many; their markers were looked at
        self._running.pop(batch.producer_id, None)

    def _transaction_ended(self, marker: Batch) -> None:
        is_commit = marker.marker == Marker.COMMIT
        self.transactions["committed" if is_commit else "aborted"] += 1
        wrong = self._hidden if is_commit else self._visible
        anomaly = COMMITTED_HIDDEN if is_commit else ABORTED_VISIBLE
        for batch in self._running.get(marker.producer_id, ()):
            if _holds(wrong, batch.base_offset):
                word = "committed" if is_commit else "aborted"
                text = f"{word} by the marker at {marker.base_offset}"
                self._found(Problem(anomaly.name, batch, text))

    def _found(self, problem: Problem) -> None:
        self._counts[problem.anomaly] = self._counts.get(problem.anomaly, 0) + 1
        cases = self._cases.setdefault(problem.anomaly, [])
        if len(cases) < CASES_MAX:
            facts = {"partition": self.name, **problem.batch._asdict()}
            where = f"{self.name}@{problem.batch.base_offset}"
            cases.append(Case(f"{where}: {problem.sentence}", facts))

    def open_transactions(self) -> list[Open]:
        """What no marker has ended so far."""
        return self._log.open_transactions()

    def findings(self) -> Iterator[Finding]:
        """Everything that was found, at the end."""
        for batches in self._running.values():
            for batch in batches:
                if _holds(self._visible, batch.base_offset):
                    self._found(Problem(OPEN_VISIBLE.name, batch, "nothing has ended it"))
        self._running.clear()
        for anomaly in AUDIT_ANOMALIES:
            if anomaly.name in self._counts:
                cases = tuple(self._cases[anomaly.name])
                yield Finding(anomaly, self._counts[anomaly.name], cases)


def batch_of(header: BatchHeader, data: Buffer) -> Batch:
    """A batch as the checks know it."""
    marker, coordinator_epoch = Marker.NONE, NONE
    if header.is_control:
        kind, coordinator_epoch = decode_marker(data)
        marker = Marker(kind)
    return Batch(
        header.base_offset,
        header.last_offset,
        header.partition_leader_epoch,
        header.attributes,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.last_sequence,
        header.max_timestamp,
        marker,
        coordinator_epoch,
    )


def _holds(offsets: "array[int]", offset: int) -> bool:
    """Whether offsets, which ascend, hold one."""
    at = bisect_left(offsets, offset)
    return at < len(offsets) and offsets[at] == offset
