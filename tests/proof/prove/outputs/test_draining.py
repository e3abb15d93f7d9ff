"""Test that a run waits for records that are not visible yet, before it counts them as lost."""

import re
import sqlite3
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.prove.facts import Fetched
from oncelog.proof.prove.judgement import judge_ids
from oncelog.proof.prove.observed import Observed, Tries
from oncelog.proof.prove.outputs import draining
from oncelog.proof.prove.outputs.database import DatabaseOutputs
from oncelog.proof.prove.outputs.draining import Drain, Pace
from oncelog.proof.prove.relation import LogRecord, matcher
from oncelog.wire.errors import CoordinatorNotAvailable

IN, OUT = ("in", 0), ("out", 0)


class Offsets:
    """A cluster with a group's committed offset, ongoing transactions, and end offsets."""

    def __init__(self, committed: int, *ongoing: str) -> None:
        self.groups, self._committed = self, committed
        self.transactions, self._ongoing = self, ongoing
        self.stable = self.end = 0

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        return {IN: self._committed}

    def list_transactions(self, states: Any) -> list[Any]:
        return [SimpleNamespace(transactional_id=name) for name in self._ongoing]

    def list_offsets(self, places: Any, read_committed: bool = False) -> dict[Any, int]:
        return dict.fromkeys(places, self.stable if read_committed else self.end)


class Instances:
    """Two instances, the second of which exits every `every_s` seconds."""

    instances = ("instance-1", "instance-2")
    stop_timeout_s, ends_within_s = 10.0, 0.3
    awake_s = 0.0
    restarts = 0

    def __init__(self, every_s: float | None = None) -> None:
        self._begun_s, self._every_s = time.monotonic(), every_s

    @property
    def exits(self) -> list[tuple[float, str, int]]:
        if self._every_s is None:
            return []
        count = int((time.monotonic() - self._begun_s) / self._every_s)
        return [(self._begun_s + n * self._every_s, "instance-2", 1) for n in range(count + 1)]

    def restart_all(self) -> list[str]:
        time.sleep(self.ends_within_s)
        self.restarts += 1
        return ["instance-1"]

    def awake_since_s(self, name: str) -> float:
        return self.awake_s

    def has_ended(self, name: str) -> bool:
        return False

    def told(self, name: str) -> str:
        return ""


def drain(
    tmp_path: Path, admin: Offsets, rows: list[str], application: Instances | None = None
) -> Drain:
    with sqlite3.connect(file := tmp_path / "out.db") as connection:
        connection.execute("CREATE TABLE t (id TEXT)")
        connection.executemany("INSERT INTO t VALUES (?)", [(row,) for row in rows])
    connection.close()
    observed = Observed(["in"], ["out"])
    observed.groups["g"] = None
    inputs = [(each, LogRecord(*IN, n, each.encode())) for n, each in enumerate(("a", "b"))]
    return Drain(
        cast(Any, admin), cast(Any, application or Instances()), DatabaseOutputs(f"sqlite:///{file}?table=t&id=id"),
        observed, inputs, {IN: 2}, [OUT],
        lambda inputs, outputs, is_passed: judge_ids(
            inputs, outputs, matcher("key"), is_passed=is_passed
        ),
        Pace(timeout_s=1.0, silence_s=0.5, rest_s=0.3),
    )  # fmt: skip


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "QUIET_S", 0.1)
    monkeypatch.setattr(draining, "LOOK_EACH_S", 0.02)
    monkeypatch.setattr(draining, "ANSWER_S", 0.5)


def waited(drained: Drain) -> Drain:
    drained._reader.look()  # type: ignore[union-attr]
    drained.wait()
    return drained


def test_drain_of_an_idle_application_reports_that_it_came_to_rest(
    tmp_path: Path, quickly: None
) -> None:
    drained = waited(drain(tmp_path, Offsets(committed=2), ["a", "b"]))
    assert drained.unrest is None and drained.restless == "" and not drained.notes


def test_drain_with_an_open_transaction_names_its_instance(tmp_path: Path, quickly: None) -> None:
    """Only an open transaction in the coordinator's list counts, not one that has timed out."""
    admin = Offsets(2, "app-2")
    admin.end = 1
    drained = drain(tmp_path, admin, ["a", "b"])
    drained._observed._transactions |= {"app-1": "instance-1", "app-2": "instance-2"}
    assert waited(drained).restless == "instance-2 never came to rest"
    assert "its transaction app-2 stayed open" in drained.notes[0]


