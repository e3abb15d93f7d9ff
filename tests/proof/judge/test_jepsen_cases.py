"""Test the cases of Jepsen's own tests of its Kafka checker, with the same findings.

Jepsen has 24 cases. One case measures speed and is switched off, and test_speed.py replaces this
case. Another case (16) is about the lag of readers, which is no promise. An operation of Jepsen
corresponds to a transaction here. Only facts that both have are compared.
"""

import random

import numpy as np
import pytest

from oncelog.proof.judge.analysis.view import View
from oncelog.proof.judge.history.columns import History
from oncelog.proof.judge.history.progress import UnreadPartitions, highest_offsets
from oncelog.proof.judge.history.recorder import Recorder
from oncelog.proof.judge.verdict import judge

from .jepsen_ops import Ops, Send, poll

PLACE_AND_VALUES = ("partition", "index", "offset", "values")
LOST = ("partition", "value", "index", "max_read_index")


def seen_log(*places: set[str]) -> tuple[Ops, View]:
    """Return a history of a partition, and the judge's view of it.

    `places` has the values that readers saw at each offset. An empty set is an offset without a
    value.
    """
    ops = Ops()
    for value in sorted({v for values in places for v in values}):
        ops.op(0, "info", Send("x", value))
    for offset, values in enumerate(places):
        for value in sorted(values):
            ops.op(1, "ok", poll("x", (offset, value)))
    return ops, ops.view()


def by_value(ops: Ops, view: View, places: np.ndarray) -> dict[str, int]:
    index = view.order.index
    return {
        str(value): int(index[places[number]]) for (_, value), number in sorted(
            ops.values.items(), key=str) if places[number] >= 0
    }  # fmt: skip


def test_01_highest_offset_of_an_operation_is_found_for_each_partition() -> None:
    assert highest_offsets([("x", 2), ("x", 5), ("x", 4), ("y", 2), ("y", 3)]) == {"x": 5, "y": 3}


def test_02_highest_log_index_at_which_each_value_was_read_is_found() -> None:
    assert View(History.of(Recorder.in_memory())).order.last_place.tolist() == []
    ops, view = seen_log(set(), {"a"}, {"a", "b", "c"}, set(), {"c"}, {"c", "d"}, {"d"})
    assert by_value(ops, view, view.order.last_place) == {"a": 1, "b": 1, "c": 3, "d": 4}


def test_03_lowest_log_index_at_which_each_value_was_read_is_found() -> None:
    ops, view = seen_log(set(), {"a"}, {"a", "b", "c"}, set(), {"c"}, {"c", "d"}, {"d"})
    assert by_value(ops, view, view.order.first_place) == {"a": 0, "b": 1, "c": 1, "d": 3}


@pytest.fixture
def ops() -> Ops:
    return Ops()


def test_04_log_order_with_contradictions_is_reported(ops: Ops) -> None:
    ops.op(0, "ok", poll("x", (0, "a"), (1, "b")))
    ops.op(1, "info", Send("x", "c", 1), Send("x", "b", 3), Send("x", "d", 4))
    ops.op(2, "info", Send("x", "a"))
    view = ops.view()
    stands = [{ops.plain(view.value(s)) for s in view.order.sends_at(p)}
              for p in range(view.places.size)]  # fmt: skip
    assert stands == [{"a"}, {"b", "c"}, set(), {"b"}, {"d"}]
    assert ops.facts("inconsistent-offsets", "partition", "index", "offset") == [("x", 1, 1)]

    real = Ops()
    real.op(379, "ok", Send("11", 641, 537))
    real.op(363, "ok", Send("11", 645, 537))
    ((partition, index, offset, values),) = real.facts("inconsistent-offsets", *PLACE_AND_VALUES)
    assert (partition, index, offset, set(values)) == ("11", 0, 537, {641, 645})


def test_05_unknown_outcome_contradicts_no_log_until_proven(ops: Ops) -> None:
    ops.op(0, "info", Send("x", 1, 0), Send("y", 1))
    ops.op(1, "ok", Send("x", 2, 0))
    assert ops.cases("inconsistent-offsets") == []
    ops.op(2, "ok", poll("y", (5, 1)))
    assert ops.facts("inconsistent-offsets", *PLACE_AND_VALUES) == [("x", 0, 0, [1, 2])]


