"""Test a controlled clock in a real cluster, where a week passes at once on all nodes."""

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from oncelog.cli import main
from oncelog.deploy.cluster import admin_socket_client
from oncelog.deploy.cluster.clock import ClockControl, ClockNotControlled, duration_ms
from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.plan import ClusterPlan
from oncelog.proof.pytest_plugin.clusters import Clusters
from oncelog.proof.pytest_plugin.handle import ClusterInTest, Wanted
from oncelog.wire.errors import TransactionalIdNotFound

from ...node.own_broker import running
from ...waiting import until

WEEK_MS = 7 * 86_400_000
HOUR_MS = 3_600_000


# -- plain parts


@pytest.mark.parametrize(
    ("by", "ms"),
    [
        ("15m", 900_000), ("1h30m", 5_400_000), ("8d", 8 * 86_400_000), ("2w", 2 * WEEK_MS),
        ("250ms", 250), ("1m1s1ms", 61_001), (timedelta(days=1, milliseconds=2), 86_400_002),
    ],
)  # fmt: skip
def test_clock_advance_duration_is_parsed_to_milliseconds(by: str | timedelta, ms: int) -> None:
    assert duration_ms(by) == ms


@pytest.mark.parametrize(
    "by", ["", "15", "m", "-15m", "1.5h", "15 m", "0s", "1y", timedelta(-1), "101000d", 900, None]
)
def test_clock_advance_with_a_malformed_duration_is_refused_with_a_clear_message(by: Any) -> None:
    with pytest.raises(Failure, match="Write for example 15m"):
        duration_ms(by)


def test_clock_advance_is_retried_with_one_operation_id_until_a_node_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [SimpleNamespace(node_id=i, state="running") for i in (1, 2)]
    cluster = SimpleNamespace(peer_directory=Path(), status=lambda: nodes)
    asked: list[tuple[int, str]] = []

    def ask(_: Path, node_id: int, request: dict[str, Any], **__: Any) -> dict[str, Any]:
        if request["op"] == "clock":
            total_ms = 5 if len(asked) > 2 else 0
            shown = {"now_ms": total_ms, "advanced_ms": total_ms, "looked_ms": total_ms}
            return shown | {"is_controlled": True}
        asked.append((node_id, request["operation_id"]))
        if len(asked) == 1:
            raise Failure("Node 1 does not answer.")
        return {"unknown": "The controller did not answer."} if len(asked) == 2 else {
            "advanced_ms": 5
        }  # fmt: skip

    monkeypatch.setattr(admin_socket_client, "ask", ask)
    assert ClockControl(cast(Cluster, cluster)).advance("5ms").behind == ()
    assert [node_id for node_id, _ in asked] == [1, 2, 1] and len({id_ for _, id_ in asked}) == 1


def test_clock_advance_raises_the_reason_if_a_node_cannot_be_asked_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = SimpleNamespace(
        peer_directory=Path(), status=lambda: [SimpleNamespace(node_id=1, state="running")]
    )

    is_advanced = False

    def ask(_: Path, node_id: int, request: dict[str, Any], **__: Any) -> dict[str, Any]:
        nonlocal is_advanced
        if request["op"] == "clock":
            if is_advanced:
                raise Failure("Node 1 does not answer.")
            return {"now_ms": 0, "advanced_ms": 0, "looked_ms": 0, "is_controlled": True}
        is_advanced = True
        return {"advanced_ms": 5}

    monkeypatch.setattr(admin_socket_client, "ask", ask)
    monkeypatch.setattr("oncelog.deploy.cluster.clock.LOOK_TIMEOUT_S", -1)
    with pytest.raises(Failure, match=r"it is unknown .* Node 1 does not answer\."):
        ClockControl(cast(Cluster, cluster)).advance("5ms")


