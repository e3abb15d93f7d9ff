"""The choice of the log to compact, and the course of its compaction.

One log is compacted at a time, and the dirtiest first. The caller decides about threads:

    cleaning = cleaner.begin(logs, now_ms)         the log's thread; None if nothing is to be done
    for step in cleaning.steps():                  an executor, or a slice at a time
        if isinstance(step, CleanedGroup):
            write a recovery point of cleaner.partition of at least step.end_offset to the disk
            cleaner.swap(step)                     the log's thread
    cleaner.finish()                               the log's thread, after the last step
    write the checkpoint of cleaned offsets

If the steps raise, call `give_up(error)` instead of `finish`. Replaced segments stay replaced, and
the others are unchanged.
"""

import logging
from collections.abc import Iterable

from ...runtime.fault_point import FaultPoint, no_fault_point
from ...runtime.steps import Steps, run_to_end
from ...wire.identifiers import TopicPartition
from ..corrupt_file import LOG_TROUBLE, UNREADABLE, CorruptFile
from ..disk_guard import OUT_OF_RESOURCES
from ..partition_log import PartitionLog
from ..segments.log_file import DamagedSegment
from ..segments.segment import Segment
from ..topic_configs import LONG_MAX
from .cleaner import KEYS_MAX, ActiveProducer
from .cleaning import CleanedGroup, Cleaning
from .plan import CleaningPlan, SegmentSummary, plan_cleaning

logger = logging.getLogger(__name__)
_PRODUCERS_A_STEP = 256
_SEGMENTS_A_STEP = 64  # the first header of each segment is read


class SegmentsChanged(Exception):
    """The error of a compaction in which retention or truncation has removed a segment."""


