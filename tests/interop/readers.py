"""Create topics, fill them, and read them to their ends with confluent-kafka."""

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster

from ..waiting import until

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

WITH_LIBRARIES = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]  # they warn
TIMEOUT_S = 40.0
ANSWER_S = 5.0  # librdkafka asks a dead broker until its own timeout
QUIET = {"log_level": 0}


def new_topic(cluster: Cluster, name: str, partitions: int = 1, **configs: str) -> str:
    """Create a topic, in sync on all nodes and known to all brokers, and return its name."""
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    count = len(cluster.node_ids)
    cluster.ask(
        lambda admin: admin.create_topic(
            name, partitions=partitions, replication_factor=count, configs=dotted
        )
    )
    cluster.wait_for_isr(name, count)
    return name


def fill(
    bootstrap: str,
    topic: str,
    rows: Iterable[tuple[bytes | None, bytes, int]],
    **settings: Any,
) -> None:
    """Write rows of (key, value, partition), and return when all are acknowledged."""
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, **QUIET, **settings}
    )
    for key, value, partition in rows:
        producer.produce(topic, value, key, partition)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def messages(
    bootstrap: str, topic: str, partitions: int, *, committed: bool = True
) -> list["Message"]:
    """Read all records, and fail if the end of a partition is not reached.

    committed: read with read_committed, up to the last stable offset, which is below the log end
    while a transaction is open.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "of no group",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.auto.commit": False,  # else its end waits for a coordinator
            "enable.partition.eof": True,
            **QUIET,
        }
    )
    found: list[Message] = []
    try:
        ends = {index: _end_of(consumer, topic, index) for index in range(partitions)}
        consumer.assign([TopicPartition(topic, index, 0) for index in ends])
        deadline = time.monotonic() + TIMEOUT_S
        while ends:
            assert time.monotonic() < deadline, f"{topic} is not read to its ends {ends}"
            for message in consumer.consume(1000, 0.2):
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None and offset is not None
                if error is None:
                    found.append(message)
                    continue
                assert error.code() == KafkaError._PARTITION_EOF, error
                if offset >= ends.get(partition, 0):  # a new leader may know an older end
                    ends.pop(partition, None)
    finally:
        consumer.close()
    return found


def _end_of(consumer: "Consumer", topic: str, partition: int) -> int:
    """Return the end offset of a partition for the consumer's isolation level.

    The request is repeated if a new leader refuses it (KIP-207).
    """
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    ends: list[int] = []

    def is_known() -> bool:
        try:
            place = TopicPartition(topic, partition)
            ends.append(consumer.get_watermark_offsets(place, ANSWER_S)[1])
        except KafkaException as problem:
            code = problem.args[0].code()
            assert code in (KafkaError.OFFSET_NOT_AVAILABLE, KafkaError._TIMED_OUT), problem
            # librdkafka would ask the known leader for ever, even after that leader's death.
            with suppress(KafkaException):
                consumer.list_topics(topic, ANSWER_S)
        return bool(ends)

    until(is_known, f"no broker gives the end of {topic}/{partition}", TIMEOUT_S)
    return ends[0]


def read_to_end(
    bootstrap: str, topic: str, partitions: int, *, committed: bool = True
) -> list[tuple[int, bytes]]:
    """Return (partition, value) of all records, as `messages` reads them."""
    found = messages(bootstrap, topic, partitions, committed=committed)
    return [(message.partition() or 0, message.value() or b"") for message in found]
