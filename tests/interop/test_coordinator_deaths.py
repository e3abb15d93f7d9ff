"""A transaction's coordinator is killed at each step of the transaction, by name and not by luck.

Whatever the client was told is true afterwards: what was committed is there once, what was not is
not, readers of committed data come to the end, and the producer can go on.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.coordinator.transactions.fault_points import FAULT_POINTS
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.deploy.cluster.node_process import NodeProcess

from .node_that_dies import arm, has_died, program

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore"),  # the library's own
]
TOPIC = "deaths"
PARTITIONS = 3
PATIENCE_S = 40.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    from confluent_kafka.admin import AdminClient, NewTopic

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NodeProcess, "program", program)
        with Cluster(nodes=3) as running:
            admin = AdminClient({"bootstrap.servers": running.bootstrap, "log_level": 0})
            for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)]).values():
                created.result(30)
            running.wait_for_isr(TOPIC, 3)
            yield running


def transaction(producer, marks: list[bytes]) -> bool:
    """Write the marks in one transaction; whether it was committed, in the end for certain."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + PATIENCE_S
    producer.begin_transaction()
    try:
        for number, mark in enumerate(marks):
            producer.produce(TOPIC, mark, partition=number % PARTITIONS)
        producer.flush(PATIENCE_S)
        commit = producer.commit_transaction
        while True:
            try:
                commit(PATIENCE_S)
                return True
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
    except KafkaException as error:
        assert error.args[0].txn_requires_abort(), error
    while True:
        try:
            producer.abort_transaction(PATIENCE_S)
            return False
        except KafkaException as error:
            assert error.args[0].retriable() and time.monotonic() < deadline, error


def end_of(consumer: Any, index: int) -> int:
    """The high watermark; a new leader does not tell it before it is sure of it (KIP-207)."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return consumer.get_watermark_offsets(TopicPartition(TOPIC, index), PATIENCE_S)[1]
        except KafkaException as problem:
            assert problem.args[0].code() == KafkaError.OFFSET_NOT_AVAILABLE, problem
            assert time.monotonic() < deadline, problem
            time.sleep(0.05)


def committed(cluster: Cluster) -> list[bytes]:
    """All that readers of committed data see; each partition must come to its end."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    rows: list[bytes] = []
    try:
        ends = {}
        for index in range(PARTITIONS):
            ends[index] = end_of(consumer, index)
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        missing = set(ends)
        deadline = time.monotonic() + PATIENCE_S
        while missing:
            assert time.monotonic() < deadline, f"partitions {missing} are stuck"
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                if message.offset() >= ends[message.partition()]:
                    missing.discard(message.partition())
            else:
                rows.append(message.value())
    finally:
        consumer.close()
    return rows


@pytest.mark.parametrize("fault_point", FAULT_POINTS)
def test_what_the_producer_was_told_is_true(cluster: Cluster, fault_point: str) -> None:
    from confluent_kafka import Producer

    name = fault_point.replace(".", "-")
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(PATIENCE_S)
    told: dict[bytes, bool] = {}
    for number in range(6):
        if number == 1:
            arm(cluster.data, fault_point)
        marks = [f"{name}/{number}/{i}".encode() for i in range(6)]
        told |= dict.fromkeys(marks, transaction(producer, marks))
    deadline = time.monotonic() + PATIENCE_S
    while not has_died(cluster.data):
        assert time.monotonic() < deadline, "nobody came to the point"
        time.sleep(0.05)
    seen = [row for row in committed(cluster) if row.startswith(f"{name}/".encode())]
    assert sorted(seen) == sorted(mark for mark, is_committed in told.items() if is_committed)
    assert sum(told.values()) >= 5 * 6, "a death costs one transaction at most"
    cluster.start_all([s.node_id for s in cluster.status() if s.state == "down"])
    cluster.wait_for_isr(TOPIC, 3)
