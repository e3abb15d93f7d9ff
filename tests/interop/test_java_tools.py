"""Test Apache Kafka's own tools, unchanged, with three oncelog nodes."""

import re
from pathlib import Path

import pytest

from ..programs import run_to_end
from .kafka_peer import java_source, run_tool
from .raw_peer import RawPeer
from .readers import fill, new_topic

pytestmark = [pytest.mark.kafka, pytest.mark.cluster]
TOOLS = "org.apache.kafka.tools"
FACTS = Path(__file__).parent / "java" / "ClusterFacts.java"


def test_java_tools_create_describe_produce_and_consume(cluster):
    bootstrap = cluster.bootstrap

    def tool(name: str, *arguments: str) -> str:
        server = () if name.endswith("ProducerPerformance") else ("--bootstrap-server", bootstrap)
        done = run_tool(name, *server, *arguments)
        assert done.returncode == 0, f"{name}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
        return done.stdout

    shape = ("--partitions", "2", "--replication-factor", "3")
    tool(f"{TOOLS}.TopicCommand", "--create", "--topic", "j", *shape)
    cluster.wait_for_isr("j", 3)
    printed = tool(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", "j", "--num-records", "2000", "--record-size", "100"),
        *("--throughput", "-1", "--producer-props", f"bootstrap.servers={bootstrap}"),
        *("acks=all", "compression.type=lz4"),
    )
    assert "2000 records sent" in printed
    ends = re.findall(r"^j:\d:(\d+)$", tool(f"{TOOLS}.GetOffsetShell", "--topic", "j"), re.M)
    assert sum(map(int, ends)) == 2000
    entity = ("--entity-type", "topics", "--entity-name", "j")
    setting = ("--add-config", "cleanup.policy=[compact,delete]")
    tool(f"{TOOLS}.ConfigCommand", "--alter", *entity, *setting)
    printed = tool(f"{TOOLS}.ConfigCommand", "--describe", *entity)
    assert "cleanup.policy=compact,delete" in printed
    read = tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--topic", "j", "--partition", "0", "--offset", "earliest", "--max-messages", "5"),
    )
    assert len(read.split()) == 5


@pytest.mark.in_turn
def test_java_group_tool_lists_resets_and_deletes_groups(cluster):
    groups = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
    found = r"^g\s+g\s+{partition}\s+(\d+|-)\s+(\d+)\s+(\d+|-)"

    def tool(name: str, *arguments: str) -> str:
        done = run_tool(name, "--bootstrap-server", cluster.bootstrap, *arguments)
        assert done.returncode == 0, f"{name}: {done.stdout[-1500:]}{done.stderr[-1500:]}"
        assert "Error" not in done.stdout + done.stderr, done.stdout + done.stderr
        return done.stdout

    def committed() -> dict[int, int]:
        offsets = cluster.ask(lambda admin: admin.groups.committed("g"))
        return {partition: held.offset for (_, partition), held in offsets.items()}

    new_topic(cluster, "g", 2)
    fill(cluster.bootstrap, "g", [(None, b"%d" % i, i % 2) for i in range(20)])
    read = tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--topic", "g", "--group", "g", "--from-beginning", "--max-messages", "20"),
    )
    assert len(read.split()) == 20
    assert "g" in tool(groups, "--list").split()
    tool(
        groups, "--reset-offsets", "--group", "g", "--topic", "g:0", "--to-offset", "4",
        "--execute",
    )  # fmt: skip
    printed = tool(groups, "--describe", "--group", "g")  # (committed, end, lag) by partition
    matches = {p: re.search(found.format(partition=p), printed, re.M) for p in (0, 1)}
    shown = {p: match.groups() for p, match in matches.items() if match}
    assert shown == {0: ("4", "10", "6"), 1: ("10", "10", "0")}
    tool(groups, "--delete-offsets", "--group", "g", "--topic", "g:1")
    assert committed() == {0: 4}
    tool(groups, "--delete", "--group", "g")
    assert "g" not in [group.group_id for group in cluster.ask(lambda a: a.groups.list_groups())]


def facts(peer: RawPeer) -> dict[str, str]:
    """Call methods of Java's Admin, and return each outcome by the name of the call."""
    host, port = peer.address
    done = run_to_end(java_source(FACTS, f"{host}:{port}"), 120)
    assert done.returncode == 0, f"{done.stdout[-1500:]}{done.stderr[-1500:]}"
    return dict(line.split("\t") for line in done.stdout.splitlines())


def test_java_admin_gets_the_same_answers_from_kafka_and_oncelog(
    kafka: RawPeer, ours: RawPeer
) -> None:
    theirs, mine = facts(kafka), facts(ours)
    assert len(theirs) >= 80
    differing = {
        name: (outcome, mine.get(name)) for name, outcome in theirs.items()
        if mine.get(name) != outcome
    }  # fmt: skip
    assert not differing
