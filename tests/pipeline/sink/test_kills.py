"""Queries whose processes are killed by SIGKILL, on a cluster whose nodes are killed, too.

    pytest -m spark_slow tests/pipeline

Each death costs the start of a JVM, so this is not part of the default run.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.client import BlockingAdmin
from oncelog.deploy.cluster.local_cluster import Cluster

from ...interop.client_peers import KAFKA, KAFKA_V1, KAFKAS, OURS
from ...interop.kafka_peer import KafkaPeer, is_enabled
from ..standalone import standalone
from . import job as sink_job
from .job import COUNTS, POINTS, Job, write_input, write_times
from .output import assert_once

pytestmark = [pytest.mark.spark_slow, pytest.mark.xdist_group("spark")]
RUN_S = 900  # a busy machine takes minutes to start a JVM
STATE = "spark.sql.streaming.stateStore"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SPECULATION = {"": "true", ".interval": "50ms", ".quantile": "0.5", ".multiplier": "1.1"}


Nodes = Cluster | KafkaPeer
FROM_TASKS = [
    (OURS, "prepared"),
    (OURS, "transactional"),
    pytest.param(KAFKA, "transactional", marks=pytest.mark.kafka),
    pytest.param(KAFKA_V1, "transactional", marks=pytest.mark.kafka),
]
in_modes_of_tasks = pytest.mark.parametrize(("nodes", "mode"), FROM_TASKS, indirect=["nodes"])
in_all_modes = pytest.mark.parametrize(
    ("nodes", "mode"), [*FROM_TASKS, (OURS, "driver")], indirect=["nodes"]
)


@pytest.fixture(scope="module")
def nodes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Nodes]:
    folder, name = tmp_path_factory.mktemp("kills"), getattr(request, "param", OURS)
    if name == OURS:
        with Cluster(nodes=3, data=folder / "data") as running:
            yield running
    elif not is_enabled():
        pytest.skip("ONCELOG_KAFKA is not 1")
    else:
        with KafkaPeer(folder, nodes=3, **KAFKAS[name]) as peer:
            yield peer


def new_job(nodes: Nodes, folder: Path, **fields: object) -> Job:
    topic = f"out-{os.urandom(4).hex()}"
    with BlockingAdmin(nodes.bootstrap) as admin:
        admin.create_topic(topic, partitions=3, replication_factor=3)
    return Job(nodes.bootstrap, topic, str(folder), sink_id=topic, **fields)  # type: ignore[arg-type]


def begin(job: Job) -> "subprocess.Popen[bytes]":
    program = str(Path(sink_job.__file__))
    with open(Path(job.folder) / "log", "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-P", program, job.text()], stdout=log, stderr=log, cwd=job.folder
        )


def end_of(job: Job, process: "subprocess.Popen[bytes]") -> int:
    try:
        return process.wait(RUN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError((Path(job.folder) / "log").read_text()[-4000:]) from None


def run(job: Job) -> int:
    return end_of(job, begin(job))


@in_all_modes
def test_a_driver_and_its_jvm_are_killed_at_each_point(
    nodes: Nodes, tmp_path: Path, mode: str
) -> None:
    points = POINTS if mode != "driver" else (POINTS[1], POINTS[2], POINTS[4])
    deaths = {point: batch for batch, point in enumerate(points, 1)}
    job = new_job(nodes, tmp_path, mode=mode, deaths=deaths)
    values = write_input(job, batches=len(points) + 2)
    for point in points:
        assert run(job) == -signal.SIGKILL, (tmp_path / "log").read_text()[-4000:]
        assert job.mark(point).exists()
    assert run(job) == 0, (tmp_path / "log").read_text()[-4000:]
    assert_once(nodes.bootstrap, job.topic, values)


def test_state_in_rocksdb_with_checkpoint_ids_goes_on(nodes: Cluster, tmp_path: Path) -> None:
    """The second format names each commit of the state in Spark's commit log, by a random id."""
    points = (POINTS[4], POINTS[2])
    deaths = {point: batch for batch, point in enumerate(points)}
    confs = {f"{STATE}.providerClass": ROCKSDB, f"{STATE}.checkpointFormatVersion": "2"}
    job = new_job(nodes, tmp_path, deaths=deaths, is_stateful=True, confs=confs)
    write_times(job)
    for _ in points:
        assert run(job) == -signal.SIGKILL, (tmp_path / "log").read_text()[-4000:]
    assert run(job) == 0, (tmp_path / "log").read_text()[-4000:]
    assert_once(nodes.bootstrap, job.topic, COUNTS)


