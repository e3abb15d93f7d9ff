"""Test the page of a chaos run, made from a small recorded history."""

import json
from pathlib import Path

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.chaos.report import target_of, write_report
from oncelog.proof.chaos.series import series_of
from oncelog.proof.judge.history.columns import History
from oncelog.proof.judge.history.recorder import Recorder
from oncelog.proof.judge.history.schema import NONE, Isolation, OpOutcome
from oncelog.proof.pages.run_folder import report_in

MS = 1_000_000


class Clock:
    """A clock that is set by the test."""

    def __init__(self) -> None:
        self.now_ns = 5_000 * MS

    def __call__(self) -> int:
        return self.now_ns


def a_run(recorder: Recorder, clock: Clock) -> None:
    """Record ten seconds of sends and commits with a kill from 2 s to 4 s, and a killed worker."""
    process = recorder.new_process()
    start_ns = clock.now_ns
    times = start_ns + 2_000 * MS, start_ns + 4_000 * MS
    recorder.add("faults", "kill", "node <2>", *times, 7)
    for step in range(100):
        transaction = recorder.begin(process, "t", 1, step)
        value = recorder.new_value()
        send = recorder.send_invoked(process, "append/0", value, transaction)
        recorder.send_ended(send, OpOutcome.OK, offset=2 * step)
        recorder.commit_invoked(transaction)
        clock.now_ns += 20 * MS
        recorder.transaction_ended(transaction, OpOutcome.OK)
        recorder.add("scan", Isolation.READ_COMMITTED, "append/0", 2 * step, value, clock.now_ns)
        clock.now_ns += 80 * MS
    recorder.add("faults", "worker-kill", "oncelog-1", clock.now_ns, NONE, 7)


def test_chaos_report_has_rates_and_latencies_by_the_second() -> None:
    clock = Clock()
    recorder = Recorder.in_memory(clock_ns=clock)
    a_run(recorder, clock)
    series = series_of(History.of(recorder))
    assert series.bin_s == 1 and 9 < series.seconds < 11
    by_name = {line.name: line.values for line in (*series.rates, *series.latencies)}
    assert by_name["records acknowledged/s"][:9].tolist() == [10] * 9
    assert by_name["commit p50, ms"][3] == pytest.approx(20)
    kill, worker = series.faults
    assert (kill.kind, round(kill.start_s, 1), round(kill.end_s, 1)) == ("kill", 2.0, 4.0)
    assert worker.end_s == series.seconds, "a fault that never ended lasts to the end"


def test_chaos_report_page_is_self_contained_and_complete(tmp_path: Path) -> None:
    clock = Clock()
    recorder = Recorder.open(tmp_path, clock)
    a_run(recorder, clock)
    recorder.close()
    outcome = {"broken": ["node 1 ended by itself"], "bank": "bank: in balance"}
    about = {"seed": 7, "replay": "oncelog chaos replay X", "outcome": outcome, "settings": {}}
    (tmp_path / "run.json").write_text(json.dumps(about))
    page = write_report(tmp_path, tmp_path / "report.html").read_text()
    for text in (
        "kill", "node &lt;2&gt;", "commit p99", "no promise was broken", "bank: in balance",
        "node 1 ended by itself", "oncelog chaos replay X", "<svg", "<polyline",
    ):  # fmt: skip
        assert text in page, text
    assert "<2>" not in page and "http:" not in page and ">nan" not in page
    assert page.index("no promise was broken") < page.index("operations judged by")
    report = report_in(tmp_path)
    assert report.state == "bad", "a node ended by itself"
    assert [span.row for span in report.spans] == ["nodes", "clients"]
    assert report.curves[0][:2] == ("records acknowledged/s", "") and len(report.curves) == 7


def test_chaos_report_of_an_empty_history_is_drawn(tmp_path: Path) -> None:
    Recorder.open(tmp_path).close()
    (tmp_path / "run.json").write_text("{}")
    assert "<svg" in write_report(tmp_path, tmp_path / "report.html").read_text()


def test_chaos_report_of_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="not the directory of a run"):
        write_report(tmp_path, tmp_path / "report.html")


def test_chaos_report_groups_fault_kinds_by_nodes_links_clients_and_other() -> None:
    assert target_of("kill") == "nodes" and target_of("isolate") == "links"
    assert target_of("worker-kill") == "clients" and target_of("flood") == "other"
