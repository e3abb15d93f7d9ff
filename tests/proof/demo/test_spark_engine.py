"""Test the demo's Spark engine without Spark. test_run.py tests whole runs."""

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.proof.demo import fault_plan, spark_engine
from oncelog.proof.demo.spark_engine import SparkEngine
from oncelog.proof.demo.worker_engine import WorkerEngine


def test_demo_spark_engine_without_pyspark_names_the_package_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(spark_engine, "find_spec", lambda name: None)
    with pytest.raises(Failure, match=r"pip install '\.\[demo,spark\]'"):
        SparkEngine(Cluster(3, data=tmp_path), source="a", enriched="b", sums="c")


@pytest.mark.parametrize("engine", [SparkEngine, WorkerEngine])
def test_demo_faults_of_a_seed_are_repeatable_and_of_all_kinds(engine):
    kinds = fault_plan.OF_BROKERS + engine.kinds
    planned = fault_plan.plan(7, kinds)
    assert sorted(fault.kind for fault in planned) == sorted(kinds)
    assert planned == fault_plan.plan(7, kinds) != fault_plan.plan(8, kinds)
