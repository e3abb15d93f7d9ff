"""Test client processes, which report their errors. An unexpected exit is a failure."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.proof.chaos.client_processes import ClientProcesses
from oncelog.proof.chaos.load.order import STUCK, WorkerOrder

from ...waiting import until

TIMEOUT_S = 20.0
STAND_IN = """
import json, signal, sys, time
code = json.loads(sys.argv[1])["number"]
if code:
    print("the last words", flush=True)
    sys.exit(code)
def end(*_):
    print(json.dumps(["ended", 2, {"Timeout": 3}]), flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


class StandIns(ClientProcesses):
    def command(self, name: str, incarnation: int) -> list[str]:
        return ["-c", STAND_IN, super().command(name, incarnation)[-1]]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[StandIns]:
    made = StandIns(tmp_path)
    yield made
    made.close()


def order(number: int = 0) -> WorkerOrder:
    return WorkerOrder(run="r", connection="b", number=number, seed="s", workloads=("append",))


def test_chaos_client_incarnations_have_different_seeds(processes: StandIns) -> None:
    processes.add("one", order())
    processes.kill("one")
    processes.start("one")
    command = processes.running("one").cmdline()
    assert json.loads(command[-1])["seed"] == "s/one/2"


def test_chaos_client_process_that_exits_is_reported_as_a_failure_and_restarted(
    processes: StandIns,
) -> None:
    processes.add("one", order(number=7))
    until(lambda: processes.restarts > 1)
    assert "exit code 7" in processes.broken[0] and "the last words" in processes.broken[0]


def test_chaos_client_process_with_a_hanging_library_is_restarted_without_a_failure(
    processes: StandIns,
) -> None:
    processes.add("one", order(number=STUCK))
    until(lambda: processes.stuck > 1)
    assert processes.broken == []


def test_chaos_client_process_reports_its_client_errors_at_its_stop(processes: StandIns) -> None:
    processes.add("one", order())
    until(lambda: "ready" in processes.log("one").read_text())
    processes.remove("one")
    assert processes.broken == [] and processes.names == []
    assert processes.clients == 2 and processes.errors == {"Timeout": 3}
