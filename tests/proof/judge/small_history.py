"""Build a history of a few rows step by step."""

from oncelog.proof.judge.history.columns import History
from oncelog.proof.judge.history.recorder import Begun, Recorder
from oncelog.proof.judge.history.schema import NONE, Isolation, OpOutcome
from oncelog.proof.judge.verdict import judge

OK, FAIL, INFO = OpOutcome.OK, OpOutcome.FAIL, OpOutcome.INFO


class SmallHistory:
    """A history in which every step takes a microsecond."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.recorder = Recorder.in_memory(clock_ns=self._tick)

    def _tick(self) -> int:
        self.now_ns += 1_000
        return self.now_ns

    def sent(
        self,
        value: int,
        partition: str,
        offset: int = NONE,
        *,
        process: int = 1,
        within: Begun | None = None,
        outcome: OpOutcome = OK,
    ) -> None:
        handle = self.recorder.send_invoked(process, partition, value, within)
        self.recorder.send_ended(handle, outcome, offset=offset)

    def ended(self, transaction: Begun, outcome: OpOutcome = OK) -> None:
        if outcome is not FAIL:
            self.recorder.commit_invoked(transaction)
        self.recorder.transaction_ended(transaction, outcome)

    def polled(self, partition: str, *found: tuple[int, int], process: int = 2) -> None:
        """Add one poll of a plain consumer that returns these pairs of offset and value."""
        call, handle = self.recorder.poll_invoked(process)
        returned_ns = self.recorder.poll_returned(handle)
        for offset, value in found:
            self.recorder.polled(process, call, partition, offset, value, returned_ns=returned_ns)

    def scanned(
        self,
        partition: str,
        *found: tuple[int, int],
        isolation: Isolation = Isolation.READ_COMMITTED,
    ) -> None:
        """Add pairs of offset and value to the final reading of a partition."""
        for offset, value in found:
            self.recorder.add("scan", isolation, partition, offset, value, self._tick())

    def end(
        self,
        partition: str,
        end: int,
        *,
        replica: int = NONE,
        start: int = 0,
        high_watermark: int | None = None,
        in_sync: int = 1,
        is_compacted: bool = False,
    ) -> None:
        """Record the end offset of a partition at its leader, or in one replica's files."""
        high = end if high_watermark is None else high_watermark
        is_leader = replica == NONE
        stable, leader = (high, 1) if is_leader else (NONE, NONE)
        replicas, synced = (in_sync, in_sync) if is_leader else (0, 0)
        self.recorder.add("ends", replica, partition, start, stable, high, end, leader, 1,
                          replicas, synced, int(is_compacted), self._tick())  # fmt: skip

    def batch(
        self,
        partition: str,
        offset: int,
        *,
        replica: int = NONE,
        producer_id: int = NONE,
        epoch: int = NONE,
        sequence: int = NONE,
        is_transactional: bool = False,
        marker: int = NONE,
    ) -> None:
        """Add a batch of one record, or a marker, in the log's form."""
        attributes = (0x10 if is_transactional or marker != NONE else 0) | (
            0x20 if marker != NONE else 0
        )
        self.recorder.add("batches", replica, partition, offset, offset, 1, 7 * offset, 70,
                          attributes, producer_id, epoch, sequence, sequence, 1, 0, marker,
                          1 if marker != NONE else NONE)  # fmt: skip

    def history(self) -> History:
        return History.of(self.recorder)

    def names(self) -> set[str]:
        """Return the names of the violations that the judge finds."""
        return judge(self.history()).names()
