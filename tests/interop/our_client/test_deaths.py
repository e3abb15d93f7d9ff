"""Test oncelog's client while leaders and coordinators of oncelog are killed or paused.

Each result that the client reported is true, and each record is present once and in order. The
client continues by itself. No kill is fatal to a producer, or removes a consumer from its group.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from oncelog.client import Consumer, Producer, ProducerState
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.wire.errors import KafkaError

from ...present import present
from ..client_peers import TIMEOUT_S, new_topic, read_to_end

pytestmark = pytest.mark.cluster
PARTITIONS = 3
SETTINGS = {"request_timeout_ms": 3_000, "retry_backoff_max_ms": 200}
both_versions = pytest.mark.parametrize("version", [1, 2])
# Tests of paused leaders show how the versions differ; the chaos runs mix both versions.
newest_version = pytest.mark.parametrize("version", [pytest.param(1, marks=pytest.mark.chaos), 2])


async def aside(cluster: Cluster, *faults: Callable[[], int]) -> None:
    """Inject the faults one after the other, and restart each node before the next fault."""
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        for fault in faults:
            node = await loop.run_in_executor(pool, fault)
            await asyncio.sleep(0.3)
            await loop.run_in_executor(pool, lambda node=node: cluster.start(node))


@pytest.mark.in_turn
async def test_producer_with_killed_partition_leaders_loses_and_duplicates_no_record(cluster):
    topic = await new_topic(cluster.bootstrap, PARTITIONS)
    async with Producer(cluster.bootstrap, linger_ms=1, **SETTINGS) as producer:
        dying = asyncio.create_task(
            aside(cluster, *[lambda p=p: cluster.kill(f"leader:{topic}/{p}") for p in (0, 1)])
        )
        sent = []
        while not dying.done():
            number = len(sent)
            where = number % PARTITIONS
            sent.append(await producer.send(topic, b"%d" % number, partition=where))
            await asyncio.sleep(0.0005)
        await dying
        await asyncio.wait_for(producer.flush(), TIMEOUT_S)
        places = [delivery.result() for delivery in sent]
        assert producer.state is ProducerState.READY
    rows = await read_to_end(cluster.bootstrap, topic)
    assert {(r.partition, r.offset): int(present(r.value)) for r in rows} == {
        (place.partition, place.offset): number for number, place in enumerate(places)
    }
    for partition in range(PARTITIONS):
        numbers = [int(present(r.value)) for r in rows if r.partition == partition]
        assert numbers == list(range(partition, len(sent), PARTITIONS))


async def transaction(producer: Producer, topic: str, number: int, offsets: bool) -> bool:
    """Run a transaction, and return whether its commit was acknowledged."""
    await producer.begin_transaction()
    try:
        for partition in range(PARTITIONS):
            await producer.send(topic, b"%d" % number, partition=partition)
        if offsets:
            await producer.send_offsets_to_transaction({(topic, 0): number}, topic)
        if number % 5 == 4:
            await producer.abort_transaction()
            return False
        while True:
            try:
                await producer.commit_transaction()
                return True
            except KafkaError as problem:
                assert not problem.fatal, repr(problem)
                if problem.abortable:
                    raise
    except KafkaError as problem:
        assert problem.abortable, repr(problem)
        await producer.abort_transaction()
        return False


async def transactions(cluster: Cluster, version: int, *faults: Callable[[str], int]) -> None:
    topic = await new_topic(cluster.bootstrap, PARTITIONS)
    producer = Producer(
        cluster.bootstrap,
        transactional_id=topic,
        oncelog_transaction_version_max=version,
        linger_ms=1,
        **SETTINGS,
    )
    committed: list[int] = []
    async with producer:
        await producer.init_transactions()
        dying = asyncio.create_task(
            aside(cluster, *[lambda fault=fault: fault(topic) for fault in faults])
        )
        number = after = 0
        while not dying.done() or after < 5:
            after += dying.done()
            if await asyncio.wait_for(
                transaction(producer, topic, number, number % 3 == 0), TIMEOUT_S
            ):
                committed.append(number)
            number += 1
        await dying
        assert producer.state is ProducerState.READY
    assert committed and committed[-1] >= number - 2, "it went on after the faults"
    rows = await read_to_end(cluster.bootstrap, topic)
    for partition in range(PARTITIONS):
        assert [int(present(r.value)) for r in rows if r.partition == partition] == committed
    with_offsets = [n for n in committed if n % 3 == 0]
    async with Consumer(cluster.bootstrap, group_id=topic, **SETTINGS) as consumer:
        found = await consumer.committed([(topic, 0)])
        assert found[(topic, 0)].offset == with_offsets[-1]


@pytest.mark.chaos  # test_phases.py kills the leader in each phase of a transaction
@both_versions
def test_transactions_with_a_killed_coordinator_are_exactly_once(cluster, version):
    faults = [lambda topic: cluster.kill(f"txn:{topic}")] * 2
    asyncio.run(transactions(cluster, version, *faults))


@pytest.mark.in_turn
@newest_version
def test_transactions_with_killed_partition_leaders_are_exactly_once(cluster, version):
    faults = [lambda topic: cluster.kill(f"leader:{topic}/0")] * 2
    asyncio.run(transactions(cluster, version, *faults))


@newest_version
def test_transactions_with_a_killed_group_coordinator_are_exactly_once(cluster, version):
    faults = [lambda topic: cluster.kill(f"group:{topic}")]
    asyncio.run(transactions(cluster, version, *faults))


@pytest.mark.in_turn
@both_versions
async def test_transactions_with_a_paused_partition_leader_are_exactly_once(cluster, version):
    """The paused leader may append a request much later, so the next transaction has a new epoch.

    With transaction version 2 each transaction has a new epoch. A version 1 producer requests one.
    """
    topic = await new_topic(cluster.bootstrap, PARTITIONS)
    async with Producer(
        cluster.bootstrap,
        transactional_id=topic,
        oncelog_transaction_version_max=version,
        linger_ms=0,
        **{**SETTINGS, "request_timeout_ms": 1_000},
    ) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send(topic, b"before", partition=0))
        await producer.commit_transaction()
        epoch = producer.identity.producer_epoch
        loop = asyncio.get_running_loop()
        await producer.begin_transaction()
        await (await producer.send(topic, b"meanwhile", partition=1))
        node = await loop.run_in_executor(None, cluster.pause, f"leader:{topic}/0")
        try:
            await producer.send(topic, b"meanwhile", partition=0)
            await producer.commit_transaction()
        finally:
            await loop.run_in_executor(None, cluster.resume, node)
        await producer.begin_transaction()
        assert producer.identity.producer_epoch > epoch
        await producer.send(topic, b"after", partition=0)
        await producer.commit_transaction()
    rows = await read_to_end(cluster.bootstrap, topic)
    of_first = [r.value for r in rows if r.partition == 0]
    assert of_first == [b"before", b"meanwhile", b"after"]
    assert [r.value for r in rows if r.partition == 1] == [b"meanwhile"]


@pytest.mark.in_turn
async def test_group_member_with_a_killed_coordinator_stays_in_its_group(cluster):
    topic = await new_topic(cluster.bootstrap, PARTITIONS)
    lost: list[object] = []
    settings = {"group_id": topic, "auto_offset_reset": "earliest", **SETTINGS}
    async with (
        Producer(cluster.bootstrap, linger_ms=1, **SETTINGS) as producer,
        Consumer(cluster.bootstrap, heartbeat_interval_ms=200, **settings) as consumer,
    ):
        consumer.subscribe([topic], on_lost=lost.extend)
        rows = []
        async with asyncio.timeout(TIMEOUT_S):
            while len(consumer.assignment) < PARTITIONS:
                rows += await consumer.poll(100)
        dying = asyncio.create_task(aside(cluster, *[lambda: cluster.kill(f"group:{topic}")] * 2))
        number = 0
        while not dying.done():
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
            number += 1
            rows += await consumer.poll(10)
            if number % 20 == 0:
                await consumer.commit()
        await dying
        await producer.flush()
        async with asyncio.timeout(TIMEOUT_S):
            while len(rows) < number:
                rows += await consumer.poll(100)
        await consumer.commit()
        committed = await consumer.committed(consumer.assignment)
    assert sorted(int(present(r.value)) for r in rows) == list(range(number))
    assert sum(each.offset for each in committed.values()) == number
    assert not lost
