"""Test queries in processes that are killed by SIGKILL, on a cluster with killed nodes.

    pytest -m spark_slow tests/pipeline

Each death costs the start of a JVM, so this is not part of the default run.
"""

import os
import signal
from pathlib import Path

import pytest

from oncelog.client import BlockingAdmin

from ...interop.client_peers import KAFKA, KAFKA_V1, OURS
from ..standalone import standalone
from .job import POINTS, Job, write_input
from .output import assert_once
from .processes import KAFKA_PREPARES, Nodes, QueryProcess, kill_nodes_while

pytestmark = [pytest.mark.spark_slow, pytest.mark.xdist_group("spark")]
SPECULATION = {"": "true", ".interval": "50ms", ".quantile": "0.5", ".multiplier": "1.1"}


FROM_TASKS = [
    (OURS, "prepared"),
    (OURS, "transactional"),
    pytest.param(KAFKA_PREPARES, "prepared", marks=pytest.mark.kafka),
    pytest.param(KAFKA, "transactional", marks=pytest.mark.kafka),
    pytest.param(KAFKA_V1, "transactional", marks=pytest.mark.kafka),
]
in_modes_of_tasks = pytest.mark.parametrize(("nodes", "mode"), FROM_TASKS, indirect=["nodes"])
in_all_modes = pytest.mark.parametrize(
    ("nodes", "mode"), [*FROM_TASKS, (OURS, "driver")], indirect=["nodes"]
)


def new_job(nodes: Nodes, folder: Path, **fields: object) -> Job:
    topic = f"out-{os.urandom(4).hex()}"
    with BlockingAdmin(nodes.bootstrap) as admin:
        admin.create_topic(topic, partitions=3, replication_factor=3)
    return Job(nodes.bootstrap, topic, str(folder), sink_id=topic, **fields)  # type: ignore[arg-type]


def begin(job: Job) -> QueryProcess:
    return QueryProcess(job, "job")


def end_of(job: Job, ends_as: int = 0) -> None:
    process = begin(job)
    assert process.end() == ends_as, process.words


@in_all_modes
def test_sink_with_its_driver_killed_at_each_point_writes_every_row_once(
    nodes: Nodes, tmp_path: Path, mode: str
) -> None:
    points = POINTS if mode != "driver" else (POINTS[1], POINTS[2], POINTS[4])
    deaths = {point: batch for batch, point in enumerate(points, 1)}
    job = new_job(nodes, tmp_path, mode=mode, deaths=deaths)
    values = write_input(job, batches=len(points) + 2)
    for point in points:
        end_of(job, -signal.SIGKILL)
        assert job.mark(point).exists()
    end_of(job)
    assert_once(nodes.bootstrap, job.topic, values)


@in_modes_of_tasks
def test_sink_with_an_executor_killed_in_a_task_writes_every_row_once(
    nodes: Nodes, tmp_path: Path, mode: str
) -> None:
    master = "local-cluster[2,1,1024]"
    job = new_job(nodes, tmp_path, mode=mode, deaths={"mid-write": 1}, master=master)
    values = write_input(job, batches=3)
    end_of(job)
    assert job.mark("mid-write").exists()
    assert_once(nodes.bootstrap, job.topic, values)


@in_modes_of_tasks
def test_sink_with_a_speculative_task_attempt_writes_every_row_once(
    nodes: Nodes, tmp_path: Path, mode: str
) -> None:
    with standalone(tmp_path) as spark:
        confs = {f"spark.speculation{name}": value for name, value in SPECULATION.items()}
        confs["spark.executor.memory"] = "512m"
        job = new_job(nodes, tmp_path, mode=mode, twin=1, master=spark.url, confs=confs)
        values = write_input(job, batches=3)
        end_of(job)
    assert all(job.mark(f"attempt-{number}").exists() for number in range(2))
    assert_once(nodes.bootstrap, job.topic, values)


@in_modes_of_tasks
@pytest.mark.parametrize("point", ["before the decision", "mid-roll-forward"])
def test_sink_driver_that_resumes_after_another_took_over_stops(
    nodes: Nodes, tmp_path: Path, point: str, mode: str
) -> None:
    job = new_job(nodes, tmp_path, mode=mode, pauses_at=point)
    values = write_input(job, batches=3)
    zombie = begin(job)
    zombie.wait_for(job.mark(point))
    try:
        end_of(job)
    finally:
        os.kill(zombie.pid, signal.SIGCONT)
    assert zombie.end() == 1
    assert "SinkStopped" in zombie.words
    assert_once(nodes.bootstrap, job.topic, values)


@in_all_modes
def test_sink_with_killed_brokers_writes_every_row_once(
    nodes: Nodes, tmp_path: Path, mode: str
) -> None:
    job = new_job(nodes, tmp_path, mode=mode)
    values = write_input(job, batches=8)
    process = begin(job)
    process.wait_for(Path(job.checkpoint, "offsets", "0"))
    roles = (f"leader:{job.topic}/0", f"txn:oncelog.spark.{job.sink_id}.ctl", "controller")
    kills = kill_nodes_while(process, nodes, roles)
    assert process.end() == 0, process.words
    assert kills >= 2
    assert_once(nodes.bootstrap, job.topic, values)
