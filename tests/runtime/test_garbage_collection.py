"""Test that a broker's requests and connections end without reference cycles."""

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.node_process import NodeProcess
from oncelog.node.listener.dispatch import BODY_AT_ONCE_BYTES_MAX
from oncelog.wire.messages import fetch
from oncelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

from ..node import garbage_node
from ..size.connection import FETCH, Connection
from ..waiting import until

DEADLINE_S = 30
FETCH_VERSION = 4  # the oldest: without sessions
ROUNDS = 4
LONG_LIVED = tuple(
    f"oncelog.{part}."
    for part in ("wire", "storage", "replication.replica_session", "coordinator", "node")
)
# An exception raised where it was received references the frame that references it. Such cycles
# are garbage at once, so collections of young objects find them.
EXCEPTIONS_OBJECTS_MAX = 300


def one_round(cluster: Cluster, number: int) -> None:
    """Let clients connect, use a topic, transactions and a consumer group, and disconnect."""
    config: dict[str, Any] = {"bootstrap.servers": cluster.bootstrap, "log_level": 0}
    topic = f"topic-{number}"
    admin = AdminClient(config)
    admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(DEADLINE_S)
    producer = Producer({**config, "transactional.id": f"id-{number}"})
    producer.init_transactions(DEADLINE_S)
    for is_committed in (True, False):
        producer.begin_transaction()
        for partition in range(3):
            producer.produce(topic, b"value", partition=partition)
        producer.flush(DEADLINE_S)
        end = producer.commit_transaction if is_committed else producer.abort_transaction
        end(DEADLINE_S)
    consumer = Consumer({**config, "group.id": f"group-{number}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    deadline_s = time.monotonic() + DEADLINE_S
    for _ in range(3):
        while (message := consumer.poll(0.1)) is None or message.error():
            assert time.monotonic() < deadline_s
    consumer.commit(asynchronous=False)
    consumer.poll(0.7)  # a fetch waits for the whole of its max_wait_ms
    consumer.close()
    for status in cluster.status():
        if status.state != "running":
            continue
        port = int(status.address.split(":")[1])
        with socket.create_connection(("127.0.0.1", port)) as broken:
            broken.sendall(b"\x00\x00\x00\x08" + b"\xff" * 8)
            broken.recv(1)  # the connection is closed
        large_fetches(port, topic)
    admin.delete_topics([topic])[topic].result(DEADLINE_S)


def large_fetches(port: int, topic: str) -> None:
    """Send the same Fetch of 1,000 partitions three times, as librdkafka does, and disconnect."""
    partitions = [FetchPartition(index, 0, 1 << 20) for index in range(1000)]
    request = FetchRequest(100, 1, [FetchTopic(topic, None, partitions)])
    body = b"".join(fetch.encode_request(request, FETCH_VERSION))
    assert len(body) > BODY_AT_ONCE_BYTES_MAX
    client = Connection(("127.0.0.1", port))
    for _ in range(3):
        client.send(FETCH, FETCH_VERSION, body)
        client.receive(FETCH, FETCH_VERSION)
    client.close()


def garbage_of(cluster: Cluster, node_id: int) -> dict[str, int]:
    data = Path(cluster.data)
    answer = garbage_node.answer(data, node_id)
    answer.unlink(missing_ok=True)
    garbage_node.question(data, node_id).touch()
    until(answer.exists)
    return json.loads(answer.read_text())


@pytest.mark.cluster
@pytest.mark.in_turn
def test_garbage_collection_after_rounds_of_clients_finds_no_long_lived_and_few_other_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NodeProcess, "program", garbage_node.program)
    with Cluster(nodes=3, data=tmp_path / "cluster") as cluster:
        one_round(cluster, 0)  # objects that are made once are made now
        for node_id in cluster.node_ids:
            garbage_of(cluster, node_id)
        for number in range(1, ROUNDS):
            one_round(cluster, number)
        victim = cluster.controller()
        cluster.kill(victim)
        one_round(cluster, ROUNDS)
        cluster.start(victim)
        for node_id in cluster.node_ids:
            if node_id != victim:
                found = garbage_of(cluster, node_id)
                assert not [name for name in found if name.startswith(LONG_LIVED)], found
                assert sum(found.values()) <= EXCEPTIONS_OBJECTS_MAX, found
