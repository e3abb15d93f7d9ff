"""The cost of TLS and of a login on one broker, ours beside Apache Kafka.

    python -m tests.interop.secured.measured_listeners [--rounds N] [--seconds S]

One node each, topics of six partitions, clients of librdkafka on the same machine. The brokers and
their listeners take turns in each round, and what is printed is the median of the rounds.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
import uuid
from itertools import product
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from oncelog.client import Admin

from .logins import Logins
from .secured_kafka import SERVER_JVM, SecuredKafka
from .secured_oncelog import SecuredOncelog

LISTENERS = ("PLAINTEXT", "SSL", "SASL_SSL")
PARTITIONS, VALUE_BYTES, CLIENTS = 6, 1_000, 4
FIGURES = ("produce MB/s", "consume MB/s", "p50 ms", "p99 ms", "connections/s")
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
RIGHTS = {"super.users": "User:ANONYMOUS;User:alice", "allow.everyone.if.no.acl.found": "true"}
Settings = dict[str, Any]


def settings_of(broker: Logins, listener: str) -> Settings:
    """Return librdkafka's settings. `TLS` is the listener without client certificates."""
    if listener == "PLAINTEXT":
        return {"bootstrap.servers": broker.bootstrap}  # type: ignore[attr-defined]
    if listener == "SASL_SSL":
        return broker.login("SASL_SSL", "SCRAM-SHA-512")
    return {
        "bootstrap.servers": broker.address("TLS"),
        "security.protocol": "SSL",
        "ssl.ca.location": str(broker.files.ca),
    }


def produce(settings: Settings, topic: str, seconds: float) -> tuple[float, int]:
    """Return MB/s and the number of records, with acks=all, idempotence and random-like values."""
    producer = Producer(
        {**settings, "enable.idempotence": True, "queue.buffering.max.kbytes": 64 * 1024}
    )
    value, count = os.urandom(VALUE_BYTES), 0
    begun = time.perf_counter()
    while time.perf_counter() < begun + seconds:
        try:
            for _ in range(500):
                producer.produce(topic, value)
                count += 1
        except BufferError:
            producer.poll(0.01)
    assert producer.flush(60) == 0
    return count * VALUE_BYTES / 1e6 / (time.perf_counter() - begun), count


def consume(settings: Settings, topic: str, count: int) -> float:
    """Return MB/s until all produced records are read, from the first record on."""
    consumer = Consumer({**settings, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    read = len(consumer.consume(1, 30))
    begun = time.perf_counter()
    while read < count and time.perf_counter() < begun + 60:
        read += len(consumer.consume(10_000, 0.2))
    took_s = time.perf_counter() - begun
    consumer.close()
    assert read >= count, f"{read} of {count} records were read"
    return read * VALUE_BYTES / 1e6 / took_s


def latencies_ms(settings: Settings, topic: str, seconds: float) -> list[float]:
    """Return how long each record took, one at a time."""
    producer, took = Producer({**settings, "linger.ms": 0}), list[float]()
    end_s = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end_s:
        producer.produce(topic, b"x" * 100, partition=0)
        assert producer.flush(30) == 0
        took.append((time.perf_counter() - begun) * 1_000)
    return sorted(took[len(took) // 10 :])


def connections_s(settings: Settings, seconds: float) -> float:
    """Return how many clients a second connect, log in, ask for the cluster's nodes and leave."""

    async def come_and_go() -> int:
        count = 0
        while time.perf_counter() < begun + seconds:
            async with Admin(settings) as admin:
                await admin.describe_cluster()
            count += 1
        return count

    async def all_of_them() -> int:
        return sum(await asyncio.gather(*(come_and_go() for _ in range(CLIENTS))))

    begun = time.perf_counter()
    return asyncio.run(all_of_them()) / (time.perf_counter() - begun)


def measure(broker: Logins, listener: str, seconds: float) -> tuple[float, ...]:
    settings = settings_of(broker, listener)
    topic = f"m-{uuid.uuid4().hex[:8]}"
    administrator = AdminClient(settings_of(broker, "PLAINTEXT"))
    administrator.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    produce(settings, topic, 1.0)
    produced, count = produce(settings, topic, seconds)
    consumed = consume(settings, topic, count)
    took = latencies_ms(settings, topic, seconds)
    p50, p99 = (took[int(len(took) * share)] for share in (0.5, 0.99))
    figures = (produced, consumed, p50, p99, connections_s(settings, seconds))
    administrator.delete_topics([topic])[topic].result(30)
    return figures


def show(name: str, found: dict[str, list[tuple[float, ...]]]) -> None:
    """Print the medians of each listener, and their ratios to plain text below them."""
    plain: list[float] = []
    for listener in LISTENERS:
        medians = [statistics.median(each) for each in zip(*found[listener], strict=True)]
        print(f"{name:8} {listener:9}" + "".join(f"{value:14.2f}" for value in medians))
        if not plain:
            plain = medians
            continue
        ratios = [value / base for value, base in zip(medians, plain, strict=True)]
        print(" " * 18 + "".join(f"{ratio:13.2f}x" for ratio in ratios))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each figure")
    given = parser.parse_args()
    found: dict[str, dict[str, list[tuple[float, ...]]]] = {}
    with tempfile.TemporaryDirectory(prefix="oncelog-") as place, contextlib.ExitStack() as stack:
        folder = Path(place)
        ours = SecuredOncelog(folder / "oncelog", RIGHTS | {"authorizer.class.name": AUTHORIZER})
        peer = SecuredKafka(folder / "kafka", RIGHTS, flags=SERVER_JVM)
        brokers = {"oncelog": stack.enter_context(ours), "kafka": stack.enter_context(peer)}
        for number in range(given.rounds + 1):
            for (name, broker), listener in product(brokers.items(), LISTENERS):
                print(f"round {number}: {name} {listener}", file=sys.stderr, flush=True)
                figures = measure(broker, listener, given.seconds)
                if number:  # the first one warms the JVM
                    found.setdefault(name, {}).setdefault(listener, []).append(figures)
    print(" " * 18 + "".join(f"{figure:>14}" for figure in FIGURES))
    for name, of_listeners in found.items():
        show(name, of_listeners)
    return 0


if __name__ == "__main__":
    sys.exit(main())
