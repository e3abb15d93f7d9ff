"""Test runs of pytest with the plugin, in projects of their own."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import psutil
import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.pytest_plugin.handle import read_marker

from ...programs import printed_by

SESSION = """
    import time

    import pytest
    from oncelog.client import BlockingProducer
    from oncelog.proof.pytest_plugin import faults

    def producer(oncelog, name):
        return BlockingProducer(oncelog.bootstrap, transactional_id=oncelog.name(name))
"""


@pytest.fixture(autouse=True)
def own_temporary_directory(monkeypatch: pytest.MonkeyPatch, tmp_path_factory) -> Iterator[Path]:
    """Use a new directory for the clusters of the inner runs, so that leftovers can be found."""
    short = Path(tempfile.mkdtemp(prefix="olp"))  # sockets want short paths
    monkeypatch.setenv("TMPDIR", str(short))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    yield short
    left = wait_until_clean(short)
    assert not left, f"left behind: {left}"
    short.rmdir()


def left_behind(directory: Path) -> list[str]:
    """Return the files in the directory, and the running processes started with its path."""
    found = [str(p) for p in directory.iterdir() if not p.name.startswith("pytest-")]
    for process in psutil.process_iter(["cmdline"]):
        command = " ".join(process.info["cmdline"] or [])
        if str(directory) in command:
            found.append(command)
    return found


def wait_until_clean(directory: Path, timeout_s: float = 20.0) -> list[str]:
    deadline = time.monotonic() + timeout_s
    while (left := left_behind(directory)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "no:xdist", *arguments)


# --- plain parts


def test_plugin_is_registered_by_the_wheel():
    (found,) = [e for e in entry_points(group="pytest11") if e.name == "oncelog"]
    assert found.value == "oncelog.proof.pytest_plugin.plugin"


def test_plugin_marker_arguments_are_validated():
    assert read_marker((), {"faults": "kill, stop", "seed": 7}).faults == ("kill", "stop")
    with pytest.raises(Failure, match="'explode' is no fault; there are kill, stop"):
        read_marker((), {"faults": "explode"})
    with pytest.raises(Failure, match="has no 'fault'; it has nodes, faults, seed,"):
        read_marker((), {"fault": "kill"})
    with pytest.raises(Failure, match="The marker is oncelog"):
        read_marker(("kill",) * 6, {})


def test_plugin_module_imports_only_the_version_module_of_oncelog_at_first():
    code = """
import sys
import pytest
before = set(sys.modules)
import oncelog.proof.pytest_plugin.plugin
print(sorted(sys.modules.keys() - before))
"""
    modules = printed_by([sys.executable, "-c", code])
    packages = "'oncelog', 'oncelog.proof', 'oncelog.proof.pytest_plugin'"
    assert (
        modules.strip() == f"[{packages}, 'oncelog.proof.pytest_plugin.plugin', 'oncelog.version']"
    )


def test_plugin_marker_is_registered(pytester):
    result = run(pytester, "--markers")
    result.stdout.fnmatch_lines(["@pytest.mark.oncelog(nodes=3, faults=None, *"])


# --- real clusters


@pytest.mark.cluster
@pytest.mark.in_turn
def test_plugin_tests_share_a_cluster_that_is_reset_between_tests(pytester):
    pytester.makepyfile(
        SESSION
        + """
    seen = []

    def test_one(oncelog, oncelog_cluster):
        assert oncelog.cluster is oncelog_cluster
        topic = oncelog.topic("orders", partitions=2)
        seen.append((topic, oncelog.bootstrap))
        p = producer(oncelog, "app")
        p.init_transactions()
        p.begin_transaction()
        p.send(topic, b"1")
        p.commit_transaction()
        p.close()
        oncelog.partition([1], [2, 3])
        oncelog.kill(oncelog.leader(topic, 0))

    def test_other(oncelog):
        topic = oncelog.topic("orders", partitions=2)
        assert (topic, oncelog.bootstrap) != seen[0]
        assert oncelog.bootstrap == seen[0][1]
        assert [s.state for s in oncelog.cluster.status()] == ["running"] * 3
        assert seen[0][0] not in {p.topic for p in oncelog.ask(lambda a: a.describe_topics(None))}

    def test_own(oncelog_factory):
        cluster = oncelog_factory(nodes=1, config={"log.retention.ms": 1000})
        assert cluster.node_ids == [1]
        assert cluster.bootstrap != seen[0][1]
"""
    )
    run(pytester).assert_outcomes(passed=3)


@pytest.mark.cluster
@pytest.mark.in_turn
def test_plugin_failure_shows_the_timeline_and_the_open_transactions(pytester):
    pytester.makepyfile(
        SESSION
        + """
    kept = []

    def leave_open(oncelog):
        topic = oncelog.topic()
        p = producer(oncelog, "app")
        p.init_transactions()
        p.begin_transaction()
        p.send(topic, b"1").result()
        kept.append(p)

    @pytest.mark.oncelog(nodes=1)
    def test_leaks(oncelog):
        leave_open(oncelog)

    @pytest.mark.oncelog(nodes=1)
    def test_next(oncelog):
        listed = oncelog.ask(lambda a: a.transactions.list_transactions(states=["Ongoing"]))
        assert listed == []

    @pytest.mark.oncelog(nodes=1, allow_open=True)
    def test_may(oncelog):
        leave_open(oncelog)

    @pytest.mark.oncelog(nodes=1, faults="kill,slow", seed=7)
    def test_fails(oncelog):
        leave_open(oncelog)
        oncelog.wait_for_faults(2)
        oncelog.note("half of it is written")
        while oncelog.cluster.status()[0].state == "running":  # until it is killed once more
            time.sleep(0.01)
        assert 1 + 1 == 3

    @pytest.fixture
    def no_fault_soon(monkeypatch):
        monkeypatch.setattr(faults, "FIRST_DELAY_S", (600.0, 600.0))

    @pytest.mark.oncelog(nodes=1, faults="kill", seed=7)
    def test_is_too_short(no_fault_soon, oncelog):
        pass

    @pytest.mark.oncelog(faults="kill")
    def test_forgets():
        pass

    @pytest.mark.oncelog(faults="explode")
    def test_errs(oncelog):
        pass

    @pytest.mark.oncelog(nodes=2)
    def test_two(oncelog):
        pass

    @pytest.mark.oncelog(nodes=1)
    def test_fails_without_faults(oncelog):
        raise OSError("of its own")
