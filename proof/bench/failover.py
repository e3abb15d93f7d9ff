"""`bench failover` measures the time from kill -9 of a leader to the next acknowledged write.

The benchmark uses one partition, and an idempotent producer that sends a record every 3 ms. The
time begins when the leader is known to be dead (its pid is gone, its port refuses). The time ends
with the first acknowledgement of a record that was sent after the death.
"""

import statistics
import threading
import time
from collections.abc import Callable
from typing import Any

from ...deploy.cluster.ends.flag import Flag
from ...deploy.cluster.failure import Failure
from ...deploy.cluster.local_cluster import Cluster
from .load import percentile
from .target import BenchTarget

REPLICAS = 3
INTERVAL_S, SETTLE_S, TIMEOUT_S = 0.003, 0.7, 60.0
CLIENT_SETTINGS: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 0,
    "message.timeout.ms": 60_000,
    "retry.backoff.ms": 10,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 20,
}


class _Drip(threading.Thread):
    """A thread that sends a record every few ms.

    It notes when the first record that was sent after `killed_at` is acknowledged.
    """

    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        super().__init__(daemon=True)
        self._settings, self._topic = settings, topic
        self._stop_asked = Flag()
        self.killed_at = float("inf")
        self.first_after: float | None = None
        self.acknowledged = 0
        self.failures: list[str] = []

    def run(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({**self._settings, "log_level": 0})
        while not self._stop_asked.is_set():
            handed_over = time.perf_counter()
            producer.produce(
                self._topic,
                b"x",
                on_delivery=lambda error, _, at=handed_over: self._delivered(error, at),
            )
            producer.poll(0)
            time.sleep(INTERVAL_S)
        producer.flush(30)

    def stop(self) -> None:
        """Stop sending and wait for the last delivery reports."""
        self._stop_asked.set()
        self.join()

    def _delivered(self, error: Any, handed_over: float) -> None:
        if error is not None:
            self.failures.append(error.name())
            return
        self.acknowledged += 1
        if handed_over > self.killed_at and self.first_after is None:
            self.first_after = time.perf_counter()


def run_failovers(target: BenchTarget, kills: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Kill the partition's leader `kills` times.

    Return each failover time in ms, p50, p99 and max.
    """
    cluster = target.cluster
    if cluster is None:
        raise Failure("bench failover needs a local cluster, because it kills the nodes.")
    if len(cluster.node_ids) < REPLICAS:
        raise Failure("bench failover needs 3 nodes, because with fewer no node can take over.")
    topic = target.make_topic(1, REPLICAS, 2)
    times_ms: list[float] = []
    for kill in range(kills):
        cluster.wait_for_isr(topic, REPLICAS)
        times_ms.append(_one(cluster, topic))
        say(f"kill {kill + 1} of {kills}: {times_ms[-1]:.0f} ms until a write was acknowledged")
    return {
        "kills": kills,
        "p50_ms": statistics.median(times_ms),
        "p99_ms": percentile(times_ms, 0.99),
        "max_ms": max(times_ms),
        "all_ms": [round(t, 1) for t in times_ms],
    }


def _one(cluster: Cluster, topic: str) -> float:
    drip = _Drip(cluster.client_config(**CLIENT_SETTINGS), topic)
    drip.start()
    time.sleep(SETTLE_S)
    node = cluster.kill(f"leader:{topic}/0")
    drip.killed_at = killed_at = time.perf_counter()
    while drip.first_after is None and time.perf_counter() < killed_at + TIMEOUT_S:
        time.sleep(0.001)
    first = drip.first_after
    cluster.start(node)
    drip.stop()
    if drip.failures:
        raise Failure(f"The producer got the error {drip.failures[0]}, which must not happen.")
    if first is None:
        raise Failure(f"Nothing was acknowledged for {TIMEOUT_S:.0f} s after the kill.")
    return (first - killed_at) * 1000
