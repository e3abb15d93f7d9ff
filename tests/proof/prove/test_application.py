"""Test that an instance of an application includes all processes that it starts."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from oncelog.deploy.cluster.ends.interrupts import uninterrupted
from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.prove.api import command_of
from oncelog.proof.prove.application import Application
from oncelog.proof.prove.observed import wait_for

TELLS = "import os; print(os.environ['ONCELOG_INSTANCE'], os.environ['KAFKA_BOOTSTRAP_SERVERS'], "
SHELL = ["sh", "-c", f"{sys.executable} -c 'import time; time.sleep(60)' & wait"]
GROUP = "import os, time; os.setpgid(0, 0); print('of a group of my own'); time.sleep(60)"


def application(command: list[str], logs: Path) -> Application:
    return Application(command, logs, lambda name: f"at-{name}", ["a", "b"], ["c"])


@pytest.fixture
def shells(tmp_path: Path) -> Iterator[Application]:
    with closing(application(SHELL, tmp_path)) as made:
        yield made


def processes(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def test_application_instance_gets_its_number_and_address(tmp_path: Path) -> None:
    words = f"{TELLS}os.environ['ONCELOG_IN'], os.environ['ONCELOG_OUT'], '{{bootstrap}} {{in}}')"
    command = [sys.executable, "-c", words + "; import time; time.sleep(60)"]
    with closing(application(command, tmp_path)) as made:
        name = made.add()
        stand_in = made.add(made.known_as(name))
        assert wait_for(lambda: made.words(name) and made.words(stand_in), 20)
        assert made.words(name) == ["1 at-instance-1 a,b c at-instance-1 a,b"]
        assert made.words(stand_in) == ["1 at-instance-2 a,b c at-instance-2 a,b"]
    with pytest.raises(Failure):
        made.start(name)


def test_application_children_are_killed_and_paused_with_their_instance(
    shells: Application,
) -> None:
    name = shells.add()
    pid = shells.running(name).pid
    assert wait_for(lambda: processes(pid), 20)
    (child,) = processes(pid)
    shells.pause(name)
    assert wait_for(lambda: child.status() == psutil.STATUS_STOPPED, 5)
    shells.ensure_running()
    assert wait_for(lambda: child.status() != psutil.STATUS_STOPPED, 5)
    shells.kill(name)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    shells.ensure_running()
    assert shells.running(name).pid != pid
    assert "ended with code" in shells.remove(name)
    shells.ensure_running()
    assert shells.has_ended(name) and shells.instances == []


def test_application_child_in_its_own_process_group_is_paused_too(tmp_path: Path) -> None:
    """Spark's Python workers are in a process group of their own."""
    starts = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {GROUP!r}]).wait()"
    with closing(application([sys.executable, "-c", starts], tmp_path)) as made:
        name = made.add()
        assert wait_for(lambda: made.words(name), 20)
        (child,) = processes(made.running(name).pid)
        made.pause(name)
        assert wait_for(lambda: child.status() == psutil.STATUS_STOPPED, 5)
        made.resume(name)
        assert wait_for(lambda: child.status() != psutil.STATUS_STOPPED, 5)


def test_application_launcher_stop_stops_its_children(shells: Application) -> None:
    name = shells.add()
    pid = shells.running(name).pid
    assert wait_for(lambda: processes(pid), 20)
    (child,) = processes(pid)
    assert shells.stop() == {name: -signal.SIGTERM}
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_application_daemon_process_is_ended_with_its_instance(tmp_path: Path) -> None:
    daemon = "import os, time; os.setsid(); print(os.getpid()); time.sleep(60)"
    starts = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {daemon!r}]).wait()"
    with closing(application([sys.executable, "-c", starts], tmp_path)) as made:
        name = made.add()
        assert wait_for(lambda: made.words(name), 20)
        process = psutil.Process(int(made.words(name)[0]))
    assert wait_for(lambda: not process.is_running() or process.status() == psutil.STATUS_ZOMBIE, 5)


def test_application_instance_that_exits_is_restarted_and_its_last_output_kept(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", f"{TELLS}'x'); raise SystemExit(7)"]
    with closing(application(command, tmp_path)) as made:
        name = made.add()
        assert wait_for(lambda: len(made.exits) > 1, 20)
    assert {(who, code) for _, who, code in made.exits} == {(name, 7)}
    assert f"{name} | 1 at-{name} x" in made.told(name)


def test_application_restart_returns_the_instances_that_did_not_end_by_sigterm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Application, "stop_timeout_s", 1.0)
    hangs = "import signal, os, time; os.environ['ONCELOG_INSTANCE'] == '2' and signal.signal(15, "
    command = [sys.executable, "-c", hangs + "signal.SIG_IGN); print('ready'); time.sleep(60)"]
    with closing(application(command, tmp_path)) as made:
        names = [made.add(), made.add()]
        assert wait_for(lambda: all(made.words(name) for name in names), 20)
        pids = [made.running(name).pid for name in names]
        assert made.restart_all() == ["instance-2"]
        assert all(made.running(n).pid != pid for n, pid in zip(names, pids, strict=True))


def test_application_command_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    for command, words in (
        ([], "Say what to run"),
        (["no-such-program"], "no program"),
        (["--secnods", "9"], "no option --secnods"),
    ):
        with pytest.raises(Failure, match=words):
            application(command, tmp_path)
    with pytest.raises(Failure, match="process of its own"):
        command_of(lambda: None)
    assert command_of("python 'my app.py'") == ["python", "my app.py"]


def test_uninterrupted_block_is_completed_before_a_ctrl_c_within_it_is_raised() -> None:
    done = False
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)
        done = True
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    other = threading.Thread(target=lambda: uninterrupted().__enter__())
    other.start()
    other.join()
