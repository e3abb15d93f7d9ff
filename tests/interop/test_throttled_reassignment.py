"""Test that Kafka's tool moves a replica under a throttle and removes the throttle."""

import json
import re
from pathlib import Path

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from ..waiting import until
from .kafka_peer import run_tool
from .readers import fill

pytestmark = [pytest.mark.kafka, pytest.mark.cluster]
TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
TOPIC, BROKER = 2, 4
RECORDS, VALUE = 6_000, b"v" * 1_000
SLOW, QUICK = "100", "1000000000"  # bytes a second


def throttles(cluster: Cluster) -> dict[str, list[str]]:
    """Return the dynamic config keys about throttles that the topic and the brokers have."""
    found: dict[str, list[str]] = {}
    for kind, name in ((TOPIC, "t"), *((BROKER, str(node)) for node in cluster.node_ids)):
        configs = cluster.ask(lambda admin, k=kind, n=name: admin.describe_configs(n, k))
        keys = [each.name for each in configs if each.source in ("topic", "broker (dynamic)")]
        found[name] = [key for key in keys if "throttled" in key]
    return found


@pytest.mark.in_turn
def test_throttled_reassignment_is_slowed_and_removes_its_throttles_at_the_end(
    cluster: Cluster, tmp_path: Path
) -> None:
    first, second, third = cluster.node_ids
    file = tmp_path / "plan.json"

    def tool(*arguments: str) -> str:
        given = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(file))
        done = run_tool(TOOL, *given, *arguments)
        assert done.returncode == 0, f"{done.stdout[-1500:]}{done.stderr[-1500:]}"
        return done.stdout

    def plan(*replicas: int) -> None:
        row = {"topic": "t", "partition": 0, "replicas": replicas}
        file.write_text(json.dumps({"version": 1, "partitions": [row]}))

    def held_by(node: int) -> int:
        entries = cluster.ask(lambda admin: admin.describe_log_dirs())
        return sum(e.size_bytes for e in entries if (e.topic, e.node_id) == ("t", node))

    assignment = {"partitions": 1, "replication_factor": 2}
    cluster.ask(lambda admin: admin.create_topic("t", **assignment))
    plan(first, second)
    tool("--execute")
    until(lambda: "is completed" in tool("--verify"), timeout_s=60)
    fill(cluster.bootstrap, "t", [(None, VALUE, 0) for _ in range(RECORDS)])
    whole = held_by(first)
    assert whole > RECORDS * len(VALUE)

    plan(first, third)
    printed = tool("--execute", "--throttle", SLOW)
    assert "Successfully started partition reassignment" in printed
    assert throttles(cluster)["t"], "the lists of replicas"
    assert all(throttles(cluster)[str(node)] for node in (first, third))
    assert "still in progress" in tool("--verify")
    assert held_by(third) < whole, "some of it may come at once, within the rate's windows"

    tool("--execute", "--additional", "--throttle", QUICK)
    until(lambda: "is completed" in tool("--verify"), timeout_s=60)
    assert held_by(third) == whole
    assert not any(throttles(cluster).values())
    moved = cluster.ask(lambda admin: admin.describe_topics(["t"]))
    assert [sorted(each.replicas) for each in moved] == [sorted((first, third))]
    assert re.search(r"Clearing|completed", tool("--verify"))
