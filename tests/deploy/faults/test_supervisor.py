"""Test that child processes are killed, paused, stopped, and restarted when they exit."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.faults import supervisor
from oncelog.deploy.faults.supervisor import Supervisor

from ...waiting import until

TIMEOUT_S = 20.0
SLEEP = "import time; time.sleep(60)"
ENDS_AT_SIGTERM = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print('["ready"]', flush=True)
while True:  # a signal that comes just before a sleep is seen after it
    time.sleep(0.2)
"""
IGNORES_SIGTERM = ENDS_AT_SIGTERM.replace("lambda *_: sys.exit(0)", "signal.SIG_IGN")
LEAVES_AN_ORPHAN = """
import os, time
there, here = os.pipe()
if not os.fork():
    if not os.fork():
        os.setpgid(0, 0)
        os.write(here, str(os.getpid()).encode())
        time.sleep(60)
    os._exit(0)
print(f'["orphan", {os.read(there, 9).decode()}]', flush=True)
"""


class Programs(Supervisor):
    """A supervisor of one child, `p`. Its first start runs the first of `programs`, and so on.

    After the last program, each start runs the last program again.
    """

    restarts_max = 2
    stop_timeout_s = 1.0

    def __init__(self, logs: Path) -> None:
        super().__init__(logs)
        self.programs = [SLEEP]
        self.events: list[list[Any]] = []
        self.exits: list[tuple[int, str]] = []

    def command(self, name: str, incarnation: int) -> list[str]:
        return ["-c", self.programs[min(incarnation, len(self.programs)) - 1]]

    def on_event(self, name: str, event: str, *arguments: Any) -> None:
        self.events.append([event, *arguments])

    def on_exit(self, name: str, code: int) -> None:
        self.exits.append((code, self.last_words(name)))


@pytest.fixture
def children(tmp_path: Path) -> Iterator[Programs]:
    made = Programs(tmp_path)
    yield made
    made.close()


def start(children: Programs, *programs: str) -> None:
    children.programs = [*programs]
    children.start("p")


def test_killed_child_process_stays_down_until_it_is_started(children: Programs) -> None:
    start(children, SLEEP, ENDS_AT_SIGTERM)
    pid = children.kill("p")
    assert not psutil.pid_exists(pid)
    with pytest.raises(Failure, match=r"p has ended"):
        children.pause("p")
    children.start("p")
    assert children.wait(lambda: ["ready"] in children.events, TIMEOUT_S)
    assert children.restarts == 0 and not children.exits


def test_paused_child_process_is_in_state_t_and_ends_at_sigterm(children: Programs) -> None:
    start(children, ENDS_AT_SIGTERM)
    assert children.wait(lambda: ["ready"] in children.events, TIMEOUT_S)
    pid = children.pause("p")
    assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
    children.resume("p")
    assert psutil.Process(pid).status() != psutil.STATUS_STOPPED
    children.pause("p")
    children.stop_timeout_s = TIMEOUT_S
    assert children.stop() == {"p": 0}


def test_child_process_that_ignores_sigterm_is_killed(children: Programs) -> None:
    start(children, IGNORES_SIGTERM)
    assert children.wait(lambda: ["ready"] in children.events, TIMEOUT_S)
    assert children.stop() == {"p": None}
    assert children.restarts == 0


def test_child_process_that_exits_repeatedly_is_restarted_at_most_its_limit(
    children: Programs,
) -> None:
    start(children, "print('first'); print('the last words'); exit(7)")
    with pytest.raises(Failure, match=r"p has ended 3 times .*exit code 7.*the last words"):
        children.wait(lambda: False, TIMEOUT_S)
    assert children.restarts == 3
    assert all(code == 7 and "the last words" in words for code, words in children.exits)


def test_child_process_reports_are_in_order_and_other_output_is_logged(children: Programs) -> None:
    output = ['["a", 1]', "words", '{"no": "list"}', "7", "[]", '["b"]']
    start(children, f"print(*{output!r}, sep=chr(10))", SLEEP)
    assert children.wait(lambda: len(children.events) == 2, TIMEOUT_S)
    assert children.events == [["a", 1], ["b"]]
    until(lambda: children.log("p").read_text().split("\n")[:4] == output[1:5])
    children.remove_logs()
    assert not children.log("p").exists()


def orphan_of(children: Programs) -> psutil.Process:
    assert children.wait(lambda: bool(children.events), TIMEOUT_S)
    return psutil.Process(children.events[0][1])


def is_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_supervisor_close_ends_orphaned_descendants(children: Programs) -> None:
    start(children, LEAVES_AN_ORPHAN + SLEEP)
    orphan = orphan_of(children)
    children.close()
    assert is_gone(orphan)


def test_child_process_that_exits_leaves_no_descendants(children: Programs) -> None:
    start(children, LEAVES_AN_ORPHAN, SLEEP)
    orphan = orphan_of(children)
    until(lambda: children.restarts)
    assert is_gone(orphan)


def test_child_process_with_descendants_that_do_not_end_is_reported(
    children: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stuck(leader: int) -> None:
        raise Failure(f"Processes {[leader]} do not end.")

    with monkeypatch.context() as patch:
        patch.setattr(supervisor, "end_session", stuck)
        start(children, "exit(7)", SLEEP)
        with pytest.raises(Failure, match="do not end"):
            children.wait(lambda: False, 5.0)
    assert children.restarts == 0


def test_child_process_that_cannot_be_restarted_raises_the_reason(
    children: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(children, "import time; time.sleep(0.3); exit(7)")

    def no_process(*_: Any, **__: Any) -> None:
        raise BlockingIOError("fork: try again")

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", no_process)
        with pytest.raises(Failure, match="fork: try again"):
            children.wait(lambda: False, 5.0)


def test_supervisor_close_with_one_stuck_child_ends_the_other_children(
    children: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    start(children, SLEEP)
    children.start("q")
    processes = {name: children.running(name) for name in children.names}
    end_session = supervisor.end_session

    def stuck(leader: int) -> None:
        if leader == processes["p"].pid:
            raise Failure(f"Processes {[leader]} do not end.")
        end_session(leader)

    with monkeypatch.context() as patch:
        patch.setattr(supervisor, "end_session", stuck)
        with pytest.raises(Failure, match="do not end"):
            children.close()
    assert is_gone(processes["q"])
