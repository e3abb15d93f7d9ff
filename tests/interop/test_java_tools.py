"""Apache Kafka's own tools against three nodes: its Java clients, producer and admin, unchanged."""

import re

import pytest

from oncelog.deploy.local_cluster import Cluster

from .kafka_peer import is_enabled, run_tool

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.cluster,
    pytest.mark.skipif(not is_enabled(), reason="ONCELOG_KAFKA is not 1"),
]
TOOLS = "org.apache.kafka.tools"


def test_javas_tools_work(tmp_path):
    def tool(name: str, *arguments: str) -> str:
        server = () if name.endswith("ProducerPerformance") else ("--bootstrap-server", bootstrap)
        done = run_tool(name, *server, *arguments)
        assert done.returncode == 0, f"{name}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
        return done.stdout

    with Cluster(nodes=3, data=tmp_path / "cluster") as cluster:
        bootstrap = cluster.bootstrap
        shape = ("--partitions", "2", "--replication-factor", "3")
        tool(f"{TOOLS}.TopicCommand", "--create", "--topic", "j", *shape)
        cluster.wait_for_isr("j", 3)
        told = tool(
            f"{TOOLS}.ProducerPerformance",
            *("--topic", "j", "--num-records", "2000", "--record-size", "100"),
            *("--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}"),
            *("acks=all", "compression.type=lz4"),
        )
        assert "2000 records sent" in told
        ends = re.findall(r"^j:\d:(\d+)$", tool(f"{TOOLS}.GetOffsetShell", "--topic", "j"), re.M)
        assert sum(map(int, ends)) == 2000
        entity = ("--entity-type", "topics", "--entity-name", "j")
        setting = ("--add-config", "cleanup.policy=[compact,delete]")
        tool("kafka.admin.ConfigCommand", "--alter", *entity, *setting)
        told = tool("kafka.admin.ConfigCommand", "--describe", *entity)
        assert "cleanup.policy=compact,delete" in told
        read = tool(
            f"{TOOLS}.consumer.ConsoleConsumer",
            *("--topic", "j", "--partition", "0", "--offset", "earliest", "--max-messages", "5"),
        )
        assert len(read.split()) == 5
