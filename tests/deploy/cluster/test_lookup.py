"""Test the error of a command that finds no live node of its cluster."""

from pathlib import Path

import pytest

from oncelog.deploy.cluster import layout
from oncelog.deploy.cluster.advice import one_command
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.lookup import ClusterChoice
from oncelog.deploy.cluster.plan import ClusterPlan
from oncelog.deploy.cluster.private import make_private_directory
from oncelog.wire.errors import NetworkException


def test_command_without_a_live_node_advises_to_start_the_cluster_of_its_directory(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    make_private_directory(data)
    layout.write(data, ClusterPlan(nodes=1).new_file())
    with one_command(), pytest.raises(Failure) as raised:
        choice = ClusterChoice(data=data)
        choice.client_config()
        with choice.as_failures():
            raise NetworkException("no broker answers: 127.0.0.1:1 cannot be reached")
    assert str(raised.value).startswith("no broker answers: 127.0.0.1:1 cannot be reached. ")
    assert str(raised.value).endswith(f"start them: oncelog up --data {data}")


def test_command_passes_on_other_network_errors_of_its_own_cluster(tmp_path: Path) -> None:
    """A start of the nodes would not help."""
    data = tmp_path / "data"
    make_private_directory(data)
    layout.write(data, ClusterPlan(nodes=1).new_file())
    with one_command(), pytest.raises(NetworkException, match="token endpoint"):
        choice = ClusterChoice(data=data)
        choice.client_config()
        with choice.as_failures():
            raise NetworkException("the token endpoint http://127.0.0.1:1 cannot be reached")


@pytest.mark.parametrize("bootstrap", ["127.0.0.1:1", None])
def test_command_on_another_cluster_passes_on_the_error_of_unreachable_brokers(
    tmp_path: Path, bootstrap: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --bootstrap, the variable names the cluster, since the directory has none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONCELOG_BOOTSTRAP", "127.0.0.1:1")
    with one_command(), pytest.raises(NetworkException):
        choice = ClusterChoice(data=Path(".oncelog"), bootstrap=bootstrap)
        choice.client_config()
        with choice.as_failures():
            raise NetworkException("no broker answers: 127.0.0.1:1 cannot be reached")
