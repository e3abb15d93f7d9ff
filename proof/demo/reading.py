"""Reads the demo's topics with a plain consumer of committed records."""

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...deploy.cluster.ends.flag import poll
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.local_cluster import Cluster
from ...deploy.inspect.transaction_facts import OPEN_STATES
from ..judge.contents import EndOfPartition

READ_TIMEOUT_S = 60.0
LATEST = -1


def read_back(
    config: Mapping[str, Any], topic: str, partitions: int
) -> list[tuple[int, int, bytes, bytes]]:
    """Return every committed record of the topic as (partition, offset, key, value)."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            **config,
            "group.id": "oncelog-demo",  # partitions are assigned directly, without a group
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
        }
    )
    read: list[tuple[int, int, bytes, bytes]] = []
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        open_ends, deadline = set(range(partitions)), time.monotonic() + READ_TIMEOUT_S
        while open_ends:
            if time.monotonic() > deadline:
                raise Failure(f"Reading {topic} back took more than {READ_TIMEOUT_S:.0f} s.")
            for message in consumer.consume(5_000, 0.5):
                error = message.error()
                if error is None:
                    at = (message.partition() or 0, message.offset() or 0)  # never None here
                    read.append((*at, message.key() or b"", message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ends.discard(message.partition())
                elif not error.retriable():
                    raise Failure(f"Reading {topic} back failed: {error.str()}")
    finally:
        consumer.close()
    return read


def wait_for(what: Callable[[], bool], timeout_s: float) -> bool:
    return poll(what, timeout_s, 0.05)


def ends_of(cluster: Cluster, topics: Iterable[str] | None = None) -> list[EndOfPartition]:
    """Return LSO and high watermark of each partition of these topics (all topics if None)."""
    wanted = None if topics is None else list(topics)

    async def ask(admin: Any) -> list[EndOfPartition]:
        keys = [(p.topic, p.partition) for p in await admin.describe_topics(wanted)]
        high = await admin.list_offsets(dict.fromkeys(keys, LATEST))
        stable = await admin.list_offsets(dict.fromkeys(keys, LATEST), read_committed=True)
        return [
            EndOfPartition(
                name=f"{key[0]}/{key[1]}", last_stable_offset=stable[key], high_watermark=high[key]
            )
            for key in keys
        ]

    return cluster.ask(ask)


def open_transactions(cluster: Cluster) -> Mapping[str, str]:
    """Return the states of unfinished transactions by transactional id."""
    found = cluster.ask(lambda admin: admin.transactions.list_transactions(states=OPEN_STATES))
    return {t.transactional_id: t.state for t in found}
