"""Test the commands that start, stop, kill and pause nodes, against real nodes."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from oncelog.cli import main
from oncelog.deploy.cluster import ports
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.node_process import NodeProcess, end_nodes

from ...present import present

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(3, data=tmp_path_factory.mktemp("cluster") / "data") as running:
        running.ask(lambda admin: admin.create_topic("orders", partitions=3, replication_factor=3))
        running.wait_for_isr("orders", 3)
        yield running


@pytest.fixture
def whole(cluster):
    yield cluster
    cluster.heal()
    cluster.wait_for_isr("orders", 3)


def run(*arguments: str, cluster: Cluster | None = None) -> int:
    return main.run([*arguments, *(["--data", str(cluster.data)] if cluster else [])])


def nodes_with(text: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "oncelog.node" in command and any(text in part for part in command):
            found.append(process)
    return found


def test_killed_node_has_no_process_and_its_port_refuses_connections(whole):
    leader = whole.leader("orders", 0)
    pid = whole.node(leader).find().pid
    assert whole.kill("leader:orders/0") == leader
    assert not psutil.pid_exists(pid)
    assert ports.is_refused(whole.file.entry(leader).port)
    assert whole.node(leader).status().state == "down"
    with pytest.raises(Failure, match="not running"):
        whole.kill(leader)
    whole.start(leader)
    assert whole.node(leader).owns_its_port(whole.node(leader).find().pid)
    with pytest.raises(Failure, match="is already running"):
        whole.start(leader)


def test_paused_node_has_a_stopped_process_until_it_is_resumed(whole):
    node = whole.pause("random")
    assert whole.node(node).status().state == "paused"
    assert psutil.Process(whole.node(node).find().pid).status() == psutil.STATUS_STOPPED
    assert whole.resume("random") == node
    assert whole.node(node).status().state == "running"


def test_stopped_controller_node_ends_and_is_down(whole):
    node = whole.stop("controller")
    assert whole.node(node).status().state == "down"


def test_second_up_on_a_running_directory_is_refused_and_leaves_its_nodes_running(cluster, capsys):
    assert run("up", cluster=cluster) == 1
    assert "A cluster runs in" in capsys.readouterr().err
    assert {status.state for status in cluster.status()} == {"running"}


def test_up_with_a_port_in_use_is_refused_and_names_the_process(cluster, tmp_path):
    port = cluster.file.nodes[0].port
    with pytest.raises(Failure, match=f"Port {port} is taken by python"):
        Cluster(1, data=tmp_path / "other", port=port).up()
    assert not nodes_with(str(tmp_path))


def test_read_commands_with_format_json_print_valid_json(cluster, capsys):
    assert run("ps", "--format", "json", cluster=cluster) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["node"] for row in rows] == [1, 2, 3]
    assert [row["role"] for row in rows].count("controller") == 1
    assert run("topic", "describe", "orders", "--format", "json", cluster=cluster) == 0
    described = json.loads(capsys.readouterr().out)
    assert [len(p["isr"]) for p in described["partitions"]] == [3, 3, 3]
    assert run("doctor", "--format", "json", cluster=cluster) == 0
    assert run("env", "--format", "json", cluster=cluster) == 0
    assert run("topic", "describe", "nosuch", cluster=cluster) == 1
    assert "nosuch" in capsys.readouterr().err


def test_lines_produced_by_the_command_are_consumed_and_dumped_from_the_log(
    cluster, capsys, monkeypatch
):
    lines = "".join(f"k{i}:v{i}\n" for i in range(500)).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert run("produce", "orders", "--key-separator", ":", cluster=cluster) == 0
    assert "500 records acknowledged" in capsys.readouterr().err
    assert run("consume", "orders", "--format", "json", cluster=cluster) == 0
    read = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {r["key"]: r["value"] for r in read} == {f"k{i}": f"v{i}" for i in range(500)}
    assert len(read) == 500
    assert run("log", "dump", "orders/0", "--format", "json", cluster=cluster) == 0
    dumped = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(b["records"] for b in dumped) == sum(r["partition"] == 0 for r in read)
    assert all(b["producer_id"] >= 0 and b["problem"] is None for b in dumped)


def test_topic_delete_command_reports_the_result_for_each_topic(cluster, capsys):
    for name in ("t1", "t2"):
        assert run("topic", "create", name, cluster=cluster) == 0
    assert run("topic", "delete", "nosuch", "t1", "t2", cluster=cluster) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[2].startswith("not deleted: nosuch. ") and told[3:] == ["deleted t1", "deleted t2"]


def test_partition_and_slow_commands_report_their_link_faults_in_ps(whole, capsys):
    whole.kill(2)
    assert run("partition", "1,2/3", cluster=whole) == 1
    assert "Nothing was cut: node 2 is down" in capsys.readouterr().err
    whole.start(2)
    assert run("partition", "1,2/3", cluster=whole) == 0
    assert run("slow", "1", "20ms", cluster=whole) == 0
    capsys.readouterr()
    assert run("ps", "--format", "json", cluster=whole) == 0
    told = {row["node"]: row["faults"] for row in json.loads(capsys.readouterr().out)}
    assert told == {1: "20 ms late; cut from 3", 2: "cut from 3", 3: "cut from 1,2"}
    assert run("doctor", "--format", "json", cluster=whole) == 1
    [links] = [c for c in json.loads(capsys.readouterr().out) if c["check"] == "links"]
    assert links["state"] == "bad" and "node 2: cut from 3" in links["found"]
    assert links["advice"] == f"oncelog heal --data {whole.data}"


class Impatient(NodeProcess):
    """A node process that is killed at once, without time for a clean stop, if it is node 2."""

    def terminate(self, timeout_s=30.0):
        return super().terminate(0.0 if self.node_id == 2 else timeout_s)


def test_node_restarted_by_a_fault_during_down_is_ended_too(tmp_path, monkeypatch):
    kill, started = NodeProcess.kill, list[int]()
    with Cluster(1, data=tmp_path / "data") as cluster:

        def kill_and_start(node: NodeProcess) -> None:
            kill(node)
            if not started:
                started.append(cluster.start(1))

        monkeypatch.setattr(NodeProcess, "kill", kill_and_start)
        end_nodes([cluster.node(1)], is_graceful=False)
        assert started == [1] and cluster.node(1).find(thorough=True) is None


@pytest.mark.in_turn
def test_node_first_started_by_a_fault_during_down_is_ended_too(tmp_path, monkeypatch):
    kill, spawned = NodeProcess.kill, list[int]()
    with Cluster(3, data=tmp_path / "data") as cluster:
        cluster.kill(2)

        def kill_and_spawn(node: NodeProcess) -> None:
            kill(node)
            if node.node_id == 1:
                cluster.node(2).spawn()
                spawned.append(2)

        monkeypatch.setattr(NodeProcess, "kill", kill_and_spawn)
        end_nodes([cluster.node(1), cluster.node(2)], is_graceful=False)
        assert spawned == [2] and cluster.node(2).find(thorough=True) is None


def test_node_that_a_fault_would_start_after_down_stays_down(tmp_path):
    with Cluster(1, data=tmp_path / "data") as cluster:
        cluster.kill(1)
        cluster.down()
        with pytest.raises(Failure, match="ended"):
            cluster.start(1)
        assert cluster.node(1).find(thorough=True) is None
        assert not cluster.peer_directory.exists()
        cluster.up()
        assert cluster.status()[0].state == "running"


def test_node_that_does_not_stop_is_killed_and_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Cluster, "node_type", Impatient)
    with Cluster(3, data=tmp_path / "data") as running:
        pid = present(running.node(2).find()).pid
        assert run("down", cluster=running) == 0
    assert not psutil.pid_exists(pid)
    said = capsys.readouterr()
    said = said.out + said.err
    assert "node 2 did not stop by itself and was killed" in said
    assert "node 1 did" not in said and "node 3 did" not in said


def test_up_command_killed_midway_leaves_only_nodes_that_down_finds(tmp_path):
    data = tmp_path / "killed"
    command = [sys.executable, "-m", "oncelog.cli", "up", "-n", "3", "--data", str(data)]
    up = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 20
    while not nodes_with(str(data)):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    for guardian in psutil.Process(up.pid).children():
        if "guardian_process" in " ".join(guardian.cmdline()):
            guardian.kill()  # else nothing would be left
    os.kill(up.pid, signal.SIGKILL)
    up.wait()
    assert nodes_with(str(data))
    while True:  # a child of a killed starter that has not become a node yet still holds its lock
        assert time.monotonic() < deadline
        with pytest.raises(Failure) as refusal:
            Cluster(3, data=data).up()
        if "Another oncelog command" not in str(refusal.value):
            break
        time.sleep(0.01)
    assert "half started" in str(refusal.value)
    for file in data.glob("node-*/node.pid"):
        file.unlink()  # purge works even without the pid files
    Cluster.open(data).down(purge=True)
    assert not nodes_with(str(data))
    assert not data.exists()
