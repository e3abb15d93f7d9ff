"""Test that SIGKILLs under idempotent load lose, duplicate and reorder no record.

Two client libraries produce the load. The default run is short, and `-m chaos` runs the two minutes
of the README. The schedule comes from a seed. A failure prints the seed, and `ONCELOG_SEED=n`
repeats the schedule.
"""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.storage.log_config import LogConfig

from .replica_files import (
    assert_derived_files_follow,
    assert_replicas_equal,
    partition_directories,
)

pytestmark = pytest.mark.cluster
TOPIC, PARTITIONS = "numbers", 6
PRODUCERS = (("confluent", "a", 1500), ("confluent", "b", 1500), ("kafka-python", "c", 400))


def _start_producers(cluster: Cluster, folder: Path) -> list[tuple[subprocess.Popen[bytes], Path]]:
    started = []
    for library, name, rate in PRODUCERS:
        file = folder / f"{name}.acknowledged"
        arguments = (library, cluster.bootstrap, TOPIC, PARTITIONS, name, rate, file)
        program = Path(__file__).with_name("producer_process.py")
        command = [sys.executable, str(program), *map(str, arguments)]
        with open(folder / f"{name}.log", "wb") as log:
            started.append((subprocess.Popen(command, stdin=subprocess.PIPE, stderr=log), file))
    return started


def _kill_for(cluster: Cluster, seconds: float, rng: random.Random) -> Counter[str]:
    """Kill one, two or all nodes at random times, restart them, and return the kills by kind."""
    kinds: Counter[str] = Counter()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(rng.uniform(0.3, 2.0))
        choice = rng.random()
        if choice < 0.15:
            victims, kind = list(cluster.node_ids), "all at once"
        elif choice < 0.45:
            victims, kind = rng.sample(cluster.node_ids, 2), "two in a row"
        else:
            victims, kind = [rng.choice(cluster.node_ids)], "one"
        for victim in victims:
            cluster.kill(victim)
        kinds[kind] += 1
        time.sleep(rng.uniform(0.0, 0.8))
        cluster.start_all(victims)
    return kinds


def _read_all(cluster: Cluster) -> dict[int, list[tuple[int, str]]]:
    """Return the (offset, value) of all records of each partition."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,  # else close waits for a group coordinator
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    read: dict[int, list[tuple[int, str]]] = defaultdict(list)
    at_end: set[int] = set()
    deadline = time.monotonic() + 60
    while len(at_end) < PARTITIONS:
        assert time.monotonic() < deadline, f"only partitions {sorted(at_end)} could be read"
        for message in consumer.consume(5000, 0.5):
            error = message.error()
            if error is None:
                record = message.offset() or 0, (message.value() or b"").decode()
                read[message.partition() or 0].append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition() or 0)
    consumer.close()
    return read


def _run(folder: Path, seconds: float) -> None:
    seed = int(os.environ.get("ONCELOG_SEED") or random.SystemRandom().randrange(1 << 31))
    print(f"seed {seed}")
    rng = random.Random(seed)
    with Cluster(nodes=3, data=folder / "cluster") as cluster:
        cluster.ask(lambda a: a.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3))
        cluster.wait_for_isr(TOPIC, 3)
        producers = _start_producers(cluster, folder)
        time.sleep(1.0)
        kinds = _kill_for(cluster, seconds, rng)
        summaries = []
        acknowledged: dict[str, tuple[int, int | None]] = {}
        for process, file in producers:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(120) == 0, f"a producer failed; seed {seed}"
            *lines, summary = file.read_text().splitlines()
            summaries.append(json.loads(summary))
            for line in lines:
                partition, offset, value = line.split()
                # librdkafka gives no offset for a failed batch that a later success proves stored
                acknowledged[value] = int(partition), None if offset == "None" else int(offset)
        print(f"{dict(kinds)}: {summaries}")
        for summary in summaries:
            assert not summary["fatal"] and not summary["failed"], f"{summary}; seed {seed}"
            assert summary["acknowledged"] > 0
        cluster.wait_for_isr(TOPIC, 3)
        read = _read_all(cluster)
        _judge(read, acknowledged, seed)
        nodes = [folder / "cluster" / f"node-{node}" for node in cluster.node_ids]
        for node in cluster.node_ids:
            cluster.stop(node)
        assert assert_replicas_equal(nodes, TOPIC) > 0
        for node in nodes:
            for directory in partition_directories(node, TOPIC).values():
                assert assert_derived_files_follow(directory, folder / "replay", LogConfig()) > 0


def _judge(
    read: dict[int, list[tuple[int, str]]],
    acknowledged: dict[str, tuple[int, int | None]],
    seed: int,
) -> None:
    times_seen = Counter(value for records in read.values() for _, value in records)
    doubled = [value for value, times in times_seen.items() if times > 1]
    assert not doubled, f"{len(doubled)} doubled, for example {doubled[:5]}; seed {seed}"
    lost = [value for value in acknowledged if value not in times_seen]
    assert not lost, f"{len(lost)} acknowledged and lost, for example {lost[:5]}; seed {seed}"
    for partition, records in read.items():
        last: dict[str, int] = {}
        for offset, value in records:
            name, _, number = value.partition(":")
            assert last.get(name, -1) < int(number), f"{value} out of order; seed {seed}"
            last[name] = int(number)
            position = acknowledged.get(value)
            allowed = (None, (partition, offset), (partition, None))
            assert position in allowed, f"{value} acknowledged at {position}; seed {seed}"


def test_brokers_killed_repeatedly_lose_and_duplicate_no_record(tmp_path: Path) -> None:
    _run(tmp_path, seconds=8)


@pytest.mark.chaos
def test_brokers_killed_for_two_minutes_lose_and_duplicate_no_record(tmp_path: Path) -> None:
    _run(tmp_path, seconds=120)
