"""Rows of the table that measure producers, with one core, many producers or large records."""

import json
import os
import random
import time
from collections.abc import Collection
from contextlib import ExitStack

from confluent_kafka import Producer

from .one_core import held_on
from .target import Figures, Target, latency_figures, produce, random_bytes

KILOBYTE, LATENCY_BYTES = 1000, 100


def one_core_each(target: Target) -> dict[str, Figures]:
    """Measure with all brokers on one core and the client on another."""
    cores = sorted(os.sched_getaffinity(0))
    return {"one core": _on_cores(target, cores[0], cores[-1])}


def one_core_for_all(target: Target) -> dict[str, Figures]:
    """Measure with brokers and client on one core, as on the smallest machine for CI."""
    core = min(os.sched_getaffinity(0))
    return {"one core for all": _on_cores(target, core, core)}


def fifty_producers(target: Target) -> dict[str, Figures]:
    """Measure fifty producers with their own connections, producer ids and small batches."""
    return {"50 producers": produce(target, [random_bytes(100)], producers=50)}


def large_records(target: Target) -> dict[str, Figures]:
    return {"10 kB records": produce(target, [random_bytes(10_000)])}


def zstd(target: Target) -> dict[str, Figures]:
    """Measure a producer with zstd. The megabytes are those before compression."""
    values = [_event(number) for number in range(1000)]
    return {"zstd": produce(target, values, compression="zstd")}


def _event(number: int) -> bytes:
    """Return 1 kB of JSON like an event of a service, of which zstd leaves a fifth."""
    draw = random.Random(number)
    fields = {f"measured-{key}": round(draw.gauss(100, 15), 2) for key in range(50)}
    event = {"id": number, "host": f"host-{draw.randrange(50)}", "level": "info", **fields}
    return json.dumps(event).encode()[:KILOBYTE].ljust(KILOBYTE)


def _on_cores(target: Target, brokers_on: int, client_on: int) -> Figures:
    with ExitStack() as stack:
        stack.enter_context(held_on(client_on, _own_processes()))
        stack.enter_context(held_on(brokers_on, target.pids))  # last: they may be our children
        found = produce(target, [random_bytes(KILOBYTE)])
        return found | latency_figures(one_at_a_time(target))


def _own_processes() -> Collection[int]:
    return (os.getpid(),)


def one_at_a_time(target: Target) -> list[float]:
    """Return the seconds from each send to its acknowledgement, with one record in flight."""
    found: list[float] = []
    producer = Producer(target.settings(**{"enable.idempotence": True, "linger.ms": 0}))
    value = random_bytes(LATENCY_BYTES)
    with target.topic(1) as topic:
        begin = time.perf_counter() + target.warm_up_s
        end = begin + target.seconds
        while (now := time.perf_counter()) < end or not found:
            producer.produce(topic, value)
            while producer.flush(1):
                if time.perf_counter() > now + 30:
                    raise TimeoutError("a record was not acknowledged in 30 s")
            if now >= begin:
                found.append(time.perf_counter() - now)
    return found
