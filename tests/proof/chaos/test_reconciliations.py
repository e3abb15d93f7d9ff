"""Test the count of faults that began during a reconciliation of a group member."""

import pytest

from oncelog.proof.chaos.reconciliations import faults_in_reconciliations
from oncelog.proof.judge.history.columns import History
from oncelog.proof.judge.history.recorder import Recorder


def counted(faults: list[int], spans: list[tuple[int, int]]) -> int:
    recorder = Recorder.in_memory()
    for begun_ns, until_ns in spans:
        recorder.add("reconciliations", 1, "g", begun_ns, until_ns)
    for started_ns in faults:
        recorder.add("faults", "kill", "node 1", started_ns, started_ns + 1_000, 7)
    return faults_in_reconciliations(History.of(recorder))


@pytest.mark.parametrize(("started_ns", "expected"), [(9, 0), (10, 1), (20, 1), (21, 0), (31, 0)])
def test_chaos_fault_that_began_in_a_reconciliation_is_counted(
    started_ns: int, expected: int
) -> None:
    assert counted([started_ns], [(10, 20), (32, 40)]) == expected


def test_chaos_fault_in_two_reconciliations_is_counted_once() -> None:
    assert counted([15, 36, 50], [(30, 31), (12, 40), (10, 20)]) == 2


def test_chaos_fault_in_a_long_reconciliation_after_a_short_reconciliation_is_counted() -> None:
    assert counted([25], [(10, 30), (12, 14)]) == 1


def test_chaos_run_without_reconciliations_or_faults_counts_no_fault() -> None:
    assert counted([1], []) == counted([], [(1, 2)]) == counted([], []) == 0
