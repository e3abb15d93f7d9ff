"""The measured cluster, with new topics, its brokers' CPU time, and a producer's load."""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil
from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

Figures = dict[str, float]
REPLICATION_FACTOR, MIN_INSYNC = 3, 2
IN_SYNC_TIMEOUT_S, DELIVERY_TIMEOUT_S = 30.0, 60.0
QUEUE_KBYTES = 64 * 1024  # of all producers of a load; bounds the unsent rest when time is up
CHUNK = 200


@dataclass(slots=True)
class Target:
    """A Kafka-compatible cluster. Its CPU time is measured if the brokers' pids are given."""

    bootstrap: str
    pids: Sequence[int]
    seconds: float
    admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})

    @property
    def warm_up_s(self) -> float:
        return self.seconds / 3

    def settings(self, **more: Any) -> dict[str, Any]:
        """Return the settings of a producer, with librdkafka's names."""
        return {"bootstrap.servers": self.bootstrap, "acks": "all", **more}

    @contextmanager
    def topic(self, partitions: int) -> Iterator[str]:
        """Yield a new topic with all replicas in sync, and delete it with its files afterwards."""
        name = f"variants-{time.time_ns():x}"
        configs = {"min.insync.replicas": str(MIN_INSYNC), "file.delete.delay.ms": "1000"}
        new = NewTopic(name, partitions, REPLICATION_FACTOR, config=configs)
        self.admin.create_topics([new])[name].result(IN_SYNC_TIMEOUT_S)
        deadline = time.monotonic() + IN_SYNC_TIMEOUT_S
        while not self._is_in_sync(name, partitions):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name}: not all replicas in sync in {IN_SYNC_TIMEOUT_S:g} s")
            time.sleep(0.02)
        try:
            yield name
        finally:
            self.admin.delete_topics([name])[name].result(IN_SYNC_TIMEOUT_S)

    def _is_in_sync(self, name: str, partitions: int) -> bool:
        found = self.admin.list_topics(name, timeout=10).topics[name].partitions.values()
        return len(found) == partitions and all(
            each.leader >= 0 and len(each.isrs) == REPLICATION_FACTOR for each in found
        )

    def cpu_s(self) -> float:
        """Return the CPU seconds that all brokers have used so far, or 0 without pids."""
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in self.pids)

    def costs(self, **figures: float) -> Figures:
        """Return these figures of CPU time, or an empty dict if the brokers' pids are unknown."""
        return figures if self.pids else {}


def latency_figures(seconds: Sequence[float]) -> Figures:
    """Return the p50 and p99, in ms, of durations in seconds."""
    ordered = sorted(seconds)
    at = {q: ordered[min(len(ordered) - 1, int(len(ordered) * q))] for q in (0.5, 0.99)}
    return {"p50_ms": at[0.5] * 1000, "p99_ms": at[0.99] * 1000}


def produce(
    target: Target, values: Sequence[bytes], *, producers: int = 1, compression: str = "none"
) -> Figures:
    """Measure idempotent producers with acks=all on a topic of 6 partitions for some seconds.

    All values have one size. Records that are queued at the end are sent and counted, and their
    time is measured too.
    KafkaException is raised if a record was not delivered.
    """
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failed.append(error)

    settings = target.settings(**{
        "enable.idempotence": True,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": QUEUE_KBYTES // producers,
        "delivery.report.only.error": True,  # Python is not called for each record
        "on_delivery": delivered,
        "compression.type": compression,
    })  # fmt: skip
    with target.topic(6) as topic:
        all_producers = [Producer(settings) for _ in range(producers)]
        _drive(all_producers, topic, values, target.warm_up_s)
        cpu_s, began = target.cpu_s(), time.perf_counter()
        count = _drive(all_producers, topic, values, target.seconds)
        seconds, cpu_s = time.perf_counter() - began, target.cpu_s() - cpu_s
    if failed:
        raise KafkaException(failed[0])
    total_bytes = count * len(values[0])
    return {
        "mb_per_s": total_bytes / 1e6 / seconds,
        "records_per_s": count / seconds,
        **target.costs(
            cpu_s_per_gb=cpu_s / (total_bytes / 1e9), cpu_s_per_million=cpu_s / (count / 1e6)
        ),
    }


def _drive(
    producers: Sequence[Producer], topic: str, values: Sequence[bytes], seconds: float
) -> int:
    """Run the producers in turn in one thread, and return the number of delivered records."""
    count, end = 0, time.perf_counter() + seconds
    chunk = list(values) * -(-CHUNK // len(values))
    while time.perf_counter() < end:
        before = count
        for producer in producers:
            try:
                for value in chunk:
                    producer.produce(topic, value)
                    count += 1
            except BufferError:
                pass
            producer.poll(0)
        if count == before:  # all queues are full: let one drain
            producers[0].poll(0.01)
    for producer in producers:
        if left := producer.flush(DELIVERY_TIMEOUT_S):
            raise TimeoutError(f"{left} records not delivered in {DELIVERY_TIMEOUT_S:g} s")
    return count


def random_bytes(size: int) -> bytes:
    return os.urandom(size)
