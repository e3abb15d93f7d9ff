"""Test the death of a broker in each phase of a transaction, or of a group member's commit.

The node is killed during the call. Records that the client has reported as committed are in the log
once, and aborted records are not. The client continues by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from oncelog.client import Consumer, PreparedTransaction, Producer, ProducerState, complete
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.wire.errors import KafkaError

from ...present import present
from ..client_peers import TIMEOUT_S, new_topic, read_to_end

pytestmark = pytest.mark.cluster
PARTITIONS = 2
SETTINGS = {"request_timeout_ms": 3_000, "retry_backoff_max_ms": 200}
PHASES = ("initializing", "begun", "adding", "sent", "offsets", "committing", "aborting")
whole = pytest.mark.chaos  # the rest of the matrix: pytest -m chaos tests/interop


class Blow:
    """A node with a role, such as leader, which is killed and restarted during a call."""

    def __init__(self, cluster: Cluster, topic: str, role: str) -> None:
        self.cluster, self.topic = cluster, topic
        self.target = {
            "txn": f"txn:{topic}",
            "leader": f"leader:{topic}/0",
            "group": f"group:{topic}",
            "controller": "controller",
        }[role]

    async def aside(self, work: Callable[[], object]) -> object:
        return await asyncio.get_running_loop().run_in_executor(None, work)

    async def during(self, call: Awaitable[None]) -> None:
        """Await the call while the node is killed, and then restart the node."""
        node = await self.aside(lambda: self.cluster.resolve(self.target))
        assert isinstance(node, int)
        killing = asyncio.ensure_future(self.aside(lambda: self.cluster.kill(node)))
        try:
            await asyncio.wait_for(call, TIMEOUT_S)
        finally:
            await killing
            await self.aside(lambda: self.cluster.start(node))
            await self.aside(lambda: self.cluster.wait_for_isr(self.topic, 3))


async def until_committed(producer: Producer) -> bool:
    while True:
        try:
            await producer.commit_transaction()
            return True
        except KafkaError as problem:
            assert not problem.fatal, repr(problem)
            if problem.abortable:
                return False


async def until_aborted(producer: Producer) -> None:
    while producer.state is not ProducerState.READY:
        try:
            await producer.abort_transaction()
        except KafkaError as problem:
            assert not problem.fatal, repr(problem)


class Run:
    """The transactions of a producer, in which a node is killed in one phase or in none."""

    def __init__(self, producer: Producer, topic: str, blow: Blow) -> None:
        self.producer, self.topic, self.blow = producer, topic, blow
        self.committed: list[int] = []
        self.offsets = 0

    async def in_phase(self, phase: str, hit: str, call: Awaitable[None]) -> None:
        if phase == hit:
            await self.blow.during(call)
        else:
            await asyncio.wait_for(call, TIMEOUT_S)

    async def transaction(self, number: int, hit: str) -> None:
        producer, is_over = self.producer, False
        try:
            await self.in_phase("begun", hit, producer.begin_transaction())
            await self.in_phase("adding", hit, self.send(number))
            await self.in_phase("sent", hit, producer.flush())
            offsets = {(self.topic, 0): number}
            await self.in_phase(
                "offsets", hit, producer.send_offsets_to_transaction(offsets, self.topic)
            )
        except KafkaError as problem:
            assert problem.abortable and not problem.fatal, repr(problem)
            is_over = True
        if is_over or hit == "aborting":
            await self.in_phase("aborting", hit, until_aborted(producer))
        else:
            await self.in_phase("committing", hit, self.commit(number))

    async def commit(self, number: int) -> None:
        if await until_committed(self.producer):
            self.committed.append(number)
            self.offsets = number
        else:
            await until_aborted(self.producer)

    async def send(self, number: int) -> None:
        for partition in range(PARTITIONS):
            await self.producer.send(self.topic, b"%d" % number, partition=partition)


@pytest.mark.parametrize(
    ("role", "version"),
    [
        ("txn", 2),
        *[
            pytest.param(role, version, marks=whole)
            for role, version in (
                ("txn", 1),
                ("leader", 2),
                ("leader", 1),
                ("group", 2),
                ("group", 1),
                ("controller", 2),
            )
        ],
    ],
)
@pytest.mark.in_turn
async def test_broker_killed_in_each_transaction_phase_aborts_at_most_that_transaction(
    cluster, role, version
):
    topic = await new_topic(cluster.bootstrap, PARTITIONS)
    blow = Blow(cluster, topic, role)
    async with Producer(
        cluster.bootstrap,
        transactional_id=topic,
        oncelog_transaction_version_max=version,
        linger_ms=0,
        **SETTINGS,
    ) as producer:
        run = Run(producer, topic, blow)

        async def initialize() -> None:
            await producer.init_transactions()

        await run.in_phase("initializing", PHASES[0], initialize())
        for number, phase in enumerate(PHASES):
            await run.transaction(2 * number, phase)
            await run.transaction(2 * number + 1, "none")
            assert run.committed[-1] == 2 * number + 1, phase
            assert producer.state is ProducerState.READY
    rows = await read_to_end(cluster.bootstrap, topic)
    for partition in range(PARTITIONS):
        assert [int(present(r.value)) for r in rows if r.partition == partition] == run.committed
    async with Consumer(cluster.bootstrap, group_id=topic, **SETTINGS) as consumer:
        assert (await consumer.committed([(topic, 0)]))[(topic, 0)].offset == run.offsets


@pytest.mark.in_turn
@pytest.mark.parametrize("version", [2, pytest.param(1, marks=whole)])
async def test_prepared_transaction_with_a_killed_coordinator_is_ended_by_its_token(
    cluster, version
):
    topic = await new_topic(cluster.bootstrap, PARTITIONS)
    blow = Blow(cluster, topic, "txn")
    tokens: list[PreparedTransaction] = []

    async def prepare(number: int) -> None:
        async with Producer(
            cluster.bootstrap,
            transactional_id=topic,
            transaction_two_phase_commit_enable=True,
            oncelog_transaction_version_max=version,
            **SETTINGS,
        ) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            for partition in range(PARTITIONS):
                await producer.send(topic, b"%d" % number, partition=partition)
            tokens.append(await producer.prepare())

    await blow.during(prepare(0))
    await blow.during(complete(cluster.bootstrap, str(tokens[0]), True, timeout_ms=25_000))
    await complete(cluster.bootstrap, tokens[0], True)
    await prepare(1)
    await blow.during(complete(cluster.bootstrap, str(tokens[1]), False, timeout_ms=25_000))
    await prepare(2)
    await complete(cluster.bootstrap, tokens[2], True)
    rows = await read_to_end(cluster.bootstrap, topic)
    assert sorted(present(r.value) for r in rows) == [b"0"] * PARTITIONS + [b"2"] * PARTITIONS


@whole
@pytest.mark.parametrize("strategy", ["cooperative-sticky", pytest.param("range", marks=whole)])
async def test_consumer_group_with_its_coordinator_killed_in_each_phase_keeps_its_commits(
    cluster, strategy
):
    """No record is skipped, and the group has the end offset of each partition afterwards."""
    topic = await new_topic(cluster.bootstrap, 4)
    blow = Blow(cluster, topic, "group")
    settings = {
        **SETTINGS,
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "partition_assignment_strategy": [strategy],
        "heartbeat_interval_ms": 200,
        "session_timeout_ms": 6_000,  # the next coordinator may remember members that left
    }
    async with Producer(cluster.bootstrap, **SETTINGS) as producer:
        await producer.send_many(
            topic, [b"%d" % i for i in range(400)], partition=[i % 4 for i in range(400)]
        )
    found: list[int] = []

    async def read_until(condition: Callable[[], bool], *consumers: Consumer) -> None:
        while not condition():
            for consumer in consumers:
                found.extend(int(present(r.value)) for r in await consumer.poll(50, 10))

    first, second = (Consumer(cluster.bootstrap, **settings) for _ in range(2))
    async with first:
        first.subscribe([topic])
        await blow.during(read_until(lambda: len(first.assignment) == 4, first))
        await blow.during(first.commit())
        second.subscribe([topic])
        async with second:
            both = (first, second)
            await blow.during(read_until(lambda: {len(c.assignment) for c in both} == {2}, *both))
            await asyncio.wait_for(read_until(lambda: set(found) == set(range(400)), *both), 30)
            for consumer in both:
                await consumer.commit()
        await blow.during(read_until(lambda: len(first.assignment) == 4, first))
        committed = await first.committed([(topic, p) for p in range(4)])
        assert sum(each.offset for each in committed.values()) == 400


@pytest.mark.in_turn
@pytest.mark.parametrize("form", ["poll", pytest.param("poll_columns", marks=whole)])
async def test_read_committed_consumer_with_killed_leaders_misses_no_record(cluster, form):
    topic = await new_topic(cluster.bootstrap, PARTITIONS)
    blow = Blow(cluster, topic, "leader")
    committed: list[int] = []
    over = asyncio.Event()

    async def write() -> None:
        async with Producer(
            cluster.bootstrap, transactional_id=topic, linger_ms=0, **SETTINGS
        ) as producer:
            await producer.init_transactions()
            run = Run(producer, topic, blow)
            number = 0
            while not over.is_set():
                await run.transaction(number, "aborting" if number % 4 == 3 else "none")
                number += 1
            committed.extend(run.committed)

    async def no_blow(call: Awaitable[None]) -> None:
        await call

    writer_blow, blow.during = blow.during, no_blow  # type: ignore[method-assign]
    writing = asyncio.ensure_future(write())
    found: dict[int, list[int]] = {p: [] for p in range(PARTITIONS)}
    async with Consumer(
        cluster.bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="none",
        fetch_max_wait_ms=50,
        **SETTINGS,
    ) as consumer:
        consumer.assign({(topic, p): 0 for p in range(PARTITIONS)})

        async def read(enough: Callable[[], bool]) -> None:
            while not enough():
                if form == "poll":
                    for r in await consumer.poll(50):
                        found[r.partition].append(int(present(r.value)))
                else:
                    for c in await consumer.poll_columns(50):
                        found[c.partition] += [int(present(value)) for value in c.values]

        for _ in range(2):
            goal = len(found[0]) + 40
            await writer_blow(read(lambda goal=goal: len(found[0]) >= goal))
        over.set()
        await asyncio.wait_for(writing, TIMEOUT_S)
        enough = lambda: all(len(f) >= len(committed) for f in found.values())  # noqa: E731
        await asyncio.wait_for(read(enough), TIMEOUT_S)
    assert list(found.values()) == [committed] * PARTITIONS