"""
    )
    result = run(pytester)
    result.assert_outcomes(passed=4, failed=2, errors=5)
    told = result.stdout.str()
    assert "::test_fails_without_faults --oncelog-seed" not in told and "its data" not in told
    assert "plan.py" not in told and "During handling" not in told
    result.stdout.fnmatch_lines([
        "*ERROR at teardown of test_leaks*",
        "The test left a transaction open. Commit or abort it, then close its producer.",
        "t1-app has had a transaction open for * s (producer *, epoch *).",
        "*partitions *t1-topic/0*",
        "The test ended after *, before a fault was injected, *",
        "*The marker `oncelog` needs the fixture `oncelog`. Request the fixture too.",
        "*'explode' is no fault; there are kill, stop, pause*",
        "*Two nodes are worse than one*",
        "*assert (1 + 1) == 3*",
        "*- oncelog timeline -*",
        "* 0.00 s  nodes ?1? serve, seed 7",
        "* s  killed node 1: pid gone, port refuses",
        "* s  started node 1: it serves",
        "* s  half of it is written",
        "* s  started node 1: it serves",
        "* s  nodes now: 1 running",
        "*- oncelog open transactions -*",
        "t4-app has had a transaction open for *",
        "*- oncelog node 1, its log since the test began -*",
        "*- oncelog: the same faults again -*",
        "python -m pytest *::test_fails --oncelog-seed=7",
    ])  # fmt: skip


@pytest.mark.chaos
def test_plugin_example_of_the_page_runs_as_shown(pytester):
    page = (Path(__file__).parents[3] / "docs" / "testing.md").read_text(encoding="utf-8")
    pytester.makepyfile(page.split("```python\n")[1].split("```")[0])
    result = run(pytester)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["The test left a transaction open. *", "* s  killed node *"])


# --- nothing is left behind (see `own_temporary_directory`, too)


WAITS = """
    import time
    import pytest

    @pytest.mark.oncelog(nodes=1, faults="pause", seed=1)
    def test_waits(oncelog, pytestconfig):
        (pytestconfig.rootpath / "runs").write_text(oncelog.bootstrap)
        time.sleep(300)
"""


def start_waiting(pytester: pytest.Pytester) -> subprocess.Popen[bytes]:
    pytester.makepyfile(WAITS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    process = subprocess.Popen(command, cwd=pytester.path, start_new_session=True,
                               stdout=subprocess.DEVNULL)  # fmt: skip
    deadline = time.monotonic() + 60
    while not (pytester.path / "runs").exists():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    return process


@pytest.mark.in_turn
@pytest.mark.cluster
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_plugin_run_interrupted_leaves_no_process(pytester, own_temporary_directory, number):
    process = start_waiting(pytester)
    assert left_behind(own_temporary_directory)
    os.kill(process.pid, number)
    process.wait(60)
    assert wait_until_clean(own_temporary_directory) == []


@pytest.mark.in_turn
@pytest.mark.cluster
def test_plugin_cluster_with_an_invalid_setting_reports_the_setting_and_does_not_start(pytester):
    pytester.makepyfile(
        """
    def test_cannot(oncelog_factory):
        oncelog_factory(nodes=1, config={"log.retention.ms": "soon"})
"""
    )
    result = run(pytester)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*value soon for *log.retention.ms*Nothing was started*"])


@pytest.mark.cluster
@pytest.mark.in_turn
def test_plugin_workers_without_extras_have_their_own_clusters(pytester, own_temporary_directory):
    pytester.makeconftest(
        """
    import sys

    class Refuse:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in ("numpy", "pyarrow", "confluent_kafka", "hdrhistogram"):
                raise ImportError(f"{name} is an extra")

    sys.meta_path.insert(0, Refuse())
"""
    )
    pytester.makepyfile(
        """
    import pathlib, pytest

    @pytest.mark.oncelog(nodes=1)
    @pytest.mark.parametrize("n", range(4))
    def test_it(oncelog, n, worker_id, pytestconfig):
        pathlib.Path(pytestconfig.rootpath, f"at-{worker_id}").write_text(oncelog.bootstrap)
        oncelog.topic()
        assert n < 3
"""
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2", "--oncelog-keep")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*- oncelog: its data -*", "*/oncelog-pytest-*/cluster-1"])
    addresses = [file.read_text() for file in pytester.path.glob("at-gw*")]
    assert len(set(addresses)) == len(addresses) >= 1
    kept = list(own_temporary_directory.glob("oncelog-pytest-*"))
    assert len(kept) == len(addresses)
    for directory in kept:
        assert (directory / "cluster-1" / "node-1" / "node.log").exists()
    assert not any("oncelog.node" in text for text in left_behind(own_temporary_directory))
    for directory in kept:
        shutil.rmtree(directory)