# -- a cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    config = {"transactional.id.expiration.ms": WEEK_MS, "offsets.retention.minutes": 7 * 24 * 60}
    with Cluster(3, clock="controlled", config=config) as running:
        yield running


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """Create a topic of one partition with a retention of a week and a day, and return its name."""
    name = request.node.name.replace("[", "-").replace("]", "")
    retention = {"retention.ms": str(WEEK_MS + 86_400_000)}
    cluster.ask(lambda admin: admin.create_topic(name, replication_factor=3, configs=retention))
    cluster.wait_for_isr(name, 3)
    return name


def write(cluster: Cluster, topic: str, *values: str, **settings: Any) -> None:
    producer = Producer(cluster.client_config(log_level=0, **settings))
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def offsets(cluster: Cluster, topic: str) -> tuple[int, int]:
    """Return the log start offset and the log end offset of the topic."""
    consumer = Consumer(cluster.client_config(**{"group.id": "none", "log_level": 0}))
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    finally:
        consumer.close()


def segments(cluster: Cluster, node_id: int, topic: str) -> list[int]:
    directory = cluster.node(node_id).directory / f"{topic}-0"
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def commit(cluster: Cluster, group: str, topic: str) -> None:
    consumer = Consumer(cluster.client_config(**{"group.id": group, "log_level": 0}))
    consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    consumer.close()


def committed(cluster: Cluster, group: str, topic: str) -> int:
    consumer = Consumer(cluster.client_config(**{"group.id": group, "log_level": 0}))
    try:
        return consumer.committed([TopicPartition(topic, 0)], timeout=30)[0].offset
    finally:
        consumer.close()


def fences(cluster: Cluster) -> int:
    """Count the FenceBroker commands in the nodes' logs. Each declares a broker dead."""
    logs = (cluster.node(node_id).log.read_text() for node_id in cluster.node_ids)
    return sum(text.count("the command FenceBroker(") for text in logs)


@pytest.mark.in_turn
def test_clock_advance_expires_old_state_and_keeps_later_records(
    cluster: Cluster, topic: str
) -> None:
    settings = {"transactional.id": topic, "transaction.timeout.ms": 600_000, "log_level": 0}
    producer = Producer(cluster.client_config(**settings))
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, "aborted")
    assert producer.flush(30) == 0
    commit(cluster, f"{topic}-old", topic)
    cluster.clock.advance("11m")
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.commit_transaction(30)
    assert refused.value.args[0].code() in (
        confluent_kafka.KafkaError._FENCED,
        confluent_kafka.KafkaError.INVALID_PRODUCER_EPOCH,
    )
    write(cluster, topic, "old")
    status = cluster.clock.advance(timedelta(days=7))
    assert status.behind == ()
    assert offsets(cluster, topic)[0] == 0  # a day is left
    commit(cluster, f"{topic}-new", topic)
    write(cluster, topic, "new")  # its timestamp is not refused
    end = offsets(cluster, topic)[1]
    cluster.clock.advance("1d1h")
    assert offsets(cluster, topic) == (end - 1, end)
    for node_id in cluster.node_ids:  # a follower may learn the high watermark a moment later
        until(lambda node_id=node_id: segments(cluster, node_id, topic)[0] == end - 1)
    assert committed(cluster, f"{topic}-old", topic) == confluent_kafka.OFFSET_INVALID
    assert committed(cluster, f"{topic}-new", topic) == 1
    with pytest.raises(TransactionalIdNotFound):
        cluster.ask(lambda admin: admin.transactions.describe(topic))


@pytest.mark.in_turn
def test_clock_advanced_by_nine_days_while_a_node_is_down_is_kept_after_restarts(
    cluster: Cluster, topic: str
) -> None:
    write(cluster, topic, "old", "older")
    cluster.kill(3)
    before = cluster.clock.show().advanced_ms
    advanced_ms = cluster.clock.advance("4d").advanced_ms
    assert advanced_ms == before + 4 * 86_400_000
    cluster.clock.advance("5d")
    write(cluster, topic, "new", acks="all")
    assert offsets(cluster, topic) == (2, 3)
    cluster.down()
    cluster.up()
    until(lambda: segments(cluster, 3, topic) == [2])
    status = cluster.clock.show()
    assert status.advanced_ms == before + 9 * 86_400_000 and status.behind == ()
    assert status.now_ms >= (time.time() - 60) * 1000 + status.advanced_ms
    assert offsets(cluster, topic) == (2, 3)  # later records are not older than their timestamps


