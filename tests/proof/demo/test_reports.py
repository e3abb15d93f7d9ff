"""Test the report of a demo run, as `oncelog ui` shows it."""

from oncelog.proof.demo import report as flights
from oncelog.proof.demo.batch_trace import TraceCounts
from oncelog.proof.demo.engine import Effect
from oncelog.proof.demo.faults import FaultReport
from oncelog.proof.demo.run import DemoReport
from oncelog.proof.demo.transfers import report as transfers
from oncelog.proof.demo.transfers.faults import TransferFaultReport
from oncelog.proof.demo.transfers.run import TransfersReport
from oncelog.proof.demo.verdict import demo_run_report
from oncelog.proof.pages.run_report import read_report


def test_demo_report_of_flights_shows_faults_at_their_times() -> None:
    report = DemoReport(7, "none", acknowledged=3, seconds=60.0)
    report.faults = [FaultReport("kill", Effect("killed node 2", 1, 80.0), TraceCounts(2, 20, 1))]
    report.when = [(12.0, 14.5)]
    shown = demo_run_report(report, flights.sentence(report), flights.as_json(report), report.when)
    assert (shown.state, shown.verdict.partition(":")[0]) == ("ok", "EXACTLY ONCE")
    assert shown.spans[0][:3] == ("kill", 12.0, 14.5) and "killed node 2" in shown.spans[0].words
    assert ("acknowledged", 3) in shown.facts and ("seed", 7) in shown.facts
    assert read_report(shown.as_json()).as_json() == shown.as_json()


def test_demo_report_of_transfers_without_an_effective_fault_proves_nothing() -> None:
    report = TransfersReport(7, "none", "sqlite", seconds=60.0)
    report.faults = [TransferFaultReport("kill", "killed node 1", 0, 90.0)]
    report.when = [(1.0, 2.0)]
    fields = transfers.as_json(report)
    shown = demo_run_report(report, transfers.sentence(report), fields, report.when)
    assert shown.state == "note" and "killed node 1" in shown.spans[0].words
    assert read_report(shown.as_json()).as_json() == shown.as_json()
