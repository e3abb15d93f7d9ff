"""The aborted transactions of a log, which read_committed consumers must skip.

A transaction index that cannot be read is rebuilt while the log is in use (see IndexMending).
"""

from collections.abc import Callable

from ..runtime.steps import Steps, run_to_end
from ..wire.errors import KafkaStorageError
from .corrupt_file import INDEX_TROUBLE
from .local_log import LocalLog
from .segments.index_mending import IndexMending, mending
from .segments.segment import Segment
from .segments.segment_list import while_unchanged


class AbortedTransactions:
    """The transaction indexes of one log.

    on_damaged: called when an index cannot be read.
    """

    __slots__ = ("_log", "_mending_since", "damaged", "on_damaged")

    def __init__(self, log: LocalLog) -> None:
        self._log = log
        self.damaged: Segment | None = None  # a segment with an unreadable transaction index
        self.on_damaged: Callable[[], object] = lambda: None
        self._mending_since: object = None  # identifies the last truncation before the repair

    def between(self, from_offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """Return the aborted transactions in the offsets [from_offset, upper_offset).

        Each transaction is (producer id, first offset), in the order of the markers. Raises
        KafkaStorageError if a transaction index cannot be read (see `mending`).
        """
        log = self._log
        found: list[tuple[int, int]] = []
        with log.disk.retriable:
            for segment in log.segments.from_floor(from_offset):
                try:
                    aborted, is_complete = segment.transaction_index.collect(
                        from_offset, upper_offset
                    )
                except INDEX_TROUBLE as problem:
                    self.damaged = segment
                    self.on_damaged()
                    raise KafkaStorageError(f"{log.directory.name}: {problem}") from problem
                found += [(each.producer_id, each.first_offset) for each in aborted]
                if is_complete:
                    break
        return found

    def mending(self) -> Steps[IndexMending | None]:
        """Rebuild the index of the segment in `damaged`, in steps. Pass the result to `mended`."""
        log = self._log
        segment, self.damaged = self.damaged, None
        if segment is None or log.segments.floor(segment.base_offset) is not segment:
            return None
        if segment is log.segments.active:
            run_to_end(log.rebuilding())
            with log.disk:
                log.roll(log.log_end_offset)
        newer = log.segments.after(segment)
        assert newer is not None
        steps = self._reading(segment, newer.base_offset)
        while True:
            with log.disk.retriable:
                try:
                    next(steps)
                except StopIteration as end:
                    return end.value
            yield

    def _reading(self, segment: Segment, end_offset: int) -> Steps[IndexMending | None]:
        """Rebuild a segment's index. Start over if another segment is removed meanwhile.

        Returns None if this segment was removed, or if the log was truncated at any offset.
        """
        log, since_cut = self._log, self._log.durability.since_cut
        while (
            log.durability.since_cut is since_cut
            and log.segments.floor(segment.base_offset) is segment
        ):
            at = log.segments, log.snapshots, segment, end_offset, log.now_ms
            found = yield from while_unchanged(log.segments, mending(*at))
            if found is not None:
                self._mending_since = since_cut
                return found
        return None

    def mended(self, mending: IndexMending) -> None:
        """Replace the unreadable index by the new index, after it was written to the disk.

        If the log was truncated meanwhile, the new index is discarded.
        """
        log = self._log
        with log.disk.retriable:
            if log.durability.since_cut is self._mending_since:
                mending.swap_in(log.segments)
            else:  # the file may have other batches of the same size
                mending.discard()
        log.durability.names_changed()
        self.damaged = None
