"""Test that a node refuses to start with a transaction shard count other than its cluster's."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from ...programs import run_to_end

pytestmark = pytest.mark.cluster
KEY = "transaction.state.log.num.partitions"


@pytest.fixture(scope="module")
def properties() -> Iterator[str]:
    """Yield the properties of a stopped node that has four transaction shards."""
    with Cluster(nodes=1) as cluster:
        cluster.stop(1)
        yield cluster.node(1).properties.read_text()


@pytest.mark.in_turn
@pytest.mark.parametrize("count", [6, 2])
def test_broker_with_a_changed_number_of_shards_refuses_to_start(
    properties: str, tmp_path: Path, count: int
) -> None:
    assert f"{KEY}=4" in properties
    changed = tmp_path / "server.properties"
    changed.write_text(properties.replace(f"{KEY}=4", f"{KEY}={count}"))
    command = [sys.executable, "-P", "-m", "oncelog.node", "--config", str(changed)]
    ended = run_to_end(command)
    assert ended.returncode == 1
    assert f"is {count} here, but this cluster began with 4" in ended.stderr
    assert "Traceback" not in ended.stderr
