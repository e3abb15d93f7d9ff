"""Processes of clients: killed, paused, started again; who ends by himself is noticed."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from oncelog.deploy.chaos import workers as under_test
from oncelog.deploy.chaos.load.order import STUCK, WorkerOrder
from oncelog.deploy.chaos.workers import Workers

PATIENCE_S = 20.0
STAND_IN = """
import json, signal, sys, time
order = json.loads(sys.argv[1])
code = order["number"]
if code:
    print("the last words", flush=True)
    sys.exit(code)
def end(*_):
    print(json.dumps({"clients": 2, "errors": {"Timeout": 3}}), flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
while True:
    time.sleep(0.05)
"""


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    spawn = under_test.subprocess.Popen

    def replaced(command, **options):
        return spawn([sys.executable, str(script), command[-1]], **options)

    monkeypatch.setattr(under_test.subprocess, "Popen", replaced)
    made = Workers(tmp_path)
    yield made
    made.close()


def order(number: int = 0) -> WorkerOrder:
    return WorkerOrder(run="r", bootstrap="b", number=number, seed="s", workloads=("append",))


def until(is_so) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_each_incarnation_has_a_seed_of_its_own(workers: Workers, tmp_path: Path) -> None:
    workers.start("one", order())
    workers.kill("one")
    workers.restart("one")
    pids = [p for p in psutil.Process().children() if "stand_in.py" in " ".join(p.cmdline())]
    (seed,) = {json.loads(p.cmdline()[-1])["seed"] for p in pids}
    assert seed == "s/one/2"


def test_a_killed_worker_is_nobodys_fault(workers: Workers) -> None:
    workers.start("one", order())
    pid = workers.kill("one")
    assert not psutil.pid_exists(pid)
    workers.revive()
    assert workers.broken == [] and workers.started == 1


def test_a_worker_that_ends_by_itself_is_told_and_started_again(workers: Workers) -> None:
    workers.start("one", order(number=7))
    until(lambda: workers.revive() or workers.broken)
    assert "exit code 7" in workers.broken[0] and "the last words" in workers.broken[0]
    assert workers.started == 2


def test_a_library_that_hangs_is_started_again_without_blame(workers: Workers) -> None:
    workers.start("one", order(number=STUCK))
    until(lambda: workers.revive() or workers.stuck)
    assert workers.broken == []


def test_a_paused_worker_is_in_state_t_and_ends_when_it_is_asked(
    workers: Workers, tmp_path: Path
) -> None:
    workers.start("one", order())
    pid = workers.pause("one")
    assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
    workers.resume("one")
    until(lambda: "ready" in (tmp_path / "workers" / "one.log").read_text())
    workers.pause("one")
    workers.stop()
    workers.gather()
    assert workers.broken == [] and workers.clients == 2 and workers.errors == {"Timeout": 3}