class LogCleaner:
    """The cleaner of a data directory, which compacts one log at a time."""

    def __init__(
        self, *, keys_max: int = KEYS_MAX, fault_point: FaultPoint = no_fault_point
    ) -> None:
        self._keys_max = keys_max
        self._fault_point = fault_point
        self._log: PartitionLog | None = None
        self._cleaning: Cleaning | None = None
        self._segments: list[Segment] = []  # segments that are read and not replaced yet
        self._end_offset = 0  # the end of the compacted part
        # The log was truncated or deleted after the compaction was planned.
        self._is_outdated = False

    def begin(self, logs: Iterable[PartitionLog], now_ms: int) -> Cleaning | None:
        """Begin to compact the dirtiest log in one step (see `beginning`)."""
        return run_to_end(self.beginning(logs, now_ms))

    def beginning(self, logs: Iterable[PartitionLog], now_ms: int) -> Steps[Cleaning | None]:
        """Begin to compact the dirtiest log. Return None if no log is dirty enough.

        A log that cannot be read is marked uncleanable, and the others are still compacted.
        """
        assert self._cleaning is None, "one cleaning at a time"
        best: tuple[float, PartitionLog] | None = None
        for log in logs:
            if not log.config.is_compacted or log.is_failed or log.uncleanable:
                continue
            plan = yield from self._planning(log, now_ms)
            if plan is None or not plan.is_worth_it(log.config):
                pass
            elif best is None or plan.dirty_ratio > best[0]:
                best = (plan.dirty_ratio, log)
            yield
        if best is None:
            return None
        self._log = best[1]
        try:
            self._cleaning = yield from self._beginning_with(best[1], now_ms)
        finally:
            if self._cleaning is None:
                self._log = None
        return self._cleaning

    def _beginning_with(self, log: PartitionLog, now_ms: int) -> Steps[Cleaning | None]:
        """Plan the compaction, then collect the producers. Return None if the log has changed.

        Batches may be appended while the producers are collected. Such a batch is above the end of
        the plan, and is not rewritten.
        """
        plan = yield from self._planning(log, now_ms)
        if plan is None or not plan.is_worth_it(log.config):
            return None
        segments, summaries, config = list(log.segments), _summaries(log), log.config
        self._segments = [each for each in segments if each.base_offset < plan.end_offset]
        self._end_offset, self._is_outdated = plan.end_offset, False
        producers: dict[int, ActiveProducer] = {}
        for entry in list(log.producer_state):
            producers[entry.producer_id] = ActiveProducer(
                entry.epoch,
                entry.last_data_offset_below(plan.end_offset),
                entry.last_marker_offset,
            )
            if len(producers) % _PRODUCERS_A_STEP == 0:
                yield
        if self._has_changed():
            return None
        return Cleaning(
            segments,
            summaries,
            plan,
            config,
            producers,
            now_ms=now_ms,
            advanced_since_ms=log.local.advanced_since_ms,
            keys_max=self._keys_max,
            fault_point=self._fault_point,
        )

    def _planning(self, log: PartitionLog, now_ms: int) -> Steps[CleaningPlan | None]:
        """Plan the compaction of a log, after the inputs of the plan were read.

        First timestamps of segments are read if they are needed, and the producer state is rebuilt
        after a truncation. Returns None after an error of the log (see `_set_aside`).
        """
        try:
            if log.config.max_compaction_lag_ms < LONG_MAX:
                for number, segment in enumerate(list(log.segments), 1):
                    segment.find_first_timestamp()  # the segment caches it
                    if number % _SEGMENTS_A_STEP == 0:
                        yield
            yield from log.local.rebuilding()
            return self.plan(log, now_ms)
        except LOG_TROUBLE as error:
            self._set_aside(log, error)
            return None

    def plan(self, log: PartitionLog, now_ms: int) -> CleaningPlan:
        """Plan the compaction of a log."""
        return plan_cleaning(
            _summaries(log),
            log.config,
            cleaned_offset=log.local.cleaned_offset,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            last_stable_offset=log.last_stable_offset,
            recovery_point=log.flushing.recovery_point,
            now_ms=now_ms,
            advanced_since_ms=log.local.advanced_since_ms,
        )

    @property
    def partition(self) -> TopicPartition:
        assert self._log is not None
        return _name(self._log)

    def swap(self, group: CleanedGroup) -> None:
        """Replace the segments of a group by its cleaned segment.

        Raises SegmentsChanged or KafkaStorageError.
        """
        assert self._log is not None
        segments = self._log.segments
        if self._is_outdated or any(
            segments.floor(old.base_offset) is not old for old in group.replaced
        ):
            raise SegmentsChanged
        self._log.local.replace_segments(group.base_offset, group.replaced)
        self._segments = [each for each in self._segments if each not in group.replaced]

    def finish(self) -> None:
        """Record the offset below which the log is clean now, or raise SegmentsChanged."""
        assert self._log is not None and self._cleaning is not None
        if self._is_outdated or self._log.is_failed:
            raise SegmentsChanged
        self._log.local.cleaned_offset = self._cleaning.cleaned_offset
        self._end()

    def give_up(self, error: BaseException) -> None:
        """End a compaction after an error. A log with an unreadable file is not tried again."""
        assert self._log is not None and self._cleaning is not None
        self._cleaning.close()
        if not self._has_changed():
            self._set_aside(self._log, error)
        self._end()

    def truncated(self, topic: str, partition: int, end_offset: int) -> None:
        """Record that a log is being truncated to `end_offset`.

        A truncated segment remains the same object, so the compaction cannot notice it by itself.
        """
        if self._log is not None and _name(self._log) == (topic, partition):
            self._is_outdated |= end_offset < self._end_offset

    def _has_changed(self) -> bool:
        """Return whether the log failed, was truncated, or lost a segment under compaction."""
        assert self._log is not None
        floor = self._log.segments.floor
        return (
            self._is_outdated
            or self._log.is_failed
            or any(floor(each.base_offset) is not each for each in self._segments)
        )

    def _set_aside(self, log: PartitionLog, error: BaseException) -> None:
        """Mark a log as uncleanable after an error that will not go away.

        A lack of resources may be temporary, so the log is tried again. A failed log is not marked,
        because it reports its failure itself.
        """
        if log.is_failed or not isinstance(error, LOG_TROUBLE):
            return
        is_lack = isinstance(error, OSError) and error.errno in OUT_OF_RESOURCES
        if isinstance(error, (*UNREADABLE, OSError)) and not is_lack:
            log.uncleanable = str(error) or repr(error)
            if isinstance(error, DamagedSegment | CorruptFile):
                log.damage.found(error)
            text = "%s is not compacted any more: %s"
            logger.error(text, log.directory.name, log.uncleanable)
        else:
            logger.warning("%s cannot be compacted now: %s", log.directory.name, error)

    def _end(self) -> None:
        self._log = self._cleaning = None
        self._segments = []


def _name(log: PartitionLog) -> TopicPartition:
    return log.topic, log.partition


def _summaries(log: PartitionLog) -> list[SegmentSummary]:
    wants_first = log.config.max_compaction_lag_ms < LONG_MAX
    return [
        SegmentSummary(
            segment.base_offset,
            segment.size_bytes,
            segment.offset_index.size_bytes,
            segment.time_index.size_bytes,
            segment.find_first_timestamp() if wants_first else -1,
            segment.max_timestamp,
        )
        for segment in log.segments
    ]
