"""Test the recorded ownerships ("tenures") and epochs of a consumer group member.

A tenure is the time in which a member owns a partition, as its heartbeats show.
"""

from typing import Any

from oncelog.proof.chaos.load.recorded_tenures import RecordedTenures
from oncelog.proof.judge.history.columns import History
from oncelog.proof.judge.history.recorder import Recorder


def rows(recorder: Recorder, table: str) -> list[dict[str, Any]]:
    history = History.of(recorder)
    return [history.row(table, number) for number in range(history.count(table))]


def test_partition_tenure_lasts_until_its_last_answered_heartbeat() -> None:
    times = iter(range(1, 100))
    recorder = Recorder.in_memory(clock_ns=lambda: next(times))
    member = RecordedTenures(recorder, 7, "g")
    member.says(0)
    member.hears(3, is_given=True, is_settled=True)
    member.begin([("t", 0), ("t", 1)])
    for _ in range(2):
        member.says(3)
        member.hears(3, is_given=False, is_settled=True)
    member.end([("t", 0)])
    member.says(3)
    member.hears(4, is_given=True, is_settled=True)
    member.says(4)  # and no answer
    member.begin([("t", 2)])
    found = rows(recorder, "tenures")
    kept, other, last = found[0], found[1], found[2]
    assert (kept["partition"], kept["owner"], kept["epoch"]) == ("t/0", "member 7", 3)
    assert kept["taken_ns"] < kept["confirmed_ns"] < kept["ended_ns"]
    assert kept["confirmed_ns"] < other["confirmed_ns"] and other["ended_ns"] == -1
    assert (last["epoch"], last["confirmed_ns"]) == (4, -1)
    assert [member.epoch_of(("t", index)) for index in (1, 2, 0)] == [3, 4, 4]
    told = [(row["said"], row["epoch"]) for row in rows(recorder, "member_epochs")]
    assert told == [(0, 3), (3, 4)]


def test_partition_tenure_is_not_prolonged_by_a_heartbeat_that_rejoins() -> None:
    recorder = Recorder.in_memory()
    member = RecordedTenures(recorder, 7, "g")
    member.says(0)
    member.hears(3, is_given=True, is_settled=True)
    member.begin([("t", 0)])
    member.says(0)
    member.hears(4, is_given=False, is_settled=True)
    member.says(-1)
    member.hears(-1, is_given=False, is_settled=True)
    assert rows(recorder, "tenures")[0]["confirmed_ns"] == -1
    assert [row["epoch"] for row in rows(recorder, "member_epochs")] == [3, 4]


def test_partition_tenure_begins_at_the_assigning_answer() -> None:
    recorder = Recorder.in_memory()
    member = RecordedTenures(recorder, 7, "g")
    first_ns = recorder.now_ns()
    member.says(0)
    before_ns = recorder.now_ns()
    member.hears(3, is_given=True, is_settled=True)
    after_ns = recorder.now_ns()
    member.says(3)
    member.hears(3, is_given=False, is_settled=True)
    member.begin([("t", 0)])
    (found,) = rows(recorder, "tenures")
    assert first_ns <= found["asked_ns"] <= before_ns <= found["taken_ns"] <= after_ns


def test_reconciliation_lasts_until_the_heartbeat_that_reports_its_end() -> None:
    times = iter(range(1, 100))
    recorder = Recorder.in_memory(clock_ns=lambda: next(times))
    member = RecordedTenures(recorder, 7, "g")
    member.says(0)
    member.hears(3, is_given=True, is_settled=False)
    member.says(3)
    member.hears(3, is_given=False, is_settled=False)
    member.says(3)  # and no answer
    member.says(3)
    member.hears(3, is_given=False, is_settled=True)
    member.says(3)
    member.hears(3, is_given=False, is_settled=True)
    (found,) = rows(recorder, "reconciliations")
    (told,) = rows(recorder, "member_epochs")
    assert told["returned_ns"] < found["begun_ns"] < found["until_ns"]
    member.says(3)
    assert member._said_ns - found["until_ns"] == 2, "the one that was answered with `is_settled`"


def test_reconciliation_is_not_prolonged_by_a_heartbeat_that_rejoins() -> None:
    recorder = Recorder.in_memory()
    member = RecordedTenures(recorder, 7, "g")
    member.says(0)
    member.hears(3, is_given=True, is_settled=False)
    for _ in range(2):
        member.says(0)
        member.hears(5, is_given=True, is_settled=False)
    found = rows(recorder, "reconciliations")
    assert len(found) == 3
    assert all(row["until_ns"] == row["begun_ns"] for row in found)
