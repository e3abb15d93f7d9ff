"""Test that the transactions that workers report are stored in order."""

import time
from pathlib import Path

from oncelog.proof.demo.worker import WorkerSettings
from oncelog.proof.demo.worker_processes import WorkerProcesses

SETTINGS = WorkerSettings(connection="", source="", enriched="", sums="", is_fenced=True)
REPORTS = """
["began", "w.1.1", 10, {"0": 10}]
["sending", "w.1.1"]
["committing", "w.1.1"]
["committed", "w.1.1"]
["began", "w.1.2", 10, {"0": 20}]
["aborted", "w.1.2", "UNKNOWN_MEMBER_ID"]
["ended", "_FENCED"]
["began", "w.1.3", 10, {"0": 30}]
"""


class StandIns(WorkerProcesses):
    def command(self, name: str, incarnation: int) -> list[str]:
        return ["-c", f"print({REPORTS!r}, flush=True); import time; time.sleep(60)"]


def test_demo_worker_reports_transactions_in_order(tmp_path: Path) -> None:
    workers = StandIns(SETTINGS, tmp_path)
    started = time.monotonic()
    try:
        workers.start("w")
        assert workers.wait(lambda: "w.1.3" in workers.transactions, 20)
    finally:
        workers.close()
    found = workers.transactions
    assert [(t.state, t.error) for t in found.values()] == [
        ("committed", ""), ("aborted", "UNKNOWN_MEMBER_ID"), ("began", ""),
    ]  # fmt: skip
    assert found["w.1.1"].until == {0: 10}
    assert workers.last["w"] is found["w.1.3"]
    assert workers.committed_after(started)["w"] == found["w.1.1"].at
    assert workers.committed_after(time.monotonic()) == {"w": None}
