"""The demo's engine on Spark, without Spark; test_run.py has runs."""

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.demo import fault_plan, spark_engine
from oncelog.deploy.demo.spark_engine import SparkEngine


def test_without_pyspark_the_engine_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(spark_engine, "find_spec", lambda name: None)
    with pytest.raises(Failure, match=r"pip install 'oncelog\[demo,spark\]'"):
        SparkEngine(Cluster(3, data=tmp_path), source="a", enriched="b", sums="c")


def test_every_fault_of_spark_is_in_the_plan_of_its_demo():
    kinds = fault_plan.OF_BROKERS + SparkEngine.kinds
    planned = fault_plan.plan(7, kinds=kinds)
    assert sorted(fault.kind for fault in planned) == sorted(kinds)
    assert planned == fault_plan.plan(7, kinds=kinds)
