"""Test members with group.protocol=consumer while their coordinator is killed repeatedly."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import Consumer, Producer
from oncelog.client.failures import CommitFailed
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.wire.errors import KafkaError

from ...present import present
from ..client_peers import PREPARES, QUICK, QUICK_GROUPS, SCAN, TIMEOUT_S, new_topic, values
from ..kafka_peer import KafkaPeer

pytestmark = pytest.mark.cluster
PARTITIONS, RECORDS = 4, 200
RETURN_S = 100.0  # a JVM starts on a busy machine, and reads its logs


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, config=SCAN | QUICK_GROUPS) as running:
        yield running


class Ground:
    """A cluster on which a test can kill and restart the coordinator of a group."""

    def __init__(self, bootstrap: str, kill: Any, start: Any) -> None:
        self.bootstrap, self._kill, self._start = bootstrap, kill, start

    async def kill_coordinator(self, group: str, times: int) -> None:
        for _ in range(times):
            node = await asyncio.to_thread(self._kill, group)
            await asyncio.sleep(0.3)
            await asyncio.to_thread(self._start, node)


def of_ours(cluster: Cluster) -> Ground:
    return Ground(cluster.bootstrap, lambda group: cluster.kill(f"group:{group}"), cluster.start)


def of_kafka(peer: KafkaPeer) -> Ground:
    def kill(_: str) -> int:
        peer.kill(1)
        return 1

    return Ground(peer.bootstrap, kill, peer.start)


async def fill(bootstrap: str, topic: str, first: int) -> None:
    async with Producer(bootstrap, **{**QUICK, "delivery_timeout_ms": 120_000}) as producer:
        for number in range(first, first + RECORDS):
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


def settings(group: str, **more: Any) -> dict[str, Any]:
    reads = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    return {**QUICK, **reads, "group_protocol": "consumer", "group_id": group, **more}


async def reading(ground: Ground, topic: str, instance: str, until: asyncio.Event) -> Counter[int]:
    """Run a member that commits after each poll, and count each committed value."""
    done: Counter[int] = Counter()
    name = instance if instance.startswith("static") else None
    async with Consumer(ground.bootstrap, **settings(topic, group_instance_id=name)) as consumer:
        consumer.subscribe([topic])
        while not until.is_set():
            rows = [int(present(row.value)) for row in await consumer.poll(50)]
            try:
                await consumer.commit()
            except CommitFailed:
                continue  # another member owns these partitions now, and reads the rows
            done.update(rows)
    return done


async def members_come_and_go(ground: Ground, kills: int, patience_s: float) -> None:
    topic = await new_topic(ground.bootstrap, PARTITIONS)
    ends = {name: asyncio.Event() for name in ("one", "two", "static", "late")}
    members: dict[str, asyncio.Task[Counter[int]]] = {}

    def come(name: str) -> None:
        members[name] = asyncio.create_task(reading(ground, topic, name, ends[name]))

    async def go(name: str) -> Counter[int]:
        ends[name].set()
        return await members[name]

    async with asyncio.timeout(patience_s):
        for name in ("one", "two", "static"):
            come(name)
        await fill(ground.bootstrap, topic, 0)
        killing = asyncio.create_task(ground.kill_coordinator(topic, kills))
        done = await go("two")
        come("late")
        await fill(ground.bootstrap, topic, RECORDS)
        await killing
        async with Consumer(ground.bootstrap, group_id=topic, **QUICK) as looks:
            places = [(topic, index) for index in range(PARTITIONS)]
            while True:
                found = await looks.committed(places)
                if sum(each.offset for each in found.values()) == 2 * RECORDS:
                    break
                await asyncio.sleep(0.1)
        for name in ("one", "static", "late"):
            done += await go(name)
    assert set(done) == set(range(2 * RECORDS)), "none is committed that was not read"


async def copying(ground: Ground, source: str, sink: str, name: str, until: asyncio.Event) -> None:
    """Copy records with exactly-once until the event. An abort rewinds to the committed offsets."""
    producer = Producer(ground.bootstrap, transactional_id=f"{source}-{name}", **QUICK)
    async with (
        Consumer(
            ground.bootstrap, isolation_level="read_committed", **settings(source)
        ) as consumer,
        producer,
    ):
        await producer.init_transactions()
        consumer.subscribe([source])
        while not until.is_set():
            rows = await consumer.poll(50, 20)
            if not rows:
                continue
            await producer.begin_transaction()
            try:
                for row in rows:
                    await producer.send(sink, row.value)
                offsets = {(row.topic, row.partition): row.offset + 1 for row in rows}
                await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                await producer.commit_transaction()
            except KafkaError as problem:
                assert problem.abortable, repr(problem)
                await producer.abort_transaction()
                found = await consumer.committed(consumer.assignment)
                for place in consumer.assignment:
                    consumer.seek(*place, found[place].offset if place in found else 0)


async def copies(ground: Ground, kills: int, patience_s: float) -> None:
    source = await new_topic(ground.bootstrap, PARTITIONS)
    sink = await new_topic(ground.bootstrap, 1)
    ends = {name: asyncio.Event() for name in ("one", "two", "late")}
    async with asyncio.timeout(patience_s), asyncio.TaskGroup() as tasks:
        for name in ("one", "two"):
            tasks.create_task(copying(ground, source, sink, name, ends[name]))
        await fill(ground.bootstrap, source, 0)
        killing = asyncio.create_task(ground.kill_coordinator(source, kills))
        ends["two"].set()
        tasks.create_task(copying(ground, source, sink, "late", ends["late"]))
        await fill(ground.bootstrap, source, RECORDS)
        await killing
        while len(await values(ground.bootstrap, sink)) < 2 * RECORDS:
            await asyncio.sleep(0.2)
        for end in ends.values():
            end.set()
    copied = [int(present(value)) for value in await values(ground.bootstrap, sink)]
    assert sorted(copied) == list(range(2 * RECORDS))


@pytest.mark.in_turn
def test_consumer_group_with_a_killed_coordinator_loses_no_record(cluster):
    asyncio.run(members_come_and_go(of_ours(cluster), 3, 2 * TIMEOUT_S))


@pytest.mark.in_turn
def test_exactly_once_copies_with_a_killed_group_coordinator_are_exact(cluster):
    asyncio.run(copies(of_ours(cluster), 2, 2 * TIMEOUT_S))


@pytest.mark.kafka
@pytest.mark.chaos
def test_group_members_and_exactly_once_copies_on_apache_kafka_survive_broker_kills(tmp_path: Path):
    with KafkaPeer(tmp_path, settings=PREPARES | SCAN | QUICK_GROUPS) as peer:
        asyncio.run(members_come_and_go(of_kafka(peer), 1, RETURN_S))
        asyncio.run(copies(of_kafka(peer), 1, RETURN_S))