@in_modes_of_tasks
def test_an_executor_is_killed_in_the_middle_of_a_task(
    nodes: Nodes, tmp_path: Path, mode: str
) -> None:
    master = "local-cluster[2,1,1024]"
    job = new_job(nodes, tmp_path, mode=mode, deaths={"mid-write": 1}, master=master)
    values = write_input(job, batches=3)
    assert run(job) == 0, (tmp_path / "log").read_text()[-4000:]
    assert job.mark("mid-write").exists()
    assert_once(nodes.bootstrap, job.topic, values)


@in_modes_of_tasks
def test_a_speculative_twin_writes_what_its_brother_writes(
    nodes: Nodes, tmp_path: Path, mode: str
) -> None:
    with standalone(tmp_path) as spark:
        confs = {f"spark.speculation{name}": value for name, value in SPECULATION.items()}
        confs["spark.executor.memory"] = "512m"
        job = new_job(nodes, tmp_path, mode=mode, twin=1, master=spark.url, confs=confs)
        values = write_input(job, batches=3)
        assert run(job) == 0, (tmp_path / "log").read_text()[-4000:]
    assert all(job.mark(f"attempt-{number}").exists() for number in range(2))
    assert_once(nodes.bootstrap, job.topic, values)


@in_modes_of_tasks
@pytest.mark.parametrize("point", ["before the decision", "mid-roll-forward"])
def test_a_paused_driver_wakes_when_another_one_has_its_place(
    nodes: Nodes, tmp_path: Path, point: str, mode: str
) -> None:
    job = new_job(nodes, tmp_path, mode=mode, pauses_at=point)
    values = write_input(job, batches=3)
    zombie = begin(job)
    until = time.monotonic() + RUN_S
    while not job.mark(point).exists():
        assert zombie.poll() is None, (tmp_path / "log").read_text()[-4000:]
        assert time.monotonic() < until
        time.sleep(0.1)
    try:
        assert run(job) == 0, (tmp_path / "log").read_text()[-4000:]
    finally:
        os.kill(zombie.pid, signal.SIGCONT)
    assert end_of(job, zombie) == 1
    assert "SinkStopped" in (tmp_path / "log").read_text()
    assert_once(nodes.bootstrap, job.topic, values)


@in_all_modes
def test_nodes_are_killed_while_a_query_runs(nodes: Nodes, tmp_path: Path, mode: str) -> None:
    job = new_job(nodes, tmp_path, mode=mode)
    values = write_input(job, batches=8)
    process = begin(job)
    kills = 0
    roles = (f"leader:{job.topic}/0", f"txn:oncelog.spark.{job.sink_id}.ctl", "controller")
    while not Path(job.checkpoint, "offsets", "0").exists():
        assert process.poll() is None, (tmp_path / "log").read_text()[-4000:]
        time.sleep(0.1)
    while process.poll() is None and kills < 9:
        if isinstance(nodes, Cluster):
            node = nodes.kill(roles[kills % len(roles)])
        else:
            node = kills % 3 + 1
            nodes.kill(node)
        kills += 1
        time.sleep(1.5)
        nodes.start(node)
        time.sleep(1)
    assert end_of(job, process) == 0, (tmp_path / "log").read_text()[-4000:]
    assert kills >= 2
    assert_once(nodes.bootstrap, job.topic, values)
