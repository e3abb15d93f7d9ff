"""Measure the client's microseconds of Python for each record, beside confluent-kafka.

    .venv/bin/python tests/client/speed.py cost
    .venv/bin/python tests/client/speed.py compare [--bootstrap HOST:PORT] [--records N]

`cost` measures the CPU time for a record, without a network: from the call to the bytes of a
request, and from the bytes of an answer to the application. It prints the best of several runs.
`compare` writes and reads records of 1000 bytes in large batches, in each way of the two clients in
turn, on one cluster (its own of three nodes, unless another is named). It prints all rounds.
"""

import argparse
import asyncio
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from oncelog.client import Admin, BlockingProducer, Consumer, Producer
from oncelog.client.cluster_view import ClusterView, PartitionInfo
from oncelog.client.fetch.state import FetchState
from oncelog.client.loop_thread import new_event_loop
from oncelog.wire.compression import CODEC_NAMES

COUNT, REPEATS, PARTITIONS, BATCH_BYTES = 20_000, 5, 3, 1 << 20
HEADERS = (("trace", b"0123456789abcdef"), ("kind", b"order"))


def value_of(size: int, number: int) -> bytes:
    """Return text of this size that compresses about as well as JSON does."""
    line = b'{"carrier": "AA", "flight": %d, "delay": %d}' % (number, number * 7919 % 1000)
    return (line * (size // len(line) + 1))[:size]


def cpu_us(work: Callable[[], object], count: int) -> float:
    """Return the CPU time per record in microseconds, the best of several runs."""
    found = []
    for _ in range(REPEATS):
        before = time.process_time()
        work()
        found.append((time.process_time() - before) / count * 1e6)
    return min(found)


class Unsent:
    """A producer that encodes its batches and drops them."""

    def __init__(self, **settings: Any) -> None:
        view = ClusterView("127.0.0.1:1")
        view.snapshot.partitions = {
            ("t", p): PartitionInfo(
                topic="t", partition=p, leader=1, leader_epoch=0, replicas=(1,), isr=(1,)
            )
            for p in range(PARTITIONS)
        }
        self.producer = Producer(view, buffer_memory=1 << 40, **settings)
        self.producer.identity.producer_id = self.producer.identity.producer_epoch = 1
        self.producer._sender.start = lambda: None  # type: ignore[method-assign]

    def encode(self) -> None:
        batches = self.producer._batches
        while taken := batches.take(1 << 60):
            for batch in taken:
                self.producer._sender._encode(batch)
                batches.finish(batch, is_written=True)

    def one_by_one(self, values: list[bytes], keys: Any, headers: Any) -> None:
        send = self.producer.try_send
        for value, key in zip(values, keys or [None] * len(values), strict=True):
            send("t", value, key, None, None, headers or ())
        self.encode()

    def by_columns(self, values: list[bytes], keys: Any, headers: Any) -> None:
        listed = None if headers is None else [headers] * len(values)
        asyncio.run(self._columns(values, keys, listed))
        self.encode()

    async def _columns(self, values: list[bytes], keys: Any, headers: Any) -> None:
        await self.producer.send_many("t", values, keys=keys, headers=headers)


def fetched(values: list[bytes], keys: Any, headers: Any, compression: str) -> bytes:
    """Return the bytes of a Fetch answer with these records."""
    unsent = Unsent(compression_type=compression)
    made: list[bytes] = []
    offset = 0
    listed = None if headers is None else [headers] * len(values)
    asyncio.run(unsent._columns(values, keys, listed))
    batches = unsent.producer._batches
    while taken := batches.take(1 << 60):
        for batch in taken:
            unsent.producer._sender._encode(batch)
            assert batch.encoded is not None
            encoded = bytearray(batch.encoded)
            encoded[:8] = offset.to_bytes(8, "big")
            offset += batch.builder.count
            made.append(bytes(encoded))
            batches.finish(batch, is_written=True)
    return b"".join(made)


def read(data: bytes, by_columns: bool) -> None:
    state = FetchState("t", 0, 0)
    state.load(data, None)
    if by_columns:
        while state.take_columns(read_committed=True) is not None:
            pass
    else:
        while state.take(1 << 30, read_committed=True):
            pass


def cost() -> None:
    cases: list[tuple[str, int, bool, bool, str]] = [
        ("1 kB", 1_000, False, False, "none"),
        ("1 kB, key", 1_000, True, False, "none"),
        ("1 kB, key, 2 headers", 1_000, True, True, "none"),
        ("100 B", 100, False, False, "none"),
        ("100 B, key", 100, True, False, "none"),
        *[(f"1 kB, {codec}", 1_000, False, False, codec) for codec in CODEC_NAMES[1:]],
    ]
    print("| record | `send` | `send_many` | `poll` | `poll_columns` |")
    print("| --- | --- | --- | --- | --- |")
    for case in cases:
        name, size, has_key, has_headers, codec = case
        values = [value_of(size, i) for i in range(COUNT)]
        keys = [b"key-%06d" % (i % 5_000) for i in range(COUNT)] if has_key else None
        figures = costs(values, keys, HEADERS if has_headers else None, codec)
        print(f"| {name} | " + " | ".join(f"{each:.2f}" for each in figures) + " |", flush=True)


def costs(values: list[bytes], keys: Any, headers: Any, codec: str) -> list[float]:
    unsent = Unsent(compression_type=codec)
    data = fetched(values, keys, headers, codec)
    return [
        cpu_us(lambda: unsent.one_by_one(values, keys, headers), COUNT),
        cpu_us(lambda: unsent.by_columns(values, keys, headers), COUNT),
        cpu_us(lambda: read(data, False), COUNT),
        cpu_us(lambda: read(data, True), COUNT),
    ]


# --- against confluent-kafka


@contextmanager
def cluster(bootstrap: str | None) -> Iterator[str]:
    if bootstrap is not None:
        yield bootstrap
        return
    from oncelog.deploy.cluster.local_cluster import Cluster

    with Cluster(nodes=3) as running:
        yield running.bootstrap


def run(work: Any) -> Any:
    loop = new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


async def new_topic(bootstrap: str) -> str:
    name = f"speed-{time.time_ns()}"
    async with Admin(bootstrap) as admin:
        await admin.create_topic(name, partitions=PARTITIONS, replication_factor=-1)
    await asyncio.sleep(1)
    return name


async def ours_one_by_one(bootstrap: str, topic: str, values: list[bytes]) -> None:
    async with Producer(bootstrap, batch_size=BATCH_BYTES // 2, linger_ms=20) as producer:
        for value in values:
            await producer.send(topic, value)


def ours_blocking(bootstrap: str, topic: str, values: list[bytes]) -> None:
    with BlockingProducer(bootstrap, batch_size=BATCH_BYTES // 2, linger_ms=20) as producer:
        for value in values:
            producer.send(topic, value)


async def ours_by_columns(bootstrap: str, topic: str, values: list[bytes]) -> None:
    async with Producer(bootstrap, batch_size=BATCH_BYTES // 2, linger_ms=20) as producer:
        for at in range(0, len(values), 10_000):
            await producer.send_many(topic, values[at : at + 10_000])


def theirs_write(bootstrap: str, topic: str, values: list[bytes]) -> None:
    import confluent_kafka

    settings = {
        "bootstrap.servers": bootstrap,
        "enable.idempotence": True,
        "linger.ms": 20,
        "batch.size": BATCH_BYTES // 2,
        "queue.buffering.max.kbytes": 32 * 1024,
    }
    producer = confluent_kafka.Producer(settings)
    failed: list[object] = []

    def delivered(error: object, message: object) -> None:
        if error is not None:
            failed.append(error)

    for value in values:
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush()
    assert not failed


async def ours_read(bootstrap: str, topic: str, count: int) -> None:
    async with Consumer(bootstrap) as consumer:
        consumer.assign({(topic, p): 0 for p in range(PARTITIONS)})
        found = 0
        while found < count:
            found += len(await consumer.poll(1_000))


async def ours_read_columns(bootstrap: str, topic: str, count: int) -> None:
    async with Consumer(bootstrap) as consumer:
        consumer.assign({(topic, p): 0 for p in range(PARTITIONS)})
        found = 0
        while found < count:
            found += sum(len(c.values) for c in await consumer.poll_columns(1_000))


def theirs_read(bootstrap: str, topic: str, count: int) -> None:
    import confluent_kafka

    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "speed",
        "enable.auto.commit": False,
        "fetch.max.bytes": 16 << 20,
        "max.partition.fetch.bytes": 4 << 20,
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
    found = 0
    while found < count:
        for message in consumer.consume(10_000, 1.0):
            assert message.value() is not None
            found += 1
    consumer.close()


def compare(bootstrap: str, count: int, rounds: int) -> None:
    values = [os.urandom(1_000) for _ in range(1_000)] * (count // 1_000)
    count = len(values)
    writers: list[tuple[str, Callable[[str], object]]] = [
        ("confluent-kafka produce", lambda t: theirs_write(bootstrap, t, values)),
        ("ours send", lambda t: run(ours_one_by_one(bootstrap, t, values))),
        ("ours blocking send", lambda t: ours_blocking(bootstrap, t, values)),
        ("ours send_many", lambda t: run(ours_by_columns(bootstrap, t, values))),
    ]
    readers: list[tuple[str, Callable[[str], object]]] = [
        ("confluent-kafka consume", lambda t: theirs_read(bootstrap, t, count)),
        ("ours poll", lambda t: run(ours_read(bootstrap, t, count))),
        ("ours poll_columns", lambda t: run(ours_read_columns(bootstrap, t, count))),
    ]
    print(f"{count} records of 1000 bytes, {PARTITIONS} partitions, acks=all")
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}; load {os.getloadavg()[0]:.1f}")
        topic = ""
        for name, work in writers:
            topic = run(new_topic(bootstrap))
            show(name, count, lambda work=work, topic=topic: work(topic))
        for name, work in readers:
            show(name, count, lambda work=work, topic=topic: work(topic))


def show(name: str, count: int, work: Callable[[], object]) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    speed = count / wall / 1e3  # thousands of records, and with 1000 bytes each also megabytes
    each_us = f"{wall / count * 1e6:5.2f} us, {cpu / count * 1e6:5.2f} us CPU of this process"
    print(f"  {name:24} {speed:7.0f} k/s {speed:7.0f} MB/s {each_us}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("what", choices=["cost", "compare"])
    parser.add_argument("--bootstrap")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}")
    if given.what == "cost":
        cost()
        return
    with cluster(given.bootstrap) as bootstrap:
        compare(bootstrap, given.records, given.rounds)


if __name__ == "__main__":
    sys.exit(main())