def test_clock_advanced_by_a_month_keeps_group_members_and_broker_sessions(
    cluster: Cluster, topic: str
) -> None:
    consumer = Consumer(cluster.client_config(**{"group.id": topic, "log_level": 0}))
    lost: list[Any] = []
    consumer.subscribe([topic], on_revoke=lambda *_: lost.append(1))
    until(lambda: bool(consumer.poll(0.1) or consumer.assignment()), timeout_s=30)
    before = fences(cluster)
    cluster.clock.advance("30d")
    consumer.poll(1)
    assert consumer.assignment() and not lost
    assert fences(cluster) == before
    consumer.close()


def test_clock_advance_sent_to_all_nodes_with_one_operation_id_is_applied_once(
    cluster: Cluster,
) -> None:
    before = cluster.clock.show().advanced_ms
    request = {"op": "advance-clock", "by_ms": HOUR_MS, "operation_id": "ab" * 16}
    for node_id in cluster.node_ids:
        answer = admin_socket_client.ask(cluster.peer_directory, node_id, request)
        assert answer["advanced_ms"] == before + HOUR_MS


def test_clock_commands_advance_and_show_the_time(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    before = cluster.clock.show().advanced_ms
    data = ["--data", str(cluster.data)]
    assert main.run(["clock", "advance", "1h", *data]) == 0
    assert "it was advanced by" in capsys.readouterr().out
    assert main.run(["clock", "show", *data, "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["advanced_ms"], shown["behind"]) == (before + HOUR_MS, [])
    assert main.run(["clock", "advance", "soon", *data]) == 2


def test_clock_advanced_in_a_test_is_listed_in_its_timeline(cluster: Cluster) -> None:
    handle = ClusterInTest(cluster, Wanted(clock="controlled"), seed=1, test="t", number=1)
    handle.clock.advance("1h30m")
    assert "the clock was advanced by 1h30m" in dict(handle.sections())["oncelog timeline"]


async def test_clock_control_of_a_broker_with_the_system_clock_is_refused_with_a_clear_message(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as broker:
        node = SimpleNamespace(node_id=1, state="running")
        directory = Path(broker.config.peer_directory)
        cluster = SimpleNamespace(peer_directory=directory, status=lambda: [node])
        control = ClockControl(cast(Cluster, cluster))
        for wish in (control.show, lambda: control.advance("15m")):
            with pytest.raises(ClockNotControlled, match="oncelog up --clock controlled"):
                await asyncio.to_thread(wish)


def test_cluster_plan_with_a_controlled_clock_also_changes_an_existing_cluster(
    tmp_path: Path,
) -> None:
    plan = ClusterPlan(nodes=1, clock="controlled", overrides={"log.retention.hours": "1"})
    assert plan.settings["oncelog.clock"] == "controlled"
    known = ClusterPlan(nodes=1).new_file()
    assert "oncelog.clock" not in known.settings
    assert plan.reused_file(tmp_path, known, []).settings["oncelog.clock"] == "controlled"
    with pytest.raises(Failure, match="There is no clock 'atomic'; there are system, controlled"):
        ClusterPlan(nodes=1, clock="atomic")


def test_tests_with_different_clocks_get_different_shared_clusters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters = Clusters()
    monkeypatch.setattr(clusters, "start", lambda nodes, clock: (nodes, clock, object()))
    kinds = [(3, None), (3, "controlled"), (1, None), (3, None), (3, "controlled")]
    made = [clusters.shared(*kind) for kind in kinds]
    assert made[0] is made[3] and made[1] is made[4] and len(set(map(id, made))) == 3
