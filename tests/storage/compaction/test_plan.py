"""Test the part of a log that may be cleaned, its dirty ratio, and the grouping of segments."""

import pytest

from oncelog.storage.compaction.plan import (
    CleaningPlan,
    SegmentSummary,
    group_segments,
    plan_cleaning,
)
from oncelog.storage.log_config import LogConfig

NOW = 1_000_000


def summary(base_offset, size_bytes=100, *, first=NOW - 5000, newest=NOW - 4000, index=8):
    return SegmentSummary(base_offset, size_bytes, index, index, first, newest)


SEGMENTS = [summary(0), summary(10), summary(20), summary(30), summary(40)]  # 40 is active


def plan(segments=SEGMENTS, *, config=None, **limits) -> CleaningPlan:
    given = {
        "cleaned_offset": None,
        "log_start_offset": 0,
        "log_end_offset": 50,
        "last_stable_offset": 50,
        "recovery_point": 50,
        "now_ms": NOW,
    }
    return plan_cleaning(segments, config or LogConfig(), **given | limits)


def test_cleaning_plan_covers_all_segments_below_the_active_segment():
    assert plan() == CleaningPlan(0, 40, 0, 400, False)


@pytest.mark.parametrize("limit", ["last_stable_offset", "recovery_point"])
@pytest.mark.parametrize(
    ("offset", "end"), [(50, 40), (40, 40), (39, 30), (30, 30), (25, 20), (5, 0), (0, 0)]
)
def test_cleaning_plan_ends_before_open_transactions_and_unsynced_records(limit, offset, end):
    assert plan(**{limit: offset}).end_offset == end


def test_cleaning_plan_includes_the_clean_part_in_the_dirty_ratio():
    found = plan(cleaned_offset=30)
    assert (found.first_dirty_offset, found.clean_bytes, found.dirty_bytes) == (30, 300, 100)
    assert found.dirty_ratio == 0.25
    assert not found.is_worth_it(LogConfig())
    assert found.is_worth_it(LogConfig(min_cleanable_dirty_ratio=0.2))
    assert plan(cleaned_offset=10).is_worth_it(LogConfig())


def test_cleaning_plan_without_dirty_records_is_never_run():
    assert not plan(cleaned_offset=40).is_worth_it(LogConfig(min_cleanable_dirty_ratio=0.0))
    assert not plan([summary(0)]).is_worth_it(LogConfig(min_cleanable_dirty_ratio=0.0))


@pytest.mark.parametrize(("checkpoint", "first_dirty"), [(5, 12), (12, 12), (35, 35), (51, 12)])
def test_cleaning_plan_with_a_checkpoint_outside_the_log_starts_at_the_log_start(
    checkpoint, first_dirty
):
    found = plan(cleaned_offset=checkpoint, log_start_offset=12)
    assert found.first_dirty_offset == first_dirty


def test_cleaning_plan_leaves_records_younger_than_min_compaction_lag():
    config = LogConfig(min_compaction_lag_ms=1000)
    segments = [summary(0), summary(10), summary(20, newest=NOW - 999), summary(30), summary(40)]
    assert plan(segments, config=config).end_offset == 20
    segments[2] = summary(20, newest=NOW - 1000)
    assert plan(segments, config=config).end_offset == 40
    segments[0] = summary(0, newest=NOW)  # clean already
    assert plan(segments, config=config, cleaned_offset=10).end_offset == 40


def test_cleaning_plan_after_a_clock_advance_uses_the_advanced_age_for_both_lags():
    def advanced_since_ms(moment_ms: int) -> int:
        return 2000 if moment_ms <= NOW - 4000 else 0

    both = [summary(0), summary(10, first=NOW - 3000, newest=NOW - 3000), summary(20)]
    config = LogConfig(min_compaction_lag_ms=5000, max_compaction_lag_ms=6500)
    assert plan(both, config=config).end_offset == 0
    found = plan(both, config=config, advanced_since_ms=advanced_since_ms)
    assert (found.end_offset, found.is_overdue) == (10, True)


def test_cleaning_plan_without_a_lag_includes_records_with_future_timestamps():
    assert plan([summary(0, newest=NOW + 9), summary(10)]).end_offset == 10


def test_cleaning_plan_beyond_max_compaction_lag_ignores_the_dirty_ratio():
    config = LogConfig(max_compaction_lag_ms=6000)
    segments = [summary(0, 9000), summary(10, first=NOW - 6001), summary(20)]
    found = plan(segments, config=config, cleaned_offset=10)
    assert found.is_overdue
    assert found.is_worth_it(config)
    assert not plan(segments, cleaned_offset=10).is_overdue
    segments[1] = summary(10, first=NOW - 6000)
    assert not plan(segments, config=config, cleaned_offset=10).is_overdue


def groups(segments, end_offset=1000, **config) -> list[list[int]]:
    found = group_segments(segments, end_offset, LogConfig(**config))
    return [[segments[at].base_offset for at in group] for group in found]


def test_cleaning_plan_groups_small_segments_into_one_segment():
    segments = [summary(n, 100) for n in (0, 10, 20, 30, 40)]
    assert groups(segments, segment_bytes=1000) == [[0, 10, 20, 30, 40]]
    assert groups(segments, segment_bytes=250) == [[0, 10], [20, 30], [40]]
    assert groups(segments, segment_bytes=100) == [[0], [10], [20], [30], [40]]
    assert groups(segments, segment_bytes=50) == [[0], [10], [20], [30], [40]]
    assert groups([]) == []


def test_cleaning_plan_groups_only_segments_with_indexes_that_fit_together():
    segments = [summary(n, index=400) for n in (0, 10, 20)]
    assert groups(segments, segment_index_bytes=800) == [[0, 10], [20]]


def test_cleaning_plan_groups_only_segments_within_31_bits_of_offsets():
    segments = [summary(0), summary(10), summary(2**31)]
    assert groups(segments, 2**31 + 5) == [[0, 10], [2**31]]
    assert groups(segments[:2], 2**31) == [[0, 10]]
    assert groups(segments[:2], 2**31 + 1) == [[0], [10]]
