"""Test the metrics ports of nodes, which stay the same when a cluster is started again."""

from pathlib import Path

import pytest

from oncelog.cli.main import run
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.layout import ClusterFile
from oncelog.deploy.cluster.plan import ClusterPlan
from oncelog.deploy.cluster.properties import node_properties


def metrics_ports(file: ClusterFile) -> list[int]:
    return [node.metrics_port for node in file.nodes]


def test_metrics_port_is_zero_unless_requested() -> None:
    file = ClusterPlan(nodes=3).new_file()
    assert metrics_ports(file) == [0, 0, 0]
    assert file.nodes[0].metrics_url is None
    assert "oncelog.metrics.port" not in node_properties(file.nodes[0], file, Path("/d"))


def test_metrics_ports_are_consecutive_from_the_first() -> None:
    file = ClusterPlan(nodes=3, has_metrics=True, first_metrics_port=19_404).new_file()
    assert metrics_ports(file) == [19_404, 19_405, 19_406]
    assert file.nodes[2].metrics_url == "http://127.0.0.1:19406/metrics"
    written = node_properties(file.nodes[1], file, Path("/d"))
    assert written["oncelog.metrics.port"] == "19405"


def test_metrics_ports_chosen_freely_differ_from_all_node_ports() -> None:
    file = ClusterPlan(nodes=5, has_metrics=True).new_file()
    taken = [node.port for node in file.nodes] + metrics_ports(file)
    assert all(taken) and len(set(taken)) == 10


def test_metrics_port_equal_to_a_kafka_port_is_refused() -> None:
    plan = ClusterPlan(nodes=3, first_port=19_402, has_metrics=True, first_metrics_port=19_404)
    with pytest.raises(Failure, match="19404 is for Kafka and metrics"):
        plan.new_file()


def test_metrics_ports_of_a_cluster_stay_until_changed_or_disabled(tmp_path: Path) -> None:
    known = ClusterPlan(nodes=3, has_metrics=True, first_metrics_port=19_404).new_file()
    again = ClusterPlan(nodes=3).reused_file(tmp_path, known, [])
    assert metrics_ports(again) == [19_404, 19_405, 19_406]
    moved = ClusterPlan(nodes=3, first_port=20_000).reused_file(tmp_path, again, [])
    assert [node.port for node in moved.nodes] == [20_000, 20_001, 20_002]
    assert metrics_ports(moved) == [19_404, 19_405, 19_406]
    ended = ClusterPlan(nodes=3, has_metrics=False).reused_file(tmp_path, moved, [])
    assert metrics_ports(ended) == [0, 0, 0]


@pytest.mark.parametrize(
    "options", [("--metrics-port", "70000"), ("--no-metrics", "--metrics-port", "9404")]
)
def test_metrics_port_out_of_range_or_without_metrics_is_refused_with_the_range(
    options: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["up", "--data", str(tmp_path / "data"), *options]) == 2
    assert "--metrics-port is 1 to 65535" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()
