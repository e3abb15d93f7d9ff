"""One partition of a live topic, judged by the protocol alone, without a history of clients.

The file does no I/O. The audit gets the partition twice. The first pass is that of a read_committed
consumer, with each batch, and whether the broker's list of aborted transactions hides the batch.
The second pass, up to an end that was taken later, is every batch in the log. A batch shown in the
first pass must by then belong to a transaction with a commit marker, and a hidden batch to an
aborted transaction. Transactions without a marker are listed, since on a topic in use they are not
a violation.
"""

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field

from ....wire.record_batch import BatchHeader, Buffer
from .. import log_anomalies as log
from ..analysis.findings import Anomaly, Finding, Findings
from ..checks.w1_raw_log import RAW_ANOMALIES
from ..history.schema import Marker
from .raw_log import LoggedBatch, Open, RawLog

ABORTED_VISIBLE = Anomaly.of_log(log.ABORTED_VISIBLE)
COMMITTED_HIDDEN = Anomaly.of_log(log.COMMITTED_HIDDEN)
OPEN_VISIBLE = Anomaly.of_log(log.OPEN_VISIBLE)
AUDIT_ANOMALIES = (*RAW_ANOMALIES.values(), ABORTED_VISIBLE, COMMITTED_HIDDEN, OPEN_VISIBLE)


@dataclass(slots=True)
class PartitionAudit:
    """The audit of a partition. Call `committed_batch` for the first pass, then `batch`."""

    name: str
    log_start_offset: int = 0
    is_compacted: bool = False
    batches: int = 0
    records: int = 0
    transactions: dict[str, int] = field(default_factory=lambda: {"committed": 0, "aborted": 0})
    _log: RawLog = field(init=False)
    _visible: "array[int]" = field(default_factory=lambda: array("q"))
    _hidden: "array[int]" = field(default_factory=lambda: array("q"))
    _findings: Findings = field(default_factory=Findings)
    _running: dict[int, list[LoggedBatch]] = field(default_factory=dict[int, list[LoggedBatch]])

    def __post_init__(self) -> None:
        self._log = RawLog(self.log_start_offset == 0, self.is_compacted)

    def committed_batch(self, header: BatchHeader, *, is_aborted: bool) -> None:
        """Add a batch of the first pass. `is_aborted` means that the consumer hides the batch."""
        if header.is_transactional and not header.is_control:
            (self._hidden if is_aborted else self._visible).append(header.base_offset)

    def batch(self, header: BatchHeader, data: Buffer) -> None:
        """Add a batch of the second pass, which reads the whole log."""
        batch = LoggedBatch.of(header, data)
        self.batches += 1
        self.records += 0 if header.is_control else header.record_count
        ended = len(self._log.ended)
        problems = list(self._log.feed(batch))
        for anomaly, _, sentence in problems:
            self._found(RAW_ANOMALIES[anomaly], batch, sentence)
        if any(problem.anomaly is log.ZOMBIE_APPEND for problem in problems):
            return  # it belongs to no transaction that a marker could end
        if batch.marker == Marker.NONE:
            if header.is_transactional:
                self._running.setdefault(batch.producer_id, []).append(batch)
            return
        if len(self._log.ended) > ended:
            self._transaction_ended(batch)
            self._log.ended.clear()  # a long log has many; their markers have been checked by now
        self._running.pop(batch.producer_id, None)

    def _transaction_ended(self, marker: LoggedBatch) -> None:
        is_commit = marker.marker == Marker.COMMIT
        self.transactions["committed" if is_commit else "aborted"] += 1
        wrong = self._hidden if is_commit else self._visible
        anomaly = COMMITTED_HIDDEN if is_commit else ABORTED_VISIBLE
        for batch in self._running.get(marker.producer_id, ()):
            if _holds(wrong, batch.base_offset):
                word = "committed" if is_commit else "aborted"
                self._found(anomaly, batch, f"{word} by the marker at {marker.base_offset}")

    def _found(self, anomaly: Anomaly, batch: LoggedBatch, sentence: str) -> None:
        where = f"{self.name}@{batch.base_offset}"
        facts = {"partition": self.name, **batch._asdict()}
        self._findings.add(anomaly, f"{where}: {sentence}", facts)

    def open_transactions(self) -> list[Open]:
        """Return the transactions without a marker in the batches so far."""
        return self._log.open_transactions()

    def findings(self) -> tuple[Finding, ...]:
        """Return all findings, after the last batch was added."""
        for batches in self._running.values():
            for batch in batches:
                if _holds(self._visible, batch.base_offset):
                    self._found(OPEN_VISIBLE, batch, "nothing has ended it")
        self._running.clear()
        return self._findings.of(AUDIT_ANOMALIES)


def _holds(offsets: "array[int]", offset: int) -> bool:
    at = bisect_left(offsets, offset)
    return at < len(offsets) and offsets[at] == offset
