"""State and watermark go on where a batch was decided and the driver died before Spark knew.

    pytest -m spark_slow tests/pipeline/sink/test_stateful_kills.py

Each kind of state, in each form that Spark can keep it in; the output is that of a run without
kills, row by row. test_query.py has windows in the default run.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.client import BlockingAdmin
from oncelog.deploy.cluster.local_cluster import Cluster

from ...interop.client_peers import read_to_end
from . import stateful_job
from .output import open_transactions
from .stateful_job import DEATHS, QUERIES, StatefulJob, write_files

pytestmark = [pytest.mark.spark_slow, pytest.mark.xdist_group("spark")]
RUN_S = 600
STORE = "spark.sql.streaming.stateStore"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# A batch is a file: which one is killed must not depend on batches without rows in between.
CONFS = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}
FORMS = {
    "files": {},
    "rocksdb-1": {f"{STORE}.providerClass": ROCKSDB, f"{STORE}.checkpointFormatVersion": "1"},
    "rocksdb-2": {f"{STORE}.providerClass": ROCKSDB, f"{STORE}.checkpointFormatVersion": "2"},
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(nodes=1, data=tmp_path_factory.mktemp("state") / "data") as running:
        yield running


def queries_in(form: str) -> list[str]:
    """transformWithState wants RocksDB, and protobuf beside it."""
    try:
        import google.protobuf  # type: ignore[import-not-found, unused-ignore]  # noqa: F401
    except ImportError:
        return [name for name in QUERIES if name != "transformed"]
    return [name for name in QUERIES if name != "transformed" or form != "files"]


def run(job: StatefulJob) -> int:
    log = Path(job.folder) / "log"
    program = str(Path(stateful_job.__file__))
    with open(log, "ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-P", program, job.text()], stdout=file, stderr=file, cwd=job.folder
        )
    try:
        return process.wait(RUN_S)
    finally:
        process.kill()
        process.wait()


def words(job: StatefulJob) -> str:
    return (Path(job.folder) / "log").read_text()[-6000:]


@pytest.mark.parametrize("mode", ["prepared", "transactional"])
@pytest.mark.parametrize("form", FORMS)
def test_output_is_that_of_a_run_without_kills(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, form: str, mode: str
) -> None:
    folder = tmp_path_factory.mktemp(f"{form}-{mode}")
    broken = queries_in(form)
    whole = [f"whole-{name}" for name in broken]
    confs = CONFS | FORMS[form]
    last = StatefulJob(cluster.bootstrap, str(folder), broken + whole, confs=confs, mode=mode)
    write_files(last)
    with BlockingAdmin(cluster.bootstrap) as admin:
        for name in last.names:
            admin.create_topic(last.topic(name), partitions=1)
    for point, batch in DEATHS:
        job = StatefulJob(cluster.bootstrap, str(folder), broken, point, batch, confs, mode)
        assert run(job) == -signal.SIGKILL, words(job)
        for name in broken:
            assert (job.checkpoint(name) / "offsets" / str(batch)).exists()
            assert not (job.checkpoint(name) / "commits" / str(batch)).exists()
    assert run(last) == 0, words(last)
    assert asyncio.run(open_transactions(cluster.bootstrap)) == []
    rows = {name: rows_of(cluster, last.topic(name)) for name in last.names}
    for name in broken:
        assert rows[name] == rows[f"whole-{name}"], name
        assert len(rows[name]) > len(DEATHS), f"{name} has hardly any output"


def rows_of(cluster: Cluster, topic: str) -> list[str]:
    rows = asyncio.run(read_to_end(cluster.bootstrap, topic, timeout_s=120))
    return sorted((row.value or b"").decode() for row in rows)
