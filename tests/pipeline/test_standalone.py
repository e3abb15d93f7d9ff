"""Test a query on a Spark cluster of a master and two workers, both of which run tasks."""

from pathlib import Path

import pytest

from oncelog.client import BlockingAdmin
from oncelog.deploy.cluster.local_cluster import Cluster

from .sink.job import Job, write_input
from .sink.output import assert_once
from .sink.processes import QueryProcess
from .standalone import SHORT_LIVED, standalone

pytestmark = [pytest.mark.spark_slow, pytest.mark.xdist_group("spark")]


def test_spark_tasks_of_two_workers_write_one_batch(
    tmp_path: Path, cluster: Cluster, admin: BlockingAdmin
) -> None:
    admin.create_topic("standalone", partitions=3)
    with standalone(tmp_path) as spark:
        confs = {
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            "spark.driver.extraJavaOptions": SHORT_LIVED,
            "spark.scheduler.minRegisteredResourcesRatio": "1",
            "spark.locality.wait": "0s",
        }
        job = Job(cluster.bootstrap, "standalone", str(tmp_path), master=spark.url, confs=confs)
        values = write_input(job, batches=2)
        process = QueryProcess(job, "job")
        assert process.end() == 0, process.words
        assert spark.worked()
        tables = list(tmp_path.glob("worker-*/app-*/*/oncelog-sink-ids-*.sqlite"))
    assert len(tables) == 2, "an executor has kept no ids"
    assert_once(cluster.bootstrap, job.topic, values)
    admin.delete_topics([job.topic, "oncelog.spark.decisions"])
