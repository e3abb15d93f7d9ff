"""Which log is compacted next, and how far each has been: `cleaner-offset-checkpoint`.

One cleaning at a time, of the dirtiest log. The shell that runs it decides where:

    cleaning = cleaner.begin(logs, now_ms)         log's thread; None: nothing to do
    for step in cleaning.steps():                  an executor, or a slice at a time
        if isinstance(step, CleanedGroup):
            have the recovery point of cleaner.partition on the disk: step.end_offset or above
            cleaner.swap(step)                     log's thread
    cleaner.finish()                               log's thread, the steps being done
    cleaner.save()                                 an executor: it syncs

If the steps raise, call `give_up(error)` instead of `finish`: what was swapped in stays, the rest
is left as it was.
"""

from collections.abc import Iterable
from pathlib import Path

from ...wire.errors import CorruptMessage, InvalidRecord
from ...wire.fault_point import FaultPoint, no_fault_point
from ...wire.identifiers import TopicPartition
from ...wire.steps import Steps, run_to_end
from ..checkpoint import CLEANED_OFFSETS, CorruptCheckpoint, OffsetCheckpoint
from ..corrupt_file import CorruptFile
from ..partition_log import PartitionLog
from ..topic_configs import LONG_MAX
from .cleaner import KEYS_MAX, ActiveProducer
from .cleaning import CleanedGroup, Cleaning
from .plan import CleaningPlan, SegmentSummary, plan_cleaning

_PRODUCERS_A_STEP = 256


class SegmentsChanged(Exception):
    """Retention or truncation took a segment that was being cleaned; begin anew later."""


class LogCleaner:
    """Chooses and keeps count for the logs of one data directory."""

    def __init__(
        self,
        data_directory: Path,
        *,
        keys_max: int = KEYS_MAX,
        fault_point: FaultPoint = no_fault_point,
    ) -> None:
        self._checkpoint = OffsetCheckpoint(data_directory / CLEANED_OFFSETS, fault_point)
        self._keys_max = keys_max
        self._fault_point = fault_point
        self._log: PartitionLog | None = None
        self._cleaning: Cleaning | None = None
        self._is_outdated = False  # what is being cleaned was cut, or deleted, since it began
        # Why a log is not cleaned any more, by (topic, partition): a batch cannot be read.
        self.uncleanable: dict[TopicPartition, str] = {}
        try:
            self._cleaned_offsets = self._checkpoint.read()
        except CorruptCheckpoint:
            self._cleaned_offsets = {}  # all logs count as dirty: more work, nothing wrong

    def begin(self, logs: Iterable[PartitionLog], now_ms: int) -> Cleaning | None:
        """`beginning`, at once."""
        return run_to_end(self.beginning(logs, now_ms))

    def beginning(self, logs: Iterable[PartitionLog], now_ms: int) -> Steps[Cleaning | None]:
        """Begin to clean the log that needs it most, if one does. `now_ms` is wall clock.

        What is appended meanwhile does no harm: that a producer has gone on by the time it is
        looked at only makes less of it worth keeping.
        """
        assert self._cleaning is None, "one cleaning at a time"
        best: tuple[float, PartitionLog] | None = None
        for log in logs:
            if not log.config.is_compacted or log.is_failed or _name(log) in self.uncleanable:
                continue
            plan = self.plan(log, now_ms)
            if plan.is_worth_it(log.config) and (best is None or plan.dirty_ratio > best[0]):
                best = (plan.dirty_ratio, log)
            yield
        if best is None:
            return None
        log = best[1]
        producers: dict[int, ActiveProducer] = {}
        for entry in list(log.producer_state):
            producers[entry.producer_id] = ActiveProducer(
                entry.epoch, entry.last_data_offset, entry.last_marker_offset
            )
            if len(producers) % _PRODUCERS_A_STEP == 0:
                yield
        if log.is_failed:
            return None  # it was deleted meanwhile
        self._log = log
        self._is_outdated = False
        self._cleaning = Cleaning(
            list(log.segments),
            _summaries(log),
            self.plan(log, now_ms),
            log.config,
            producers,
            now_ms=now_ms,
            advanced_since_ms=log.local.advanced_since_ms,
            keys_max=self._keys_max,
            fault_point=self._fault_point,
        )
        return self._cleaning

    def plan(self, log: PartitionLog, now_ms: int) -> CleaningPlan:
        """What could be cleaned of a log."""
        return plan_cleaning(
            _summaries(log),
            log.config,
            cleaned_offset=self._cleaned_offsets.get(_name(log)),
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
        """Put a cleaned segment into the log. SegmentsChanged, KafkaStorageError."""
        assert self._log is not None
        segments = self._log.segments
        if self._is_outdated or any(
            segments.floor(old.base_offset) is not old for old in group.replaced
        ):
            raise SegmentsChanged
        self._log.local.replace_segments(group.base_offset, group.replaced)

    def finish(self) -> None:
        """The steps are done: the log is clean up to where they got. SegmentsChanged."""
        assert self._log is not None and self._cleaning is not None
        if self._is_outdated:
            raise SegmentsChanged
        self._cleaned_offsets[_name(self._log)] = self._cleaning.cleaned_offset
        self._log = self._cleaning = None

    def give_up(self, error: BaseException) -> None:
        """The steps failed. A log with a file that cannot be read is not tried again."""
        assert self._log is not None and self._cleaning is not None
        self._cleaning.close()
        is_damaged = isinstance(error, CorruptMessage | InvalidRecord | CorruptFile)
        if is_damaged and not self._is_outdated:
            self.uncleanable[_name(self._log)] = str(error)
        self._log = self._cleaning = None

    def truncated(self, topic: str, partition: int, end_offset: int) -> None:
        """A log was cut to `end_offset`: what comes there now is dirty.

        The segment that was cut is the same object still, so a cleaning has to be told.
        """
        name = (topic, partition)
        if self._cleaning is not None and self._is_cleaning(name):
            self._is_outdated |= end_offset < self._cleaning.plan.end_offset
        if self._cleaned_offsets.get(name, end_offset) > end_offset:
            self._cleaned_offsets[name] = end_offset

    def remove_partition(self, topic: str, partition: int) -> None:
        self._is_outdated |= self._is_cleaning((topic, partition))
        self._cleaned_offsets.pop((topic, partition), None)
        self.uncleanable.pop((topic, partition), None)

    def _is_cleaning(self, name: TopicPartition) -> bool:
        return self._log is not None and _name(self._log) == name

    def save(self) -> None:
        """Write the checkpoint (blocks). Raises OSError."""
        self._checkpoint.write(dict(self._cleaned_offsets))


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
