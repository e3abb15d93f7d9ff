"""The part of a log that may be compacted, and the decision whether to compact it.

    log start .. clean .. first dirty offset .. dirty .. end offset .. uncleanable .. log end

The clean part was compacted before, so each record is the last of its key within the clean part. A
compaction reads the keys of the dirty part and rewrites both parts. Four limits apply, which are
the last stable offset (at most the high watermark), the active segment, the recovery point, and the
first dirty segment with a record younger than min.compaction.lag.ms. The end offset is the last
start of a segment that is not above the smallest limit. Therefore every record below the end is
committed and synced, and every transaction has ended. This file is pure.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ..log_config import LogConfig
from ..segments.advanced_clock import AdvancedSince, never_advanced
from ..topic_configs import INT_MAX


class SegmentSummary(NamedTuple):
    """The properties of a segment from which a compaction is planned.

    Timestamps are -1 if missing.
    """

    base_offset: int
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int
    first_timestamp: int
    max_timestamp: int


class CleaningPlan(NamedTuple):
    """The plan of one compaction.

    A record below `end_offset` is superseded by a later record of the same key in
    [first_dirty_offset, end_offset).
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool  # a dirty record is older than max.compaction.lag.ms

    @property
    def dirty_ratio(self) -> float:
        """The share of the cleanable bytes that is still dirty."""
        return self.dirty_bytes / max(self.clean_bytes + self.dirty_bytes, 1)

    def is_worth_it(self, config: LogConfig) -> bool:
        """Return whether to compact now, because the log is dirty enough, or dirty for too long."""
        if self.dirty_bytes == 0:
            return False
        return self.is_overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def plan_cleaning(
    segments: Sequence[SegmentSummary],
    config: LogConfig,
    *,
    cleaned_offset: int | None,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
    recovery_point: int,
    now_ms: int,
    advanced_since_ms: AdvancedSince = never_advanced,
) -> CleaningPlan:
    """Plan the compaction. `segments` come oldest first, with the active segment last.

    `cleaned_offset` is the end of the last compaction, or None. An offset outside the log is
    ignored. `now_ms` is wall-clock time.
    """
    first_dirty = log_start_offset
    if cleaned_offset is not None and log_start_offset <= cleaned_offset <= log_end_offset:
        first_dirty = cleaned_offset
    limit = min(last_stable_offset, recovery_point, segments[-1].base_offset)
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
    is_overdue = False
    lag_ms_min = config.min_compaction_lag_ms
    for segment, end in zip(segments, ends, strict=True):
        if end <= first_dirty or segment.base_offset >= limit:
            continue
        newest_ms, first_ms = segment.max_timestamp, segment.first_timestamp
        if lag_ms_min > 0 and newest_ms > now_ms + advanced_since_ms(newest_ms) - lag_ms_min:
            limit = min(limit, segment.base_offset)
        elif 0 < first_ms < now_ms + advanced_since_ms(first_ms) - config.max_compaction_lag_ms:
            is_overdue = True
    end_offset = max((s.base_offset for s in segments if s.base_offset <= limit), default=0)
    clean_bytes = dirty_bytes = 0
    for segment, end in zip(segments, ends, strict=True):
        if segment.base_offset >= end_offset:
            break
        if end <= first_dirty:
            clean_bytes += segment.size_bytes
        else:
            dirty_bytes += segment.size_bytes
    return CleaningPlan(first_dirty, end_offset, clean_bytes, dirty_bytes, is_overdue)


def group_segments(
    segments: Sequence[SegmentSummary], end_offset: int, config: LogConfig
) -> list[range]:
    """Group adjacent segments that become one, as ranges of positions in `segments`.

    A group is limited so that it fits into a segment, by its bytes, indexes, and relative
    offsets of 31 bits. `end_offset` is the end of the last segment.
    """
    groups: list[range] = []
    at = 0
    while at < len(segments):
        first, end = segments[at], at + 1
        size_bytes = first.size_bytes
        offset_index_bytes, time_index_bytes = first.offset_index_bytes, first.time_index_bytes
        while end < len(segments):
            segment = segments[end]
            next_base = segments[end + 1].base_offset if end + 1 < len(segments) else end_offset
            size_bytes += segment.size_bytes
            offset_index_bytes += segment.offset_index_bytes
            time_index_bytes += segment.time_index_bytes
            if (
                size_bytes > config.segment_bytes
                or max(offset_index_bytes, time_index_bytes) > config.segment_index_bytes
                or next_base - 1 - first.base_offset > INT_MAX
            ):
                break
            end += 1
        groups.append(range(at, end))
        at = end
    return groups
