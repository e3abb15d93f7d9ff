"""The demo with its Spark job, on real nodes: minutes, so only when it is asked for."""

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.demo import fault_plan, spark_engine
from oncelog.deploy.demo import report as demo_report
from oncelog.deploy.demo.run import CLUSTER_CONFIG, Demo, DemoReport
from oncelog.deploy.demo.spark_engine import SparkEngine


def run(seed: int, **shorter) -> DemoReport:
    with Cluster(3, config=CLUSTER_CONFIG) as cluster:
        report = Demo(cluster, seed, "none", print, "spark").run(**shorter)
    assert not cluster.data.exists(), "a run that was judged leaves nothing behind"
    demo_report.print_verdict(report)
    return report


def test_without_pyspark_the_engine_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(spark_engine, "find_spec", lambda name: None)
    with pytest.raises(Failure, match=r"pip install 'oncelog\[demo,spark\]'"):
        SparkEngine(Cluster(3, data=tmp_path), source="a", enriched="b", sums="c")


def test_every_fault_of_spark_is_in_the_plan_of_its_demo():
    kinds = fault_plan.OF_BROKERS + SparkEngine.kinds
    planned = fault_plan.plan(7, kinds=kinds)
    assert sorted(fault.kind for fault in planned) == sorted(kinds)
    assert planned == fault_plan.plan(7, kinds=kinds)


@pytest.mark.spark_slow
@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", SparkEngine.kinds)
def test_one_fault_of_spark_and_every_flight_counts_once(kind):
    report = run(3, kinds=(kind,), rows=40_000)
    assert not report.findings
    assert report.outputs is not None and report.outputs.distinct == 40_000


@pytest.mark.spark_slow
@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(3))
def test_three_seeds_are_exactly_once(seed):
    assert run(seed).exit_code == 0
