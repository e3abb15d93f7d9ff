"""Test that the watchdog names code that blocks the event loop, unless the process is stopped."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from oncelog.cli.cluster import _node_rows
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.node_process import NodeProcess
from oncelog.deploy.inspect.doctor import examine
from oncelog.deploy.inspect.loop_stalls import stalls_in_log
from oncelog.node.loop_watchdog import Stall, describe
from oncelog.proof.pytest_plugin.handle import ClusterInTest, read_marker
from oncelog.runtime.sliced_work import SlicedWork

from ..programs import run_to_end
from ..waiting import until
from . import stalling_node
from .config.test_broker_config import REQUIRED

DEADLINE_S = 30


async def test_loop_watchdog_names_the_sliced_job_and_its_current_line() -> None:
    seen = []

    def steps() -> Any:
        seen.append(describe(sys._getframe(), None))
        yield

    await SlicedWork().run("search by time", steps())
    assert seen[0].startswith("work search by time, in ")


async def test_loop_watchdog_names_the_task_when_no_activity_is_known() -> None:
    async def run() -> str:
        return describe(None, asyncio.current_task())

    assert await asyncio.create_task(run(), name="heartbeats") == "task heartbeats"
    assert describe(None, None) == "a callback"


FAILING_NODE = """
import signal, sys
from oncelog.node import __main__ as node
from oncelog.node.broker import Broker

class FailingBroker(Broker):
    async def start(self):
        raise ValueError("the port is in use")

code = node.main(sys.argv[1:], make=FailingBroker)
print(code, *signal.getitimer(signal.ITIMER_REAL))
"""


def test_loop_watchdog_alarm_does_not_outlive_a_failed_node(tmp_path: Path) -> None:
    """A leftover alarm would kill the failing process, with exit code -14 instead of 1."""
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in REQUIRED.items()))
    command = [sys.executable, "-c", FAILING_NODE, "--config", file]
    done = run_to_end(command, DEADLINE_S, cwd=tmp_path)
    assert done.stdout == "1 0.0 0.0\n", done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NodeProcess, "program", stalling_node.program)
        with Cluster(nodes=1, data=tmp_path_factory.mktemp("watched") / "cluster") as cluster:
            yield cluster


def loop_metrics(cluster: Cluster) -> dict[str, Any]:
    """Return the node's metrics of its event loop, after retries while the loop is blocked."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            return cluster.ask_node(1, {"op": "metrics"})["loop"]
        except Failure:
            assert time.monotonic() < deadline_s


def order(cluster: Cluster, word: str) -> None:
    new = Path(cluster.data) / "new-order"
    new.write_text(word)
    new.rename(new.with_name(stalling_node.ORDER))
    until(lambda: not new.with_name(stalling_node.ORDER).exists())


@pytest.mark.in_turn
@pytest.mark.cluster
@pytest.mark.parametrize(
    ("word", "name"),
    [("task", "task taking orders"), ("work", "work loading of a group")],
)
def test_loop_watchdog_counts_and_names_code_that_blocks_a_process(
    cluster: Cluster, word: str, name: str
) -> None:
    before = loop_metrics(cluster)["stalls_over_500_ms"]
    order(cluster, word)
    until(lambda: name in loop_metrics(cluster)["last"])
    assert loop_metrics(cluster)["stalls_over_500_ms"] > before
    assert f"by {name}" in cluster.node(1).log.read_text()


@pytest.mark.cluster
def test_loop_watchdog_report_is_shown_by_doctor_ps_and_the_pytest_plugin(cluster: Cluster) -> None:
    handle = ClusterInTest(cluster, read_marker((), {}), seed=1, test="a test", number=1)
    handle.begin()
    before = loop_metrics(cluster)["stalls_over_500_ms"]  # of other tests
    order(cluster, "task")
    until(lambda: loop_metrics(cluster)["stalls_over_500_ms"] > before)
    [problem] = handle.finish(has_failed=False)
    assert problem.startswith("Node 1 did not answer") and "task taking orders" in problem

    [check] = [one for one in examine(Path(cluster.data)) if one.check == "event loop of node 1"]
    assert check.state == "bad" and "the event loop was kept for" in check.found
    [row] = _node_rows(cluster)
    assert row["stall_ms"] >= 500


def test_loop_watchdog_stalls_are_found_in_the_log_of_a_stopped_node(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    long = Stall(wall_s=0.9, cpu_s=0.7, waited_s=0.1, collected_s=0, activity="request Fetch")
    short = Stall(wall_s=0.9, cpu_s=0.2, waited_s=0.5, collected_s=0, activity="request Fetch")
    log.write_text(f"first line\n12:00 WARNING x: {long}\n12:01 WARNING x: {short}\n")
    assert stalls_in_log(log) == [str(long)]
    assert stalls_in_log(log, above_ms=100) == [str(long), str(short)]
    assert stalls_in_log(log, from_byte=log.stat().st_size) == []
    assert stalls_in_log(tmp_path / "none") == []


@pytest.mark.cluster
def test_loop_watchdog_names_a_metadata_command_that_blocks_the_loop(cluster: Cluster) -> None:
    order(cluster, "command")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(DEADLINE_S)
    until(lambda: "command CreateTopics" in str(loop_metrics(cluster)))  # another may be the last


@pytest.mark.cluster
def test_loop_watchdog_ignores_the_time_of_a_stopped_process(cluster: Cluster) -> None:
    before = loop_metrics(cluster)
    process = cluster.node(1).find()
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: process.status() == "stopped")
    time.sleep(2 * stalling_node.STALL_S)  # the process is stopped for so long
    os.kill(process.pid, signal.SIGCONT)
    assert loop_metrics(cluster)["stalls_over_500_ms"] == before["stalls_over_500_ms"]


CONTINUED_LATE = """
import asyncio, os, signal, time
from oncelog.node import loop_watchdog
from oncelog.node.loop_watchdog import LoopWatchdog, STALL_S, TICK_S

async def main():
    for is_continued in (True, False):
        watchdog = LoopWatchdog()
        watchdog.start()
        time.sleep(2 * (TICK_S + STALL_S))
        await asyncio.sleep(0.001)  # the turn is over, and its lateness seen
        if is_continued:
            os.kill(os.getpid(), signal.SIGCONT)
        await asyncio.sleep(3 * TICK_S)
        watchdog.stop()
        print(watchdog.metrics()["stalls"] + watchdog.metrics()["starved"])

asyncio.run(main())
"""


def test_loop_watchdog_ignores_a_stop_with_its_sigcont_handled_by_another_thread() -> None:
    answer = run_to_end([sys.executable, "-c", CONTINUED_LATE], DEADLINE_S)
    assert answer.stdout.split() == ["0", "1"], answer.stderr


@pytest.mark.cluster
def test_background_task_that_fails_is_named_in_the_log_and_stops_the_broker(
    cluster: Cluster,
) -> None:
    process = cluster.node(1).find()
    assert process is not None
    order(cluster, "fail")
    until(lambda: not process.is_running() or process.status() == "zombie")
    log = cluster.node(1).log.read_text()
    assert "the background task 'taking orders' has failed: LookupError" in log
