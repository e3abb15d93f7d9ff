"""The truncation of a log, to the offset where it diverges from its leader's, or to an empty log.

A truncation may remove thousands of segments, or a gigabyte of one segment. Therefore it is done in
steps from the end of the log downwards. After each step the log is consistent, only shorter. The
log may then be read, led, closed, deleted, or recovered after a crash. An append or a new leader
epoch between two steps rebuilds the producer state for the current end, and so ends the truncation
there.

A step that lacks file descriptors or disk space has changed nothing, and may be retried.
"""

from contextlib import suppress

from ..runtime.steps import Steps, run_to_end
from ..wire.errors import KafkaStorageError
from .corrupt_file import UNREADABLE
from .local_log import LocalLog
from .producers.state import ProducerStateTable
from .segments.damage import Damaged
from .segments.entry_checks import REBUILT
from .segments.index import CorruptIndex

CUT_BYTES_A_STEP = 2 << 20  # of one file; the kernel frees about 3 MB in a millisecond


class LogTruncation:
    """The methods of a log that truncate it."""

    __slots__ = ("_log",)

    def __init__(self, log: LocalLog) -> None:
        self._log = log

    def truncate_to(self, offset: int) -> None:
        """Truncate the log to `offset` in one step (see `truncating_to`)."""
        run_to_end(self.truncating_to(offset))

    def truncating_to(self, offset: int) -> Steps[None]:
        """Truncate the log to `offset` or, if a batch spans it, to the start of that batch.

        An offset below the first segment leaves an empty log that starts at `offset`.
        """
        log = self._log
        if offset >= log.log_end_offset:
            # An epoch that was assigned here without a batch may contradict the leader's.
            log.disk.check()
            if log.leader_epochs.truncate_from_end(log.log_end_offset):
                log.epochs_changed()
        elif (yield from self._cutting(offset)) and offset < log.log_end_offset:
            self._begin_at(offset)
        yield from log.rebuilding()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove everything in one step, so that the log starts at `offset` (see `starting_at`)."""
        run_to_end(self.starting_at(offset))

    def starting_at(self, offset: int) -> Steps[None]:
        """Remove everything, so that the log is empty and starts at `offset`."""
        if (yield from self._cutting(self._log.segments.first.base_offset)):
            self._begin_at(offset)
            self._log.high_watermark = offset

    def end_min(self, offset: int) -> int:
        """Return the lowest log end that `truncate_to(offset)` can result in.

        Below the high watermark compaction may have removed the batches before `offset`. Then only
        the base offset of the segment is certain.
        """
        segment = self._log.segments.floor(offset)
        if offset >= self._log.high_watermark or segment is None:
            return offset
        return segment.base_offset

    def _cutting(self, offset: int) -> Steps[bool]:
        """Truncate to `offset` or the log start.

        Returns False if an append or a new leader epoch ended the truncation between two steps.
        """
        log = self._log
        while log.log_end_offset > max(offset, log.segments.first.base_offset):
            self._cut_once(max(offset, log.segments.first.base_offset))
            rebuild = log.rebuild
            yield
            if log.rebuild is not rebuild:
                return False
        return True

    def _cut_once(self, offset: int) -> None:
        """Remove the newest segment if it begins above `offset`, else a part of its end."""
        log = self._log
        with log.disk:
            last, dropped = log.segments.active, None
            try:
                with log.disk.retriable:
                    before = log.segments.before(last)
                    if before is not None and last.base_offset > offset:
                        last, dropped = before, last
                        kept = last.kept_below(dropped.base_offset)
                        log.deleted.retire(dropped, log.now_ms)
                    else:
                        near_end = last.size_bytes - CUT_BYTES_A_STEP
                        near, _ = last.offset_index.lookup_position(near_end)
                        kept = last.kept_below(max(offset, near))
                        if kept.next_offset >= log.log_end_offset:
                            path = last.offset_index.path
                            raise CorruptIndex(path, f"it finds nothing above {offset}", REBUILT)
            except UNREADABLE as problem:
                raise Damaged(f"what is to be cut cannot be read: {problem}") from problem
            log.fault_point("log.truncate.before-cut")
            if dropped is not None:
                log.segments.remove(dropped)
            last.truncate(kept)
            log.fault_point("log.truncate.after-cut")
            log.segments.drop_cached_reads()
            self._ends_at(kept.next_offset)

    def _ends_at(self, end_offset: int) -> None:
        """Bring offsets, epochs and snapshots in line with the new log end."""
        log = self._log
        log.log_end_offset = end_offset
        log.high_watermark = min(log.high_watermark, end_offset)
        log.log_start_offset = min(log.log_start_offset, end_offset)
        log.cleaned_offset = min(log.cleaned_offset, end_offset)
        log.durability.cut(end_offset)
        if log.leader_epochs.truncate_from_end(end_offset):
            log.epochs_changed()
        log.snapshots.remove_above(end_offset)
        log.rebuild_soon()

    def _begin_at(self, offset: int) -> None:
        """Let an empty log start and end at `offset`."""
        log = self._log
        with log.disk:
            empty = log.segments.active
            log.snapshots.remove_above(-1)
            with log.disk.retriable:
                empty.move_to(offset, log.now_ms)
            log.segments.remove(empty)
            log.segments.add(empty)
            log.fault_point("log.truncate.after-move")
            log.log_start_offset = log.log_end_offset = offset
            log.high_watermark = min(log.high_watermark, offset)
            log.cleaned_offset = min(log.cleaned_offset, offset)
            log.durability.cut(0)
            log.producer_state, log.rebuild = ProducerStateTable(offset), None
            if log.leader_epochs.clear():
                log.epochs_changed()
            # Recovery would otherwise keep the latest epoch of the file.
            with suppress(KafkaStorageError):
                log.save_epochs()
