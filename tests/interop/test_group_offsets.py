"""Test group offsets: commits by three client libraries, resets and deletions by our command."""

# pyright: reportPrivateImportUsage=false, reportAttributeAccessIssue=false
# The libraries hand names on from modules of their own, some at run time only.

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest

from oncelog.cli.main import run
from oncelog.deploy.cluster.local_cluster import Cluster

from .readers import WITH_LIBRARIES, fill, new_topic

pytestmark = WITH_LIBRARIES
RECORDS = 30
Commit = Callable[[str, str, int], None]  # bootstrap, group, offset of t/0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3) as running:
        new_topic(running, "t", 2)
        fill(running.bootstrap, "t", [(None, b"%d" % i, p) for i in range(RECORDS) for p in (0, 1)])
        yield running


def committed(cluster: Cluster, group: str) -> dict[tuple[str, int], int]:
    found = cluster.ask(lambda admin: admin.groups.committed(group, stable=True))
    return {where: value.offset for where, value in found.items()}


# -- three libraries


def with_confluent(bootstrap: str, group: str, offset: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    try:
        where = TopicPartition("t", 0, offset, metadata="met a data")
        (done,) = consumer.commit(offsets=[where], asynchronous=False)
        assert done.error is None
        nothing = TopicPartition("t", 1)
        found = consumer.committed([TopicPartition("t", 0), nothing], timeout=20)
        assert [each.offset for each in found] == [offset, -1001]
        assert found[0].metadata == "met a data"
    finally:
        consumer.close()


def with_kafka_python(bootstrap: str, group: str, offset: int) -> None:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    try:
        where = TopicPartition("t", 0)
        consumer.assign([where])
        consumer.commit({where: OffsetAndMetadata(offset, "met a data", -1)})
        assert consumer.committed(where) == offset
        assert consumer.committed(TopicPartition("t", 1)) is None
    finally:
        consumer.close()


def with_aiokafka(bootstrap: str, group: str, offset: int) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def commit() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False
        )
        where = TopicPartition("t", 0)
        consumer.assign([where])
        await consumer.start()
        try:
            await consumer.commit({where: (offset, "met a data")})
            assert await consumer.committed(where) == offset
        finally:
            await consumer.stop()

    asyncio.run(commit())


LIBRARIES: dict[str, Commit] = {
    "confluent": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


@pytest.mark.in_turn
@pytest.mark.parametrize("library", LIBRARIES)
def test_client_library_commits_and_fetches_group_offsets(cluster: Cluster, library: str) -> None:
    group = f"of {library}"
    for offset in (7, 3):
        LIBRARIES[library](cluster.bootstrap, group, offset)
    assert committed(cluster, group) == {("t", 0): 3}
    found = cluster.ask(lambda admin: admin.groups.committed(group))
    assert found["t", 0].metadata.rstrip("\0") == "met a data"  # confluent-kafka sends its NUL too


def test_consumer_group_resumes_at_its_committed_offsets(cluster: Cluster) -> None:
    """Members join and leave. Each commits before it leaves, so each record is read once."""
    from confluent_kafka import Consumer

    seen: list[tuple[int | None, int | None]] = []
    for _ in range(3):
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "goes on",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["t"])
        try:
            messages = consumer.consume(RECORDS * 2 // 3, timeout=30)
            assert len(messages) == RECORDS * 2 // 3
            seen += [(message.partition(), message.offset()) for message in messages]
            consumer.commit(asynchronous=False)
        finally:
            consumer.close()
    assert sorted(seen) == [(p, offset) for p in (0, 1) for offset in range(RECORDS)]
    assert committed(cluster, "goes on") == {("t", 0): RECORDS, ("t", 1): RECORDS}


# -- the command line


def oncelog(cluster: Cluster, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    code = run(["group", *arguments, "--bootstrap", cluster.bootstrap])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out + printed.err


def test_group_commands_list_reset_and_delete_offsets(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with_confluent(cluster.bootstrap, "by hand", 4)
    assert "by hand" in oncelog(cluster, capsys, "list")
    printed = oncelog(cluster, capsys, "describe", "by hand")
    assert "state Empty" in printed and f"{RECORDS - 4}" in printed
    oncelog(cluster, capsys, "reset", "by hand", "--to", "earliest")
    assert committed(cluster, "by hand") == {("t", 0): 4}, "only shown"
    oncelog(cluster, capsys, "reset", "by hand", "--by=-1", "--execute")
    assert committed(cluster, "by hand") == {("t", 0): 3}
    oncelog(cluster, capsys, "reset", "by hand", "--topic", "t", "--to", "latest", "--execute")
    assert committed(cluster, "by hand") == {("t", 0): RECORDS, ("t", 1): RECORDS}
    oncelog(cluster, capsys, "reset", "by hand", "--topic", "t/1", "--to", "9999", "--execute")
    assert committed(cluster, "by hand")["t", 1] == RECORDS, "never beyond the end"
    oncelog(cluster, capsys, "delete", "by hand", "--topic", "t/1")
    assert committed(cluster, "by hand") == {("t", 0): RECORDS}
    oncelog(cluster, capsys, "delete", "by hand")
    assert "by hand" not in oncelog(cluster, capsys, "list")


def test_reset_and_deletion_of_a_group_with_members_are_refused(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "busy",
            "auto.offset.reset": "earliest",
            "client.id": "reader",
        }
    )
    consumer.subscribe(["t"])
    try:
        assert consumer.poll(30) is not None
        printed = oncelog(cluster, capsys, "describe", "busy")
        assert "state Stable" in printed and "reader" in printed
        reset = ["reset", "busy", "--topic", "t", "--to", "3", "--execute"]
        for refused in (reset, ["delete", "busy"]):
            assert run(["group", *refused, "--bootstrap", cluster.bootstrap]) == 1
            assert "stop them first" in capsys.readouterr().err
    finally:
        consumer.close()


# -- the coordinator dies


@pytest.mark.in_turn
def test_group_offsets_are_kept_when_their_coordinator_is_killed(cluster: Cluster) -> None:
    expected: dict[str, dict[tuple[str, int], int]] = {}
    for number in range(12):
        group = f"survivor {number}"
        with_confluent(cluster.bootstrap, group, number)
        expected[group] = {("t", 0): number}
    for group in ("survivor 0", "survivor 1"):
        killed = cluster.kill(f"group:{group}")
        began = time.monotonic()
        for each, offsets in expected.items():
            assert committed(cluster, each) == offsets
        assert time.monotonic() - began < 60
        with_confluent(cluster.bootstrap, group, 29)
        expected[group] = {("t", 0): 29}
        cluster.start(killed)
        cluster.wait_for_isr("__consumer_offsets", 3)
