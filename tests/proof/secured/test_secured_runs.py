"""Test demo, chaos, bench and the pytest plugin on clusters of `up --secure`."""

import json
from pathlib import Path

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.faults.schedule import NEED_LOGINS
from oncelog.proof.bench.target import bench_target
from oncelog.proof.bench.transactions import TransactionGrid
from oncelog.proof.demo.run import CLUSTER_CONFIG, Demo
from oncelog.proof.demo.transfers.run import TransfersDemo, database_of
from oncelog.proof.judge.history.files import read_names

from ...programs import CLI, run_to_end
from ...secret_watch import SecretWatch

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]


@pytest.mark.in_turn
def test_demo_on_a_secured_cluster_writes_every_flight_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with (
        SecretWatch(data),
        Cluster(3, data=data, config=CLUSTER_CONFIG, secure=True) as cluster,
    ):
        demo = Demo(cluster, 3, "none", print, "workers")
        report = demo.run(kinds=("worker",), rows=20_000)
    assert not report.findings
    assert report.outputs.distinct == 20_000


@pytest.mark.chaos
def test_transfers_demo_on_a_secured_cluster_writes_every_row_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with (
        SecretWatch(data),
        Cluster(3, data=data, secure=True) as cluster,
        database_of(None, cluster) as (database, server),
    ):
        demo = TransfersDemo(cluster, 3, "none", print, database=database, server=server)
        report = demo.run(kinds=("decided",))
    assert report.exit_code == 0 and not report.findings


@pytest.mark.spark_slow
def test_spark_demo_on_a_secured_cluster_writes_every_flight_once(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with (
        SecretWatch(data),
        Cluster(3, data=data, config=CLUSTER_CONFIG, secure=True) as cluster,
    ):
        demo = Demo(cluster, 3, "none", print, "spark")
        report = demo.run(kinds=("python-worker",), rows=20_000)
    assert not report.findings
    assert report.outputs.distinct == 20_000


@pytest.mark.in_turn
def test_chaos_on_a_secured_cluster_has_a_clean_verdict(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with SecretWatch(out):
        done = run_to_end(
            [
                *CLI, "chaos", "run", "--secure", "--out", str(out), "--seconds", "12",
                "--seed", "5", "--keep", "--format", "json",
                "--faults", "client-cut,client-delay,worker-kill,kill-leader", "--rate", "40",
            ],
            300,
        )  # fmt: skip
    told = json.loads(done.stdout or "{}")
    assert done.returncode == 0, (done.stderr, told)
    assert json.loads((out / "run.json").read_text())["settings"]["is_secured"]
    assert told["outcome"]["faults"]


@pytest.mark.chaos
def test_chaos_with_certificate_login_and_acl_faults_has_a_clean_verdict(
    tmp_path: Path,
) -> None:
    out = tmp_path / "run"
    with SecretWatch(out):
        done = run_to_end(
            [
                *CLI, "chaos", "run", "--secure", "--out", str(out), "--seconds", "40",
                "--seed", "5", "--keep", "--format", "json", "--rate", "120",
                "--faults", ",".join(sorted(NEED_LOGINS)),
            ],
            400,
        )  # fmt: skip
    told = json.loads(done.stdout or "{}")
    assert done.returncode == 0, (done.stderr, told)
    assert set(told["outcome"]["faults"]) == NEED_LOGINS, told["outcome"]
    names = {name for each in (out / "history").iterdir() for name in read_names(each)}
    assert {"SaslAuthenticationFailed", "TopicAuthorizationFailed"} <= names  # the load met both


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--secure", "--faults", "client-hold"], "Not with --secure"),
        (["--faults", "acl-taken"], "Only with --secure"),
    ],
)
def test_chaos_fault_that_does_not_fit_a_secured_or_plaintext_cluster_is_refused(
    options: list[str], words: str, tmp_path: Path
) -> None:
    done = run_to_end([*CLI, "chaos", "run", *options, "--out", str(tmp_path / "run")], 60)
    assert done.returncode == 2 and words in done.stderr


def test_bench_on_a_secured_cluster_measures_transactions_over_tls(tmp_path: Path) -> None:
    grid = TransactionGrid(records=[1], partitions=[1], repetitions=1, seconds=0.5)
    with bench_target(tmp_path / "none", None, is_secured=True) as target:
        assert target.login["security.protocol"] == "SASL_SSL"
        assert target.cluster is not None and target.cluster.file.is_secured
        (result,) = grid.run(target, print)
    assert result.repetitions[0].commit_ms


@pytest.mark.in_turn
def test_plugin_option_oncelog_secure_gives_a_secured_cluster(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        from oncelog.client import BlockingProducer

        def test_one(oncelog):
            config = oncelog.client_config()
            assert config["security.protocol"] == "SASL_SSL"
            topic = oncelog.topic("orders")
            with BlockingProducer(config) as producer:
                producer.send(topic, b"x").result()
    """)
    options = ("-p", "no:cacheprovider", "-p", "no:xdist", "--oncelog-secure")
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=1)
