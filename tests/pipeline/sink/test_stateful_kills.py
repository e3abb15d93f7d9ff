"""Test killed processes with stateful queries, in each format of Spark's state.

    pytest -m spark_slow tests/pipeline/sink/test_stateful_kills.py
    ONCELOG_KAFKA=1 pytest -m "spark_slow and kafka" tests/pipeline/sink/test_stateful_kills.py

Five kinds of queries in three formats run concurrently, each into its own sink. The output equals
the output of a run without kills, row by row. test_query.py breaks some of these queries
by exceptions, one of them in the default run.
"""

import functools
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from oncelog.client import BlockingAdmin

from ...interop.client_peers import OURS
from ..standalone import standalone
from .processes import KAFKA_PREPARES, Nodes, QueryProcess, kill_nodes_while
from .stateful_job import BEFORE_DECISION, MID_ROLL_FORWARD, POINTS, StatefulJob
from .stateful_queries import BATCHES, FORMATS, kind_of, queries_in

pytestmark = [
    pytest.mark.spark_slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.parametrize(
        "nodes", [OURS, pytest.param(KAFKA_PREPARES, marks=pytest.mark.kafka)], indirect=True
    ),
    pytest.mark.parametrize("mode", ["prepared", "transactional"]),
]
SPECULATION = {"": "true", ".interval": "50ms", ".quantile": "0.5", ".multiplier": "1.1"}
Rows = dict[str, list[str]]  # values in order, by query


def new_job(nodes: Nodes, folder: Path, mode: str) -> StatefulJob:
    """Create a job with its files, and topics for this run only."""
    folder = folder / f"{mode}-{os.urandom(4).hex()}"
    folder.mkdir()
    job = StatefulJob(nodes.bootstrap, str(folder), queries_in(*FORMATS), mode)
    job.write_files()
    with BlockingAdmin(nodes.bootstrap) as admin:
        for name in job.names:
            admin.create_topic(job.topic(name), partitions=2, replication_factor=3)
    return job


def begin(job: StatefulJob) -> QueryProcess:
    return QueryProcess(job, "stateful_job")


def run(job: StatefulJob) -> None:
    """Run a job until it ends with success."""
    process = begin(job)
    assert process.end() == 0, process.words


Whole = Callable[[Nodes], Rows]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """Return a function that gives the rows of a run without kills on these nodes."""

    @functools.cache
    def rows_on(nodes: Nodes) -> Rows:
        job = new_job(nodes, tmp_path_factory.mktemp("whole"), "prepared")
        run(job)
        rows = job.rows()
        for name, found in rows.items():
            assert len(found) > 2 * BATCHES, f"{name} has hardly any output"
            assert found == rows[f"rocksdb-2-{kind_of(name)}"], f"{name} is as its format"
        return rows

    return rows_on


def test_stateful_query_with_its_driver_killed_at_each_point_is_exactly_once(
    nodes: Nodes, tmp_path: Path, mode: str, whole: Whole
) -> None:
    job = new_job(nodes, tmp_path, mode)
    for batch, point in enumerate(POINTS, 1):
        process = begin(job.at(point, batch))
        assert process.end() == -signal.SIGKILL, process.words
        for name in job.names:
            assert (job.checkpoint(name) / "offsets" / str(batch)).exists()
            assert not (job.checkpoint(name) / "commits" / str(batch)).exists()
    run(job)
    assert job.rows() == whole(nodes)


def test_stateful_query_with_speculative_attempts_and_killed_executors_is_exactly_once(
    nodes: Nodes, tmp_path: Path, mode: str, whole: Whole
) -> None:
    confs = {f"spark.speculation{name}": value for name, value in SPECULATION.items()}
    confs |= {"spark.executor.memory": "1g", "spark.locality.wait": "0s"}
    with standalone(tmp_path, cores=10, memory="2g") as spark:
        job = new_job(nodes, tmp_path, mode)
        run(job.on(spark.url, confs, twins_in=1, executors_die_in=3))
    assert len(job.marks("executors")) == len(job.names)
    for name in job.names:
        assert len(job.marks(f"twins-{job.topic(name)}")) == 2
    assert job.rows() == whole(nodes)


def test_stateful_query_driver_that_resumes_after_another_took_over_stops(
    nodes: Nodes, tmp_path: Path, mode: str, whole: Whole
) -> None:
    job = new_job(nodes, tmp_path, mode)
    zombies: list[QueryProcess] = []
    paused: list[int] = []
    try:
        for batch, point in ((1, BEFORE_DECISION), (3, MID_ROLL_FORWARD)):
            zombies.append(begin(job.at(point, batch, pauses=True)))
            mark = Path(job.folder) / f"paused-{batch}"
            zombies[-1].wait_for(mark)
            paused += json.loads(mark.read_text())
        run(job)
    finally:
        for process in paused:
            os.kill(process, signal.SIGCONT)
        ends = [zombie.end() for zombie in zombies]
    assert ends == [1, 1], zombies[0].words
    log = (Path(job.folder) / "log").read_text()
    for name in job.names:
        assert log.count(f"{name} has ended: SinkStopped: ") == 2, log[-6000:]
    assert job.rows() == whole(nodes)


def test_stateful_query_with_killed_brokers_is_exactly_once(
    nodes: Nodes, tmp_path: Path, mode: str, whole: Whole
) -> None:
    rows = whole(nodes)
    job = new_job(nodes, tmp_path, mode)
    process = begin(job)
    process.wait_for(job.checkpoint(job.names[0]) / "offsets" / "0")
    topic = job.topic(job.names[0])
    roles = (f"leader:{topic}/0", f"txn:oncelog.spark.{topic}.ctl", "controller")
    kills = kill_nodes_while(process, nodes, roles)
    assert process.end() == 0, process.words
    assert kills >= 2
    assert job.rows() == rows