def test_06_aborted_read_is_reported(ops: Ops) -> None:
    ops.op(0, "fail", Send("x", 2), Send("y", 3))
    ops.op(1, "ok", poll("x", (0, 2)))
    ((value, writer),) = ops.facts("G1a", "value", "writer")
    assert (value, writer["transaction"]["outcome"]) == (2, "fail")


def test_07_lost_write_is_reported(ops: Ops) -> None:
    ops.op(0, "ok", Send("x", "a", 0))
    ops.op(0, "ok", Send("x", "b", 1), Send("x", "d", 3))
    ops.op(1, "info", Send("x", "c"))
    ops.op(0, "ok", poll("x", (2, "c")))
    assert ops.facts("lost-write", *LOST) == [("x", "a", 0, 2), ("x", "b", 1, 2)]
    assert [case["read_beyond"]["offset"] for case in ops.cases("lost-write")] == [2, 2]


def test_07_lost_write_with_its_offset_reused_is_reported(ops: Ops) -> None:
    ops.op(0, "ok", Send("x", "a", 0))
    ops.op(0, "ok", Send("x", "b", 0), Send("x", "c", 2))
    ops.op(0, "ok", poll("x", (0, "b"), (2, "c")))
    assert ops.facts("lost-write", *LOST) == [("x", "a", 0, 1)]


def test_07_lost_write_proven_by_another_value_of_its_transaction_is_reported(
    ops: Ops,
) -> None:
    ops.op(0, "info", Send("x", "a"), Send("y", "b", 0))
    ops.op(1, "info", Send("y", "c"))
    ops.op(3, "ok", poll("y", (1, "c")))
    assert ops.cases("lost-write") == []
    ops.op(2, "ok", poll("x", (0, "a")))
    assert ops.facts("lost-write", *LOST) == [("y", "b", 0, 1)]


def skipping(*between: tuple[int, tuple[str, ...]]) -> Ops:
    """Return a history in which process 0 reads offsets 1, 2, 4 and 7, while 3 and 6 exist.

    `between` has new assignments of the process after a read.
    """
    later = dict(between)
    ops = Ops()
    ops.op(0, "ok", poll("x", (1, "a"), (2, "b")))
    ops.op(1, "ok", poll("x", (3, "c")))
    if 1 in later:
        ops.assign(0, *later[1])
    ops.op(0, "ok", poll("x", (4, "d")))
    if 2 in later:
        ops.assign(0, *later[2])
    ops.op(2, "ok", Send("x", "f", 6))
    ops.op(0, "ok", poll("x", (7, "g")))
    ops.op(3, "info", *[Send("x", value) for value in "abcdg"])
    return ops


@pytest.mark.parametrize("between", [(), ((1, ("x", "y")), (2, ("x", "y")))])
def test_08_poll_that_skips_a_record_is_reported(
    between: tuple[tuple[int, tuple[str, ...]], ...],
) -> None:
    ops = skipping(*between)
    assert ops.facts("poll-skip", "delta", "skipped") == [(2, ["c"]), (2, ["f"])]


def test_08_poll_that_skips_after_a_new_assignment_is_legal() -> None:
    assert skipping((1, ("y",)), (2, ("y",))).cases("poll-skip") == []


def rewinding(last: int) -> Ops:
    ops = Ops()
    ops.op(0, "ok", *[Send("x", number, number) for number in range(last + 1)])
    ops.op(1, "ok", poll("x", (0, 0)))
    ops.op(1, "fail", poll("x", (1, 1), (2, 2)))
    return ops


def test_08_poll_repeated_after_a_failed_transaction_is_legal() -> None:
    ops = rewinding(2)
    ops.op(1, "info", poll("x", (1, 1), (2, 2)))
    ops.op(1, "ok", poll("x", (1, 1), (2, 2)))
    assert ops.verdict().is_clean


