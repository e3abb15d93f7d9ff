"""Cutting a log: a follower's log ends where it parts from its leader's, or begins anew elsewhere.

A cut may take thousands of segments, or a gigabyte of one. So it is made in steps from the end of
the log downwards, and after each step the log is whole, only shorter: it may be read, led, closed,
deleted, or found like this after a crash. Who makes use of it between two steps (an append, a new
leader epoch) has the producers made again for the end that is there, and ends the cut by that.

A step that lacks descriptors or room has changed nothing, and may be tried again.
"""

from contextlib import suppress

from ..wire.errors import CorruptMessage, KafkaStorageError
from ..wire.steps import Steps, run_to_end
from .local_log import LocalLog
from .producers.state import ProducerStateTable
from .segments.index import CorruptIndex
from .segments.segment import REMEDY, Segment

CUT_BYTES_A_STEP = 2 << 20  # of one file; the kernel gives back some 3 MB in a millisecond


class TruncatableLog(LocalLog):
    """The base of PartitionLog, which sets the high watermark."""

    high_watermark: int

    def truncate_to(self, offset: int) -> None:
        """`truncating_to`, at once."""
        run_to_end(self.truncating_to(offset))

    def truncating_to(self, offset: int) -> Steps[None]:
        """Let the log end at `offset` or, where a batch spans it, before that batch."""
        if offset >= self.log_end_offset:
            # An epoch that was assigned here but never written in may contradict the leader's.
            self._disk.check()
            if self.leader_epochs.truncate_from_end(self.log_end_offset):
                self._epochs_changed()
        elif (yield from self._cutting(offset)) and offset < self.log_end_offset:
            self._begin_at(offset)
        yield from self.rebuilding()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """`starting_at`, at once."""
        run_to_end(self.starting_at(offset))

    def starting_at(self, offset: int) -> Steps[None]:
        """Drop everything: the log is empty, and starts and goes on at `offset`."""
        if (yield from self._cutting(self.segments.first.base_offset)):
            self._begin_at(offset)
            self.high_watermark = offset

    def truncation_end_min(self, offset: int) -> int:
        """How low the log end may come by `truncate_to(offset)`, as far as it was ever synced.

        The recovery point is the end of a batch. Below the high watermark compaction may have
        taken that batch since; then only the segment's begin is sure.
        """
        segment = self.segments.floor(offset)
        if offset >= self.high_watermark or segment is None:
            return offset
        return segment.base_offset

    def _cutting(self, offset: int) -> Steps[bool]:
        """Cut down to `offset` or the begin of the log; False if that was ended by another use."""
        while self.log_end_offset > max(offset, self.segments.first.base_offset):
            self._cut_once(max(offset, self.segments.first.base_offset))
            rebuild = self._rebuild
            yield
            if self._rebuild is not rebuild:
                return False
        return True

    def _cut_once(self, offset: int) -> None:
        """Take the newest segment away if it begins above `offset`, else cut some of it off."""
        with self._disk:
            last, dropped = self.segments.active, None
            try:
                with self._disk.retriable:
                    if last.base_offset > offset:
                        last, dropped = self._before(last), last
                        kept = last.kept_below(dropped.base_offset)
                        self._deleted.retire(dropped, self._now_ms)
                    else:
                        near = last.offset_before(last.size_bytes - CUT_BYTES_A_STEP)
                        kept = last.kept_below(max(offset, near))
                        if kept.next_offset >= self.log_end_offset:
                            path = last.offset_index.path
                            raise CorruptIndex(path, f"it finds nothing above {offset}", REMEDY)
            except (CorruptIndex, CorruptMessage) as problem:
                raise OSError(f"what is to be cut cannot be read: {problem}") from problem
            self._fault_point("log.truncate.before-cut")
            if dropped is not None:
                self.segments.remove(dropped)
            last.truncate(kept)
            self._fault_point("log.truncate.after-cut")
            self.segments.forget()
            self._ends_at(kept.next_offset)

    def _before(self, segment: Segment) -> Segment:
        before = self.segments.before(segment)
        assert before is not None
        return before

    def _ends_at(self, end_offset: int) -> None:
        """Take note of a cut."""
        self.log_end_offset = end_offset
        self.high_watermark = min(self.high_watermark, end_offset)
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self._durability.cut(end_offset)
        if self.leader_epochs.truncate_from_end(end_offset):
            self._epochs_changed()
        self._snapshots.remove_above(end_offset)
        self._rebuild_soon()

    def _begin_at(self, offset: int) -> None:
        """Let a log that is empty begin at `offset`."""
        with self._disk:
            empty = self.segments.active
            self._snapshots.remove_above(-1)
            with self._disk.retriable:
                empty.move_to(offset, self._now_ms)
            self.segments.remove(empty)
            self.segments.add(empty)
            self._fault_point("log.truncate.after-move")
            self.log_start_offset = self.log_end_offset = offset
            self.high_watermark = min(self.high_watermark, offset)
            self._durability.cut(0)
            self.producer_state, self._rebuild = ProducerStateTable(offset), None
            if self.leader_epochs.clear():
                self._epochs_changed()
            with suppress(KafkaStorageError):  # recovery would keep the latest one of the file
                self._save_epochs()
