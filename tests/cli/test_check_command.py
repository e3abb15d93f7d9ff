"""Test the printed findings and exit codes of `oncelog check` on the directory of a run."""

import json
import random
import signal
from pathlib import Path

import pytest

from oncelog.cli.main import run
from oncelog.proof.judge import verdict
from oncelog.proof.judge.catalogue import ANOMALIES, CHECKS
from oncelog.proof.judge.history.columns import History
from oncelog.proof.judge.history.files import seal
from oncelog.proof.judge.history.recorder import Recorder
from oncelog.proof.judge.history.schema import TABLES

from ..proof.judge.edit import Edit
from ..proof.judge.model_cluster import ModelCluster
from ..proof.judge.mutations import all_mutations

PLANTS = all_mutations()


def written(folder: Path, history: History, without: frozenset[str] = frozenset()) -> Path:
    recorder = Recorder.open(folder)
    for table in TABLES.keys() - without:
        for number in range(history.count(table)):
            recorder.add(table, *history.row(table, number).values())
    recorder.close()
    return folder


def test_check_of_a_clean_history_exits_zero_and_lists_the_omitted_checks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, History.of(ModelCluster(2).recorder), frozenset({"batches"}))
    assert run(["check", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "no promise was broken" in out
    assert "not judged: W1" in out and "not judged: W3" in out
    assert "legal J7 int-send-skip" in out


def test_check_of_a_broken_history_reports_the_violation_with_its_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit = Edit(ModelCluster(2).recorder, random.Random(1))
    PLANTS["G1a"](edit)
    written(tmp_path, edit.history())
    assert run(["check", str(tmp_path), "--only", "J3", "--only", "J5"]) == 1
    assert "VIOLATION J3 G1a: 1" in capsys.readouterr().out
    assert run(["check", str(tmp_path), "--format", "json", "--only", "J3"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["is_clean"], told["judged"]) == (False, ["J3"])
    (case,) = told["findings"][0]["cases"]
    assert {"value", "partition", "offset", "writer", "reader", "markers"} <= set(case["facts"])
    assert case["facts"]["writer"]["transaction"]["outcome"] == "fail"
    assert run(["check", str(tmp_path), "--evidence", "--only", "J3"]) == 1
    assert '"markers"' in capsys.readouterr().out


def test_check_finding_during_a_fault_names_the_fault(tmp_path: Path) -> None:
    world = ModelCluster(2)
    world.recorder.add("faults", "kill", "leader:in/0", 0, world.now_ns, 7)
    edit = Edit(world.recorder, random.Random(1))
    PLANTS["lost-write"](edit)
    from oncelog.proof.judge.verdict import judge

    (finding,) = [f for f in judge(edit.history()).findings if f.name == "lost-write"]
    writer = finding.cases[0].facts["writer"]
    assert writer["faults_active"] == 1
    assert (writer["faults"][0]["kind"], writer["faults"][0]["target"]) == ("kill", "leader:in/0")


def test_check_catalogue_lists_every_anomaly_and_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "--catalogue", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["anomaly"] for row in rows} == set(ANOMALIES)
    assert [check.name for check in CHECKS] == [
        *(f"J{n}" for n in range(1, 10)), *(f"A{n}" for n in range(1, 7)),
        "G1", "G2", "G3", "W1", "W2", "W3", "L1",
    ]  # fmt: skip


def test_check_with_an_invalid_directory_or_check_name_exits_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["check"]) == 2
    assert run(["check", str(tmp_path)]) == 2
    written(tmp_path, History.of(ModelCluster(2, steps=50).recorder))
    assert run(["check", str(tmp_path), "--only", "J77"]) == 2
    assert "there are J1, J2" in capsys.readouterr().err


def test_check_interrupted_by_ctrl_c_stops_judging_and_exits_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Recorder.open(tmp_path).close()
    went_on: list[bool] = []

    def long_work(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)
        went_on.append(True)
        raise AssertionError

    monkeypatch.setattr(verdict, "judge", long_work)
    assert run(["check", str(tmp_path)]) == 130
    assert not went_on


def test_check_of_a_damaged_history_names_the_damaged_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, History.of(ModelCluster(2).recorder))
    seal(tmp_path)
    file = tmp_path / "history" / "0000" / "polls.parquet"
    file.write_bytes(file.read_bytes()[:-100])
    assert run(["check", str(tmp_path)]) == 2
    assert "polls.parquet is damaged" in capsys.readouterr().err
