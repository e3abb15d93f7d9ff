"""Test that waits of fault schedules and supervisors leave no lock held when interrupted."""

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.deploy.faults import engine, supervisor
from oncelog.deploy.faults.engine import FaultContext
from oncelog.deploy.faults.supervisor import Supervisor

from ...interruptions import interrupted

TRACED = engine.__file__, supervisor.__file__, threading.__file__
TIMEOUT_S = 1.0
SOON_S = 0.01
POINTS_MAX = 40  # of a wait, which has more points if the machine is slow
LOCKING = re.compile(r"threading\.(Barrier|Condition|Event|Semaphore|Timer)\(")


def assert_ends(call: Callable[[], object], number: int) -> None:
    """Assert that a call ends in another thread."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive(), f"it hangs after an interruption at point {number}"


def context() -> FaultContext[Any]:
    return FaultContext(cluster=None)


@pytest.mark.parametrize(
    "call",
    [
        lambda context: context.sleep(SOON_S),
        lambda context: context.stopping.set(),
        lambda context: context.fail(ValueError()),
        lambda context: context.miss("kill", "no effect"),
    ],
    ids=["sleep", "stop", "fail", "miss"],
)
def test_fault_context_interrupted_anywhere_still_ends_its_schedules(
    call: Callable[[FaultContext[Any]], object],
) -> None:
    number, is_whole = 0, False
    while not is_whole and number < POINTS_MAX:
        number += 1
        faults = context()
        is_whole = not interrupted(lambda: call(faults), number, TRACED)  # noqa: B023
        assert_ends(lambda: faults.fail(KeyboardInterrupt()), number)  # noqa: B023
        assert faults.stopping.wait(TIMEOUT_S)


def test_wait_of_a_supervisor_interrupted_anywhere_leaves_it_usable(tmp_path: Path) -> None:
    number, is_whole = 0, False
    while not is_whole and number < POINTS_MAX:
        number += 1
        children = Supervisor(tmp_path)
        wait = children.wait
        is_whole = not interrupted(lambda: wait(lambda: False, SOON_S), number, TRACED)  # noqa: B023
        assert_ends(lambda: wait(lambda: True, TIMEOUT_S), number)  # noqa: B023
    assert number > 5


def test_commands_use_no_class_of_threading_whose_lock_an_interruption_leaves_held() -> None:
    root = Path(supervisor.__file__).parents[2]
    files = [
        each for name in ("cli", "deploy", "proof", "ui") for each in (root / name).rglob("*.py")
    ]
    assert len(files) > 100
    assert [str(each) for each in files if LOCKING.search(each.read_text(encoding="utf-8"))] == []
