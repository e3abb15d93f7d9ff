"""Test that an advance of the cluster's clock makes only earlier data older."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.metadata.clock_advances import STEPS_MAX, TOTAL_MS_MAX, ClockAdvances
from oncelog.coordinator.metadata.cluster_state import ClusterState
from oncelog.coordinator.metadata.commands import AdvanceClock, SetDefaults
from oncelog.wire.errors import ErrorCode

from .metadata_cluster import MetadataCluster

TWICE = ClockAdvances().advanced(1000, 50).advanced(2000, 7)


def controlled() -> MetadataCluster:
    cluster = MetadataCluster()
    cluster.do(SetDefaults({**cluster.state.defaults, "oncelog.clock": "controlled"}))
    return cluster


@pytest.mark.parametrize(
    ("moment_ms", "older_by_ms"),
    [(0, 57), (999, 57), (1000, 57), (1001, 7), (2000, 7), (2001, 0), (9999, 0)],
)
def test_clock_advance_raises_the_age_of_earlier_data(moment_ms: int, older_by_ms: int):
    assert TWICE.since_ms(moment_ms) == older_by_ms


@pytest.mark.parametrize("at_ms", [2000, 1500, 0])
def test_clock_advance_that_arrives_late_is_added_at_the_newest_time(at_ms: int):
    assert TWICE.advanced(at_ms, 100).steps == ((1000, 50), (2000, 157))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), max_size=12))
def test_clock_advances_in_any_order_never_make_data_younger(advances: list[tuple[int, int]]):
    clock = ClockAdvances()
    for at_ms, by_ms in advances:
        older = clock.advanced(at_ms, by_ms)
        for moment_ms in range(52):
            more_ms = older.since_ms(moment_ms) - clock.since_ms(moment_ms)
            assert more_ms in (0, by_ms)
            assert more_ms == by_ms or moment_ms > at_ms
        clock = older
    assert clock.total_ms == sum(by_ms for _, by_ms in advances) == clock.since_ms(0)


def test_clock_advance_of_a_cluster_with_the_system_clock_is_refused():
    cluster = MetadataCluster()
    before = cluster.state.snapshot()
    result = cluster.do(AdvanceClock(1000, 50))
    assert result.error == ErrorCode.POLICY_VIOLATION
    assert "oncelog up --clock controlled" in (result.message or "")
    assert cluster.state.snapshot() == before


@pytest.mark.parametrize(
    ("at_ms", "by_ms", "error"),
    [
        (1000, 0, ErrorCode.INVALID_REQUEST),
        (1000, -1, ErrorCode.INVALID_REQUEST),
        (-1, 5, ErrorCode.INVALID_REQUEST),
        (2**63, 5, ErrorCode.INVALID_REQUEST),
        (1000, TOTAL_MS_MAX + 1, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_clock_advance_backwards_or_beyond_the_limit_is_refused(
    at_ms: int, by_ms: int, error: ErrorCode
):
    cluster = controlled()
    assert cluster.do(AdvanceClock(at_ms, by_ms)).error == error
    assert cluster.state.clock_advances == ClockAdvances()


def test_clock_advance_with_a_repeated_operation_id_is_done_once():
    cluster = controlled()
    for _ in range(2):
        assert cluster.do(AdvanceClock(1000, 50), b"o" * 16).error == 0
    assert cluster.state.clock_advances.total_ms == 50


def test_metadata_snapshot_stores_clock_advances_and_has_the_older_format_if_there_are_none():
    cluster = controlled()
    assert cluster.state.snapshot()[:2] == b"\x9a\x01"  # ten parts of version 1, unchanged
    for number in range(3):
        cluster.do(AdvanceClock(1000 * number, 50))
    restored = ClusterState()
    restored.restore(cluster.state.snapshot())
    assert restored.clock_advances == cluster.state.clock_advances
    assert restored.snapshot() == cluster.state.snapshot()


def test_clock_advances_beyond_their_maximum_are_refused():
    cluster = controlled()
    steps = tuple((at, at + 1) for at in range(STEPS_MAX))
    cluster.state.put_clock_advances(ClockAdvances(steps))
    assert cluster.do(AdvanceClock(2 * STEPS_MAX, 1)).error == ErrorCode.POLICY_VIOLATION
