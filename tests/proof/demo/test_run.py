"""Test the demo on real nodes, with few faults by default, and with ten seeds by -m chaos."""

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.proof.demo import report as demo_report
from oncelog.proof.demo.run import BREAKS, CLUSTER_CONFIG, FENCE_OFF, Demo, DemoReport
from oncelog.proof.demo.spark_engine import SparkEngine

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]


def run(seed: int, broken: str, engine: str = "workers", **shorter) -> DemoReport:
    with Cluster(3, config=CLUSTER_CONFIG) as cluster:
        report = Demo(cluster, seed, broken, print, engine).run(**shorter)
    assert not cluster.data.exists(), "a run that was judged leaves nothing behind"
    demo_report.print_verdict(report)
    return report


def test_demo_with_killed_worker_and_coordinator_writes_every_flight_once():
    report = run(3, "none", kinds=("worker", "transaction"), rows=40_000)
    assert not report.findings
    # The transaction of a fault may end a moment before its coordinator is killed.
    assert sum(fault.effect.open_transactions for fault in report.faults) >= 1
    assert report.outputs.distinct == 40_000
    assert demo_report.as_json(report)["outputs_read"] == 40_000


@pytest.mark.chaos
def test_demo_without_fencing_repeats_work_of_a_resumed_worker():
    report = run(3, FENCE_OFF, kinds=("zombie",), rows=40_000)
    assert {"doubled", "wrong sums"} <= {finding.name for finding in report.findings}
    assert report.exit_code == 1


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(10))
def test_demo_of_ten_seeds_is_exactly_once(seed):
    assert run(seed, "none").exit_code == 0


@pytest.mark.chaos
@pytest.mark.parametrize("broken", [name for name in BREAKS if name != "none"])
def test_demo_with_a_guarantee_disabled_shows_violations_in_at_least_eight_of_ten_seeds(broken):
    assert sum(run(seed, broken).exit_code == 1 for seed in range(10)) >= 8


@pytest.mark.spark_slow
@pytest.mark.parametrize("kind", SparkEngine.kinds)
def test_demo_with_a_spark_fault_writes_every_flight_once(kind):
    report = run(3, "none", "spark", kinds=(kind,), rows=40_000)
    assert not report.findings
    assert report.outputs.distinct == 40_000


@pytest.mark.spark_slow
@pytest.mark.parametrize("seed", range(3))
def test_demo_of_three_seeds_with_spark_is_exactly_once(seed):
    assert run(seed, "none", "spark").exit_code == 0
