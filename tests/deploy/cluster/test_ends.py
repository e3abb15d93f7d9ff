"""Test that no process of a cluster outlives its program, and that all clusters are found."""

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from oncelog.cli import main
from oncelog.cli.bench import _judged
from oncelog.deploy.cluster import layout, local_cluster
from oncelog.deploy.cluster.ends import leftovers
from oncelog.deploy.cluster.ends.guardian import guardian
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster

from ...left import left_in
from ...waiting import until

pytestmark = pytest.mark.cluster
IN_A_BLOCK = """
import time
from oncelog import Cluster

with Cluster(1) as cluster:
    print(cluster.data, flush=True)
    time.sleep(300)
"""


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a new temporary directory, in which the test finds all files that are left behind."""
    short = Path(tempfile.mkdtemp(prefix="ole"))  # sockets want short paths
    monkeypatch.setenv("TMPDIR", str(short))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    yield short
    shutil.rmtree(short)


def test_cluster_block_ended_by_sigterm_leaves_no_process(scratch: Path) -> None:
    command = [sys.executable, "-c", IN_A_BLOCK]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None and program.stdout.readline()
        assert any("oncelog.node" in each for each in left_in(scratch))
        program.terminate()
        assert program.wait(30) == -signal.SIGTERM
    until(lambda: not left_in(scratch), lambda: f"{left_in(scratch)}")


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGHUP, marks=pytest.mark.chaos), signal.SIGKILL]
)
def test_up_command_interrupted_midway_leaves_no_process_and_no_data_directory(
    scratch: Path, number: signal.Signals
) -> None:
    data = scratch / "deep" / "data"
    command = [sys.executable, "-m", "oncelog.cli", "up", "-n", "1", "--data", str(data)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as up:
        until(lambda: any("oncelog.node" in each for each in left_in(scratch)))
        up.send_signal(number)
        _, told = up.communicate(timeout=60)
    assert up.returncode in (130, -signal.SIGKILL) and "Traceback" not in told
    until(lambda: not data.exists())
    until(lambda: set(left_in(scratch)) <= {str(data.parent)}, lambda: f"{left_in(scratch)}")
    assert data.parent.exists() == (number == signal.SIGKILL)


KILLED_BEFORE_ITS_FILE = """
import os, signal, sys
from oncelog.deploy.cluster import layout, local_cluster

def be_killed(*_):
    assert os.listdir(sys.argv[1]) == [layout.LOCK_FILE]
    os.kill(os.getpid(), signal.SIGKILL)

setattr({replaced}, be_killed)
local_cluster.Cluster(1, data=sys.argv[1]).up()
"""


@pytest.mark.parametrize("moment", ['local_cluster.Cluster, "_file_to_start"', 'layout, "write"'])
def test_up_killed_before_its_cluster_file_leaves_no_directory(scratch: Path, moment: str) -> None:
    program = KILLED_BEFORE_ITS_FILE.format(replaced=moment)
    up = subprocess.run([sys.executable, "-c", program, str(scratch / "data")], check=False)
    assert up.returncode == -signal.SIGKILL
    until(lambda: not left_in(scratch), lambda: f"{left_in(scratch)}")


def test_up_that_fails_and_cannot_end_its_nodes_leaves_them_to_the_guardian(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise Failure("Processes [1] do not end.")

    cluster = Cluster(1, data=scratch / "data")
    monkeypatch.setattr(Cluster, "_start", fail)
    with monkeypatch.context() as patch:
        patch.setattr(local_cluster, "end_nodes", fail)
        with pytest.raises(Failure):
            cluster.up()
    assert ("cluster", str(cluster.data)) in guardian._kept
    cluster.down(purge=True)
    assert ("cluster", str(cluster.data)) not in guardian._kept


def test_ps_all_lists_every_cluster_and_down_all_ends_a_node_without_cluster_files(
    scratch: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, bare = scratch / "removed", scratch / "bare"
    command = [sys.executable, "-m", "oncelog.cli", "up", "-n", "1", "--data", str(bare)]
    up = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert up.returncode == 0, up.stderr  # no process that goes on holds the command's pipes
    clusters = [Cluster(1, data=removed), Cluster.open(bare)]
    clusters[0].up()
    for name in ("cluster.json", "node-1/node.pid"):
        (bare / name).unlink()
    assert main.run(["ps", "--all", "--format", "json"]) == 0
    rows = {row["directory"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows[str(removed)]["running"] == rows[str(removed)]["nodes"] == 1
    assert rows[str(bare)]["running"] == 1 and rows[str(bare)]["nodes"] is None

    peers = clusters[0].peer_directory
    assert peers.exists()
    shutil.rmtree(removed)
    until(lambda: clusters[0].node(1).exit_code() is not None)
    assert clusters[0].node(1).exit_code() == 1 and not peers.exists()

    ours = [each for each in leftovers.clusters_of_user() if each.data in (removed, bare)]
    assert [each.data for each in ours] == [bare]
    # clusters of other tests, and of other users, must stay
    monkeypatch.setattr(leftovers, "clusters_of_user", lambda: ours)
    monkeypatch.setattr(leftovers, "end_orphans", lambda: 0)
    assert main.run(["down", "--all", "--purge"]) == 0
    assert not any("oncelog.node" in each for each in left_in(scratch))
    assert clusters[1].node(1).find(thorough=True) is None


def stopped_cluster(data: Path, owner: str) -> None:
    data.mkdir(mode=0o700)
    node = layout.NodeEntry(1, "127.0.0.1", 19_092)
    peers = str(data / "peers")
    layout.write(data, layout.ClusterFile("c", peers, "small", [node], owner=owner))
    layout.node_directory(data, 1).mkdir()


def test_leftover_directory_started_again_by_another_up_is_not_removed(scratch: Path) -> None:
    stopped_cluster(scratch / "data", "second")
    for how in ("purge first", "keep first"):
        leftovers.end_all([("cluster", str(scratch / "data"), how)])
    assert layout.node_directory(scratch / "data", 1).exists()
    both = [(kind, str(scratch / "data"), "purge first") for kind in ("cluster", "directory")]
    leftovers.end_all(both)  # of a temporary one
    assert layout.node_directory(scratch / "data", 1).exists()
    leftovers.end_all([("cluster", str(scratch / "data"), "purge second")])
    assert not (scratch / "data").exists()


@contextmanager
def living_node(directory: Path, file: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process with a node's command line. `file` is relative to `directory`."""
    command = ["-c", "import time; time.sleep(60)", "oncelog.node", "--config", file]
    with subprocess.Popen([sys.executable, *command], cwd=directory) as node:
        try:
            until(lambda: node.pid in [process.pid for _, process in leftovers._nodes()])
            yield node
        finally:
            node.kill()


