"""What readers of committed data ask of a log: how far they may read, and what was aborted."""

from ..wire.errors import KafkaStorageError
from ..wire.steps import Steps, run_to_end
from .segments.index_mending import IndexMending, mending
from .segments.segment import Segment
from .segments.transaction_index import CorruptTransactionIndex
from .truncatable_log import TruncatableLog


class TransactionalLog(TruncatableLog):
    damaged: Segment | None = None  # its transaction index cannot be read
    _mending_since: object = None  # the cut before it was read once more

    @property
    def last_stable_offset(self) -> int:
        """What readers of committed data may read up to (exclusive)."""
        if self._rebuild is not None:
            run_to_end(self.rebuilding())
        stable = self.producer_state.last_stable_offset(self.high_watermark)
        return max(stable, self.log_start_offset)

    def aborted_transactions(self, from_offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """The aborted transactions that a reader of [from_offset, upper_offset) must leave out.

        As (producer id, first offset), in the order of their markers. KafkaStorageError where a
        transaction index cannot be read: see `mending_index`.
        """
        found: list[tuple[int, int]] = []
        with self._disk.retriable:
            for segment in self.segments.from_floor(from_offset):
                try:
                    aborted, is_complete = segment.transaction_index.collect(
                        from_offset, upper_offset
                    )
                except CorruptTransactionIndex as problem:
                    self.damaged = segment
                    raise KafkaStorageError(f"{self.directory.name}: {problem}") from problem
                found += [(each.producer_id, each.first_offset) for each in aborted]
                if is_complete:
                    break
        return found

    def mending_index(self) -> Steps[IndexMending | None]:
        """The index of the segment that is `damaged` anew, in steps; then `index_mended`."""
        segment, self.damaged = self.damaged, None
        if segment is None or self.segments.floor(segment.base_offset) is not segment:
            return None
        if segment is self.segments.active:
            run_to_end(self.rebuilding())
            with self._disk:
                self._roll(self.log_end_offset)
        newer = self.segments.after(segment)
        assert newer is not None
        since_cut = self._durability.since_cut
        steps = mending(self.segments, self._snapshots, segment, newer.base_offset, self._now_ms)
        while self._durability.since_cut is since_cut:
            with self._disk.retriable:
                try:
                    next(steps)
                except StopIteration as end:
                    self._mending_since = since_cut
                    return end.value
            yield
        return None

    def index_mended(self, mending: IndexMending) -> None:
        """Use an index that has been written."""
        with self._disk.retriable:
            if self._durability.since_cut is self._mending_since:
                mending.swap_in(self.segments)
            else:  # other batches may have come, as many bytes as there were
                mending.discard()
        self._durability.names_changed()
        self.damaged = None