def test_08_poll_not_repeated_after_a_failed_transaction_is_reported() -> None:
    ops = rewinding(5)
    ops.op(1, "fail", poll("x", (3, 3), (4, 4)))
    ops.op(1, "ok", poll("x", (5, 5)))
    assert ops.facts("poll-skip", "delta", "skipped") == [(3, [1, 2]), (5, [1, 2, 3, 4])]


def test_08_poll_that_skips_after_a_crashed_transaction_is_legal() -> None:
    ops = rewinding(5)
    ops.op(1, "info", poll("x", (3, 3), (4, 4)))
    assert ops.facts("poll-skip", "delta", "skipped") == [(3, [1, 2])]


@pytest.mark.parametrize(("assigned", "is_bad"), [((), True), (("x", "y"), True), (("y",), False)])
def test_09_poll_that_goes_back_is_reported(
    ops: Ops, assigned: tuple[str, ...], is_bad: bool
) -> None:
    ops.op(0, "ok", *[Send("x", value) for value in "abcd"])
    ops.op(0, "ok", poll("x", (1, "a"), (2, "b"), (3, "c")))
    if assigned:
        ops.assign(0, *assigned)
    ops.op(0, "ok", poll("x", (2, "b"), (3, "c"), (4, "d")))
    found = ops.facts("nonmonotonic-poll", "values", "delta")
    assert found == ([(["c", "b"], -1)] if is_bad else [])


@pytest.mark.parametrize(("assigned", "is_bad"), [((), True), (("x", "y"), True), (("y",), False)])
def test_10_sends_with_decreasing_offsets_are_reported(
    ops: Ops, assigned: tuple[str, ...], is_bad: bool
) -> None:
    """Jepsen accepts such sends after an assignment, which is another producer session here."""
    ops.op(0, "ok", Send("x", "c", 3), Send("x", "d", 4))
    if assigned:
        ops.assign(0, *assigned)
    ops.op(0, "ok", Send("x", "a", 1), Send("x", "b", 2))
    found = ops.facts("nonmonotonic-send", "values", "delta")
    assert found == ([(["d", "a"], -3)] if is_bad else [])


def test_11_skip_within_an_operation_is_reported(ops: Ops) -> None:
    ops.op(1, "info", *[Send("x", value) for value in "abd"])
    ops.op(0, "ok", poll("x", (1, "a"), (4, "d")))
    ops.op(0, "ok", poll("x", (1, "a")), poll("x", (4, "d")))
    ops.op(0, "ok", poll("x", (2, "b")))
    found = ops.facts("int-poll-skip", "values", "skipped", "delta")
    assert found == [(["a", "d"], ["b"], 2)] * 2


def test_12_other_sends_between_those_of_an_operation_are_legal(ops: Ops) -> None:
    ops.op(0, "ok", Send("x", "a", 1), Send("x", "c"))
    ops.op(1, "info", Send("x", "b"))
    ops.op(2, "ok", poll("x", (2, "b"), (3, "c")))
    found = ops.facts("int-send-skip", "values", "skipped", "delta")
    assert found == [(["a", "c"], ["b"], 2)]
    assert "int-send-skip" not in ops.verdict().names()


def test_13_operation_that_polls_back_is_reported(ops: Ops) -> None:
    ops.op(1, "info", *[Send("x", value) for value in "abc"])
    ops.op(0, "ok", poll("x", (3, "c"), (1, "a")))
    ops.op(0, "ok", poll("x", (2, "b"), (3, "c")), poll("x", (3, "c")))
    found = ops.facts("int-nonmonotonic-poll", "values", "delta")
    assert found == [(["c", "a"], -2), (["c", "c"], 0)]


def test_14_operation_with_sends_that_go_back_is_reported(ops: Ops) -> None:
    ops.op(0, "ok", Send("x", "c", 3), Send("x", "a", 1))
    ops.op(0, "info", Send("y", "d"), Send("y", "b"))
    ops.op(1, "info", Send("y", "c"))
    ops.op(0, "ok", poll("y", (2, "b"), (3, "c"), (4, "d")))
    found = ops.facts("int-nonmonotonic-send", "partition", "values", "delta")
    assert found == [("x", ["c", "a"], -1), ("y", ["d", "b"], -2)]