@pytest.mark.parametrize("obstacle", ["torn file", "lock that is a link"])
def test_leftover_nodes_with_an_unusable_cluster_directory_are_ended(
    scratch: Path, obstacle: str
) -> None:
    stopped_cluster(data := scratch / "data", "first")
    if obstacle == "torn file":
        (data / layout.CLUSTER_FILE).write_text("{")
    else:
        (data / layout.LOCK_FILE).unlink(missing_ok=True)
        (data / layout.LOCK_FILE).symlink_to(scratch / "elsewhere")
    with living_node(scratch, str(data / "node-1" / "server.properties")) as node:
        leftovers.end_all([("cluster", str(data), "purge first")])
        assert node.pid not in [process.pid for _, process in leftovers._nodes()]
    assert layout.node_directory(data, 1).exists()


def test_leftover_search_skips_a_named_pipe_in_place_of_a_cluster_file(scratch: Path) -> None:
    (scratch / "oncelog-x").mkdir()
    os.mkfifo(scratch / "oncelog-x" / layout.CLUSTER_FILE)
    (scratch / "oncelog-y").symlink_to(scratch / "oncelog-x")
    found = [each.data for each in leftovers.clusters_of_user()]
    assert not [data for data in found if scratch in data.parents]


def test_leftover_node_started_with_a_relative_path_is_found(scratch: Path) -> None:
    with living_node(scratch, "node-1/server.properties") as node:
        files = {process.pid: file for file, process in leftovers._nodes()}
        assert files[node.pid] == scratch / "node-1" / "server.properties"


def test_leftover_cluster_with_an_unknown_file_format_keeps_its_nodes_running(
    scratch: Path,
) -> None:
    stopped_cluster(scratch / "data", "first")
    file = scratch / "data" / layout.CLUSTER_FILE
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 99}))
    process = mock.Mock()
    with pytest.raises(Failure, match="format 99"):
        leftovers.end_found(leftovers.FoundCluster(scratch / "data", {1: process}), is_purged=True)
    assert process.mock_calls == []


def test_down_all_with_one_cluster_that_cannot_be_ended_ends_the_other_clusters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def end(found: leftovers.FoundCluster, *, is_purged: bool) -> bool:
        if found.data.name == "closed":
            raise PermissionError(errno.EACCES, "", str(found.data / ".lock"))
        return is_purged

    found = [leftovers.FoundCluster(Path(name)) for name in ("/closed", "/open")]
    monkeypatch.setattr(leftovers, "clusters_of_user", lambda: found)
    monkeypatch.setattr(leftovers, "end_orphans", lambda: 2)
    monkeypatch.setattr(leftovers, "end_found", end)
    assert main.run(["down", "--all", "--purge"]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("not ended: /closed: /closed/.lock: Permission denied. ")
    assert told[1] == "did not run: /open, data removed"
    assert told[2].startswith("ended: 2 processes")


def test_demo_with_a_cluster_that_cannot_start_reports_the_reason_and_leaves_no_directory(
    scratch: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        cluster = Cluster(1, port=holder.getsockname()[1])
        with pytest.raises(Failure, match="is taken"):
            _judged(cluster, mock.Mock(), lambda _: None)
    assert capsys.readouterr().err == ""
    assert left_in(scratch) == []
    assert ("directory", str(cluster.data)) not in guardian._kept
