"""Runs one load on one topic, at full speed or at a rate, and measures its rate and latency.

At a rate, latency counts from the time at which a record was due, not from the time at which a
stalled producer sent the record. This rule corrects coordinated omission.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

LATENCY_MAX_US, SIGNIFICANT_DIGITS = 120_000_000, 3
CHUNK, SAMPLE_EVERY = 500, 101
WARM_UP_S = 1.0
PERCENTILES = (50.0, 95.0, 99.0, 99.9)


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The counts and the latencies (ms) of one run of a load.

    failed: the timed records that were not delivered. records: all others, without those that the
    last flush left unacknowledged.
    """

    records: int
    failed: int
    record_bytes: int
    seconds: float
    percentiles_ms: dict[float, float]
    mean_ms: float
    max_ms: float
    curve: list[tuple[float, float]]  # (percentile, ms), for the plot

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds

    @property
    def mb_per_s(self) -> float:
        """Return the acknowledged megabytes (1e6) of values per second."""
        return self.records_per_s * self.record_bytes / 1e6


def run_load(
    settings: dict[str, Any],
    topic: str,
    *,
    record_bytes: int,
    seconds: float,
    rate: float | None = None,
    when_warm: Callable[[], None] = lambda: None,
) -> LoadResult:
    """Drive a warmed-up producer for `seconds`, at `rate` records/s, or at full speed without it.

    At full speed one record in SAMPLE_EVERY is timed, as in Kafka's own tool. At a rate, all
    records are timed. `when_warm` is called between the warm-up and the measurement.
    """
    from confluent_kafka import Producer
    from hdrh.histogram import HdrHistogram

    producer = Producer(
        {
            "enable.idempotence": settings.get("acks", "all") == "all",
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 256 * 1024,
            **settings,
        }
    )
    value = os.urandom(record_bytes // 2) + b"x" * (record_bytes - record_bytes // 2)
    histogram = HdrHistogram(1, LATENCY_MAX_US, SIGNIFICANT_DIGITS)
    failed = 0

    def delivered(due: float, error: Any, message: Any) -> None:
        nonlocal failed
        if error is not None:
            failed += 1
        else:
            late_us = int((time.perf_counter() - due) * 1e6)
            histogram.record_value(max(1, min(late_us, LATENCY_MAX_US)))

    def drive(for_s: float, is_counted: bool) -> tuple[int, float]:
        done = partial(_drive_paced, rate=rate) if rate else _drive_full
        began = time.perf_counter()
        count = done(producer, topic, value, for_s, delivered if is_counted else None)
        undelivered = producer.flush(60)
        return count - undelivered, time.perf_counter() - began

    drive(WARM_UP_S, False)
    failed = 0
    when_warm()
    count, took = drive(seconds, True)
    return LoadResult(
        records=count - failed,
        failed=failed,
        record_bytes=record_bytes,
        seconds=took,
        percentiles_ms={p: histogram.get_value_at_percentile(p) / 1000 for p in PERCENTILES},
        mean_ms=histogram.get_mean_value() / 1000,
        max_ms=histogram.get_max_value() / 1000,
        curve=[
            (p, histogram.get_value_at_percentile(p) / 1000)
            for p in (0, 10, 25, 50, 75, 90, 95, 99, 99.5, 99.9, 99.99, 100)
        ],
    )


def _drive_full(producer: Any, topic: str, value: bytes, seconds: float, timed: Any) -> int:
    count, end = 0, time.perf_counter() + seconds
    while (now := time.perf_counter()) < end:
        try:
            for _ in range(CHUNK):
                if timed is not None and count % SAMPLE_EVERY == 0:
                    producer.produce(topic, value, on_delivery=partial(timed, now))
                else:
                    producer.produce(topic, value)
                count += 1
            producer.poll(0)
        except BufferError:  # the queue is full: wait until it has room
            producer.poll(0.01)
    return count


def _drive_paced(
    producer: Any, topic: str, value: bytes, seconds: float, timed: Any, *, rate: float
) -> int:
    total, began, count = int(rate * seconds), time.perf_counter(), 0
    while count < total:
        due = began + count / rate
        now = time.perf_counter()
        if due > now:
            producer.poll(min(due - now, 0.005))
            continue
        done = partial(timed, due) if timed is not None else None
        try:
            producer.produce(topic, value, on_delivery=done)
            count += 1
        except BufferError:
            producer.poll(0.001)
        if count % 50 == 0:
            producer.poll(0)
    return count


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def perf_line(result: LoadResult) -> str:
    """Return the summary line of Kafka's kafka-producer-perf-test, in exactly the same form."""
    p = result.percentiles_ms
    mib_per_s = result.records_per_s * result.record_bytes / (1024 * 1024)
    return (
        f"{result.records} records sent, {result.records_per_s:.1f} records/sec "
        f"({mib_per_s:.2f} MB/sec), {result.mean_ms:.2f} ms avg latency, "
        f"{result.max_ms:.2f} ms max latency, {int(p[50.0])} ms 50th, {int(p[95.0])} ms 95th, "
        f"{int(p[99.0])} ms 99th, {int(p[99.9])} ms 99.9th."
    )