def test_drain_with_advancing_offsets_reports_no_open_transaction(
    tmp_path: Path, quickly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application that writes in transactions nearly always has an open one."""
    admin = Offsets(0, "app-1")
    admin.end = 1
    drained = drain(tmp_path, admin, ["a", "b"])
    drained._observed._transactions["app-1"] = "instance-1"
    monkeypatch.setattr(admin, "committed", lambda group: {IN: int(time.monotonic() * 1e6)})
    assert waited(drained).restless == "the application never came to rest"
    assert "outputs or offsets still moved" in drained.notes[0]


def test_drain_with_a_broker_that_answers_only_after_the_deadline_reports_no_unrest(
    tmp_path: Path, quickly: None
) -> None:
    admin = Offsets(2)
    begun_s, ends = time.monotonic(), admin.list_offsets

    def unreachable(places: Any, read_committed: bool = False) -> dict[Any, int]:
        if time.monotonic() < begun_s + 1.3:  # beyond the deadline
            raise CoordinatorNotAvailable
        return ends(places, read_committed)

    admin.list_offsets = unreachable
    assert waited(drain(tmp_path, admin, ["a", "b"])).unrest is None


def test_drain_with_an_instance_that_exits_repeatedly_names_the_instance(
    tmp_path: Path, quickly: None
) -> None:
    drained = waited(drain(tmp_path, Offsets(2), ["a", "b"], Instances(every_s=0.02)))
    assert drained.restless == "instance-2 never came to rest"
    assert re.search(r"it ended by itself \d+ times after all was mended", drained.notes[0])


def test_drain_after_one_exit_of_an_instance_reports_that_it_came_to_rest(
    tmp_path: Path, quickly: None
) -> None:
    drained = waited(drain(tmp_path, Offsets(2), ["a", "b"], Instances(every_s=600)))
    assert drained.unrest is None


def test_drain_with_a_restart_gives_the_new_instances_the_whole_time_again(
    tmp_path: Path, quickly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a hanging instance takes up to 10 s, and its group waits for its session."""
    admin, application, restarted_s = Offsets(0), Instances(), list[float]()
    restart_all = application.restart_all

    def restarted() -> list[str]:
        found = restart_all()  # longer than what was left of the time without changes
        restarted_s.append(time.monotonic())
        return found

    def committed(group: str) -> dict[tuple[str, int], int]:
        is_back = restarted_s and time.monotonic() - restarted_s[0] > 0.2
        return {IN: 2 if is_back else 0}

    monkeypatch.setattr(application, "restart_all", restarted)
    monkeypatch.setattr(admin, "committed", committed)
    drained = drain(tmp_path, admin, ["a", "b"], application)
    drained._pace = replace(drained._pace, timeout_s=20.0)
    drained._judge = lambda inputs, outputs, is_passed: judge_ids(
        inputs, outputs if admin.committed("g")[IN] else [], matcher("key"), is_passed=is_passed
    )
    assert waited(drained).why == "" and drained.unrest is None
    assert len(restarted_s) == 1
    assert drained.notes == [
        "the application made no progress after the repair, so prove restarted it; instance-1 did "
        "not end within 10 s of SIGTERM"
    ]


def test_drain_that_ends_right_after_a_restart_does_not_report_a_stalled_application(
    tmp_path: Path, quickly: None
) -> None:
    """The new instances may still start, and nothing has moved."""
    drained = drain(tmp_path, Offsets(0), [], application := Instances())
    drained._pace = replace(drained._pace, timeout_s=1.8, silence_s=1.6)
    application.stop_timeout_s = 0.3
    assert waited(drained).restless == "the application never came to rest"
    assert "within 2 s: prove restarted it only" in drained.notes[1]
    assert application.restarts == 1


def test_drain_without_time_for_a_restart_ends_on_time_without_one(
    tmp_path: Path, quickly: None
) -> None:
    """An instance that hangs would take 10 s beyond the end of the run."""
    drained = drain(tmp_path, Offsets(0), [], application := Instances())
    drained._pace = replace(drained._pace, timeout_s=0.5)
    assert "instance-2 runs, but reads no more inputs" in waited(drained).why
    assert application.restarts == 0


def test_drain_does_not_restart_an_instance_that_still_starts(
    tmp_path: Path, quickly: None
) -> None:
    """The last fault has ended it, and it needs more than half of the time without changes."""
    drained = drain(tmp_path, Offsets(0), [], application := Instances())
    drained._pace = replace(drained._pace, timeout_s=3.0, silence_s=1.2, rest_s=2.5)
    application.stop_timeout_s, application.awake_s = 0.3, time.monotonic()
    moved_s = time.monotonic() + 0.75
    drained._admin.groups.committed = lambda group: {IN: 2 * (time.monotonic() > moved_s)}  # type: ignore
    waited(drained)
    assert application.restarts == 0 and drained.why == ""


def test_drain_of_a_stalled_application_names_the_instance_that_had_its_inputs(
    tmp_path: Path, quickly: None
) -> None:
    drained = drain(tmp_path, Offsets(1), ["a"])
    at_s = time.monotonic()
    drained._observed._recent += [
        Fetched(at_s, "instance-2", *IN, 0, 2),
        Fetched(at_s, "instance-1", *IN, 1, 2),
        Fetched(at_s, "instance-2", "in", 1, 0, 2),
    ]
    assert "instance-1 runs, but reads no more inputs" in waited(drained).why


def test_drain_of_a_stalled_application_restarts_it_once_and_notes_its_last_output(
    tmp_path: Path, quickly: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict is one line, and its reason is a part of it."""
    drained = drain(tmp_path, Offsets(1), ["a"], application := Instances())
    drained._pace = replace(drained._pace, timeout_s=20.0)
    said = "\n  instance-2 | bye\nKeep its whole output."
    monkeypatch.setattr(application, "told", lambda name: said)
    assert waited(drained).why == "instance-2 runs, but reads no more inputs."
    assert drained.notes[1:] == ["  instance-2 | bye", "Keep its whole output."]
    assert application.restarts == 1


@pytest.mark.parametrize(("last_try_s", "is_restless"), [(600.0, True), (-10.0, False)])
def test_drain_with_an_instance_that_is_always_refused_names_the_instance(
    tmp_path: Path, quickly: None, last_try_s: float, is_restless: bool
) -> None:
    drained = drain(tmp_path, Offsets(2), ["a", "b"])
    at_s = time.monotonic() + last_try_s
    drained._observed._tries["instance-1"] = Tries(130, 130, "UNKNOWN_MEMBER_ID", at_s)
    waited(drained)
    assert drained.restless == ("instance-1 never came to rest" if is_restless else "")
    if is_restless:
        assert "130 producers made, the last error UNKNOWN_MEMBER_ID" in drained.notes[0]


@pytest.mark.parametrize("is_open", [True, False])
def test_output_held_back_by_an_open_transaction_is_not_counted_as_lost(
    tmp_path: Path, is_open: bool
) -> None:
    admin = Offsets(committed=2)
    admin.end = int(is_open)
    drained = drain(tmp_path, admin, ["a"])
    judgement, *_ = drained.judged(is_last=True)
    if is_open:
        assert judgement.pending == ["b"] and not judgement.is_violated
        assert "a transaction is still open" in drained.why
        assert drained.restless == "the application never came to rest"
    else:
        assert judgement.lost == {"b": 1} and drained.why == "" and drained.unrest is None


def test_drain_with_outputs_written_between_its_requests_finds_no_open_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end and the LSO are asked for one after the other, while outputs arrive."""
    admin = Offsets(committed=2)

    def moving(places: Any, read_committed: bool = False) -> dict[Any, int]:
        admin.end += 1
        return dict.fromkeys(places, admin.end)

    monkeypatch.setattr(admin, "list_offsets", moving)
    assert drain(tmp_path, admin, ["a"])._is_settled()


def test_output_committed_right_after_the_last_reading_is_not_counted_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained = drain(tmp_path, Offsets(committed=2), ["a"])
    judge, judged = drained._judge, []

    def committed_meanwhile(*arguments: Any) -> Any:
        judged.append(found := judge(*arguments))
        if len(judged) == 1:
            with sqlite3.connect(tmp_path / "out.db") as connection:
                connection.execute("INSERT INTO t VALUES ('b')")
            connection.close()
        return found

    monkeypatch.setattr(drained, "_judge", committed_meanwhile)
    judgement, *_ = drained.judged(is_last=True)
    assert not judgement.lost and drained.why == ""


def test_database_table_unreadable_at_the_end_gives_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draining, "READ_TIMEOUT_S", 0.2)
    drained = drain(tmp_path, Offsets(committed=2), ["a", "b"])
    with sqlite3.connect(tmp_path / "out.db") as connection:
        connection.execute("ALTER TABLE t RENAME TO away")
    connection.close()
    with pytest.raises(Failure, match="t cannot be read"):
        drained.judged(is_last=True)


def test_outputs_that_did_not_change_are_judged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a million outputs judging takes seconds, during which the proxy waits."""
    monkeypatch.setattr(draining, "QUIET_S", 0.5)
    monkeypatch.setattr(draining, "LOOK_EACH_S", 0.05)
    drained = drain(tmp_path, Offsets(committed=2), ["a", "b"])
    drained._reader.look()  # type: ignore[union-attr]
    judged: list[bool] = []
    judge = drained._judge

    def counted(*arguments: Any) -> Any:
        judged.append(True)
        return judge(*arguments)

    monkeypatch.setattr(drained, "_judge", counted)
    drained.wait()
    assert len(judged) == 1 and drained.why == "" and not drained.notes