def test_15_duplicate_is_reported(ops: Ops) -> None:
    ops.op(0, "ok", Send("x", "a", 1))
    ops.op(1, "info", Send("x", "b"))
    ops.op(2, "ok", poll("x", (2, "b"), (3, "a")))
    assert ops.facts("duplicate", "value", "count", "offsets") == [("a", 2, [1, 3])]


def test_15_values_at_the_same_two_offsets_are_all_duplicates(ops: Ops) -> None:
    for value in range(10):
        ops.op(0, "ok", Send("x", value, 0))
        ops.op(1, "ok", poll("x", (1, value)))
    assert ops.count("duplicate") == 10
    found = ops.facts("inconsistent-offsets", "offset", "index", "values")
    assert [(*place, sorted(values)) for *place, values in found] == [
        (0, 0, list(range(10))),
        (1, 1, list(range(10))),
    ]


def test_15_reads_of_failed_transactions_are_used_and_their_sends_are_not(ops: Ops) -> None:
    ops.op(0, "ok", Send("x", 0, 1))
    ops.op(0, "fail", Send("x", 1, 2))
    ops.op(1, "fail", poll("x", (11, 0), (12, 1)))
    assert ops.facts("duplicate", "value", "count", "offsets") == [(0, 2, [1, 11])]


def test_17_history_without_operations_is_not_clean(ops: Ops) -> None:
    ops.assign(0, "x")
    assert not judge(ops.history()).is_clean


def test_18_value_unseen_so_far_is_listed(ops: Ops) -> None:
    ops.op(0, "ok", begun=0, ended=1)
    ops.op(0, "ok", Send("x", "a", 0), Send("x", "b", 1), begun=2, ended=3)
    ops.op(0, "ok", poll("x", (0, "a")), begun=4, ended=5)
    assert ops.count("unseen") == 1
    ops.op(0, "ok", poll("x", (1, "b")), begun=6, ended=7)
    assert ops.verdict().is_clean


def test_19_cycle_of_writes_is_legal(ops: Ops) -> None:
    ops.op(0, "ok", Send("x", "a", 0), Send("y", "a", 1), begun=0, ended=2)
    ops.op(1, "ok", Send("x", "b", 1), Send("y", "b", 0), begun=1, ended=3)
    (case,) = ops.cases("G0")
    assert len(case["transactions"]) == 2
    assert "G0" not in ops.verdict().names()


def test_20_two_transactions_that_read_each_other_are_g1c(ops: Ops) -> None:
    ops.op(0, "ok", Send("x", "a", 0), poll("y", (0, "b")), begun=0, ended=2)
    ops.op(1, "ok", Send("y", "b", 0), poll("x", (0, "a")), begun=1, ended=3)
    (case,) = ops.cases("G1c")
    assert {t["process"] for t in case["transactions"]} <= {0, 1}
    assert "G1c" in ops.verdict().names()


def test_21_cycle_of_a_read_and_a_write_is_legal(ops: Ops) -> None:
    ops.op(0, "ok", Send("x", "a", 0), Send("y", "c", 2), begun=0, ended=2)
    ops.op(1, "ok", poll("x", (0, "a")), Send("y", "b", 1), begun=1, ended=3)
    (case,) = ops.cases("G1c-ww")
    assert len(case["transactions"]) == 2
    assert not {"G1c", "G1c-ww"} & ops.verdict().names()


def test_22_transaction_that_read_its_own_value_is_reported(ops: Ops) -> None:
    ops.op(0, "ok", Send("x", "a", 0), poll("x", (0, "a")))
    assert ops.facts("precommitted-read", "partition", "value") == [("x", "a")]


def test_23_partitions_not_read_to_the_end_are_listed_and_added_to_assignments() -> None:
    draw = random.Random(7)
    unread = UnreadPartitions()
    unread.saw({"x": 1}, {})
    chosen = [unread.widen(["y"], draw.random()) for _ in range(100)]
    assert {tuple(keys) for keys in chosen} == {("y",), ("x", "y")}
    unread.saw({}, {"x": 0})
    assert unread.unread() == ["x"]
    unread.saw({}, {"x": 1})
    assert unread.unread() == []
    assert unread.widen(["y"], 0.0) == ["y"]
