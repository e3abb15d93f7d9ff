"""The compaction of one log, in steps, with its files.

    cleaning = Cleaning(...)                       on the log's own thread
    for step in cleaning.steps():                  on any thread, a slice of work a step
        if isinstance(step, CleanedGroup):
            log.local.replace_segments(step.base_offset, step.replaced)    on the log's own thread

Steps read only inactive segments and write `.cleaned` files beside them. Only `replace_segments`
changes the log. A group of segments is rewritten into one, which replaces the group before the next
group is begun, from the oldest on. Each replacement leaves a log with the last record of each key,
so a compaction may stop or crash at any point. The `.cleaned` files of an unfinished group are
removed by `close`, or at the next start.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...runtime.fault_point import FaultPoint, no_fault_point
from ...wire.record_batch import BatchHeader, Buffer, decode_header
from ..checkpoint import sync_directory
from ..log_config import LogConfig
from ..segments.advanced_clock import AdvancedSince, never_advanced
from ..segments.log_file import scan_closed
from ..segments.segment import Segment
from ..segments.segment_swap import CLEANED_SUFFIX
from ..segments.transaction_index import AbortedTransaction
from .cleaner import KEYS_MAX, ActiveProducer, BatchCleaner, KeyMap
from .plan import CleaningPlan, SegmentSummary, group_segments
from .transactions import TransactionWalk

SLICE_BYTES = 128 << 10  # of small records take about 20 ms


class CleanedGroup(NamedTuple):
    """A segment, complete and synced in `.cleaned` files, and the segments that it replaces.

    The segment may end in a gap before `end_offset`, where the next segment begins. Therefore the
    recovery point on the disk must first be at or above `end_offset`. Otherwise the gap would count
    as damage after a power failure.
    """

    base_offset: int
    end_offset: int
    replaced: Sequence[Segment]


class Cleaning:
    """The compaction of a log by a plan.

    `segments` are all segments of the log, oldest first. `producers` are the currently active
    producers. At most `keys_max` keys are held in memory. If the dirty part has more keys, only its
    beginning is compacted, and `cleaned_offset` has its end after the steps. Raises OSError. Raises
    CorruptMessage or InvalidRecord for unreadable batches, which make the log uncleanable.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        summaries: Sequence[SegmentSummary],
        plan: CleaningPlan,
        config: LogConfig,
        producers: Mapping[int, ActiveProducer],
        *,
        now_ms: int,
        advanced_since_ms: AdvancedSince = never_advanced,
        keys_max: int = KEYS_MAX,
        fault_point: FaultPoint = no_fault_point,
    ) -> None:
        self.plan = plan
        self._config = config
        self._now_ms = now_ms
        self._fault_point = fault_point
        self._segments = segments
        self._ends = [segment.base_offset for segment in segments[1:]]
        self._summaries = summaries
        self._keys = KeyMap(plan.first_dirty_offset, keys_max)
        self._cleaner = BatchCleaner(
            keys=self._keys,
            producers=producers,
            end_offset=plan.end_offset,
            delete_retention_ms=config.delete_retention_ms,
            now_ms=now_ms,
            advanced_since_ms=advanced_since_ms,
        )
        self._output: Segment | None = None
        self._slice_bytes = 0

    @property
    def cleaned_offset(self) -> int:
        """Return the offset below which the log is clean after the last step."""
        return self._keys.end_offset

    def steps(self) -> Iterator[CleanedGroup | None]:
        """Compact in slices.

        Yield None after a slice, or a CleanedGroup that must replace segments.
        """
        yield from self._read_keys()
        count = sum(s.base_offset < self._keys.end_offset for s in self._segments[:-1])
        summaries, end_offset = self._summaries[:count], self._ends[count - 1] if count else 0
        for group in group_segments(summaries, end_offset, self._config):
            yield from self._clean_group(group)
        if summaries:  # sync the replaced files before the log counts as compacted
            sync_directory(self._segments[0].directory)

    def close(self) -> None:
        """Remove the files of an unfinished group."""
        if self._output is not None:
            self._output.delete()
            self._output = None

    def _read_keys(self) -> Iterator[None]:
        """Fill the key map from the dirty part, as far as memory allows."""
        keys, walk = self._keys, TransactionWalk()
        first_dirty, end_offset = self.plan.first_dirty_offset, self.plan.end_offset
        for at, segment in enumerate(self._segments[:-1]):
            if self._ends[at] <= first_dirty or segment.base_offset >= end_offset:
                continue
            start_offset = max(segment.base_offset, first_dirty)
            walk.announce(self._aborted(at, start_offset))
            found = segment.position_of(start_offset)
            start = segment.size_bytes if found is None else found[0]
            offsets = range(segment.base_offset, self._ends[at])
            for _, header, batch in scan_closed(segment.file, start, segment.size_bytes, offsets):
                if header.is_control:
                    if header.record_count:
                        walk.end(header, batch)
                elif not walk.is_aborted(header) and not keys.add_batch(header, batch):
                    return
                keys.skip_to(header.next_offset)
                if self._fills_slice(batch):
                    yield None
            keys.skip_to(self._ends[at])

    def _clean_group(self, numbers: range) -> Iterator[CleanedGroup | None]:
        group = [self._segments[at] for at in numbers]
        first = group[0]
        directory, base_offset = first.directory, first.base_offset
        Segment.remove_files(directory, base_offset, CLEANED_SUFFIX)  # of a failed compaction
        self._output = output = Segment(
            directory, base_offset, self._config, self._now_ms, suffix=CLEANED_SUFFIX
        )
        is_changed = len(group) > 1
        pending: list[tuple[BatchHeader, Buffer]] = []
        for at, segment in zip(numbers, group, strict=True):
            self._cleaner.walk.announce(self._aborted(at, segment.base_offset))
            offsets = range(segment.base_offset, self._ends[at])
            for _, header, batch in scan_closed(segment.file, 0, segment.size_bytes, offsets):
                cleaned = self._cleaner.clean(header, batch)
                is_changed = is_changed or cleaned is not batch
                if cleaned is not None:
                    pending.append((header, cleaned))
                if self._fills_slice(batch):
                    self._write(output, pending)
                    yield None
        self._write(output, pending)
        aborts = self._cleaner.kept_aborts
        for abort in aborts:
            output.transaction_index.append(abort)
        if not is_changed and aborts == first.transaction_index.all():
            aborts.clear()
            self.close()
            return
        aborts.clear()
        self._finish(output, group[-1])
        yield CleanedGroup(base_offset, self._ends[numbers[-1]], group)
        self._output = None  # already swapped in; otherwise `close` removes it

    def _fills_slice(self, batch: Buffer) -> bool:
        """Add a batch to the work of this step. Return whether the step has done enough."""
        self._slice_bytes += len(batch)
        if self._slice_bytes < SLICE_BYTES:
            return False
        self._slice_bytes = 0
        return True

    def _write(self, output: Segment, pending: list[tuple[BatchHeader, Buffer]]) -> None:
        if not pending:
            return
        self._fault_point("cleaner.before-write")
        output.write(b"".join(batch for _, batch in pending))
        for header, batch in pending:
            max_timestamp = decode_header(batch).max_timestamp
            output.add_batch(len(batch), header.last_offset, max_timestamp)
        pending.clear()

    def _finish(self, output: Segment, newest: Segment) -> None:
        """Sync the new segment.

        It gets the modification time of the newest segment that it replaces.
        """
        output.become_inactive()
        output.write_out()
        times = os.fstat(newest.file.fd)
        os.utime(output.file.fd, ns=(times.st_atime_ns, times.st_mtime_ns))
        self._fault_point("cleaner.before-fsync")
        output.flush()
        sync_directory(output.directory)
        self._fault_point("cleaner.after-fsync")

    def _aborted(self, at: int, start_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in segment `at`, from `start_offset` on."""
        found: list[AbortedTransaction] = []
        end_offset = self._ends[at]
        for segment in self._segments[at:]:
            transactions, is_complete = segment.transaction_index.collect(start_offset, end_offset)
            found += transactions
            if is_complete:
                break
        return found
