"""Test mode "transactional" on real clusters, with timeouts, decisions, and torn batches.

The clusters are oncelog, Apache Kafka 4.4 with both transaction versions, and a Kafka without the
verification of KIP-890 (before 3.6).
"""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from oncelog.client import Admin, PreparedTransaction
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.pipeline.sink.batch_check import Terms
from oncelog.pipeline.sink.checks import longest_timeout_ms, settle_mode
from oncelog.pipeline.sink.modes import BrokerAnswers, Mode
from oncelog.pipeline.sink.steps import (
    BatchOver,
    ChildrenDescribed,
    ChildrenRefused,
    CommitChildren,
    DescribeChildren,
    Effect,
    RollBackChildren,
    RunTasks,
    TasksDone,
    WriteDecision,
)
from oncelog.pipeline.sink.stop_words import SinkStopped

from ...interop.client_peers import KAFKA, KAFKA_3, KAFKA_V1, KAFKAS, OURS
from ...interop.kafka_peer import KafkaPeer
from .manual_driver import (
    FORGETS,
    SCANS,
    TASKS,
    ManualDriver,
    all_rows,
    batch_rows,
    driving,
    play,
    rows,
)

SHORT = {"transaction.max.timeout.ms": "100000"}
TIMEOUT_MS = 4_000


# By default the newest Kafka; the two with transactions V1 have their turn with -m chaos.
EITHER = [
    OURS,
    pytest.param(KAFKA, marks=pytest.mark.kafka),
    *(
        pytest.param(name, marks=[pytest.mark.kafka, pytest.mark.chaos])
        for name in (KAFKA_V1, KAFKA_3)
    ),
]


@contextmanager
def running(name: str, folder: Path, **more: str) -> Iterator[str]:
    """Run one node, and yield its bootstrap line."""
    settings = SCANS | SHORT | more
    if name == OURS:
        with Cluster(nodes=1, data=folder / "data", config=settings) as cluster:
            yield cluster.bootstrap
    else:
        with KafkaPeer(folder, settings=settings, **KAFKAS[name]) as peer:
            yield peer.bootstrap


@pytest.fixture(scope="module", params=EITHER)
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with running(request.param, tmp_path_factory.mktemp("transactional")) as line:
        yield line


@pytest.fixture(params=EITHER)
def expiring_ids(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Run a cluster in which idle transactional ids expire within seconds."""
    with running(request.param, tmp_path, **FORGETS) as line:
        yield line


@pytest.fixture
def driver(bootstrap: str) -> AbstractAsyncContextManager[ManualDriver]:
    return driving(bootstrap, mode=Mode.TRANSACTIONAL)


def hurry(driver: ManualDriver, *partitions: int) -> None:
    """Give the tasks of these partitions a short transaction timeout, and run them last."""

    async def run_tasks(effect: RunTasks) -> TasksDone:
        spec = driver.task_spec(effect)
        short = replace(spec, timeout_ms=TIMEOUT_MS)
        order = sorted(range(TASKS), key=lambda partition: partition in partitions)
        reports = [await driver.attempt(short if p in partitions else spec, p) for p in order]
        return TasksDone(tuple(reports))

    driver.run_tasks = run_tasks  # type: ignore[method-assign]


async def decide(
    driver: ManualDriver, *short: int, batch: int = 1
) -> tuple[PreparedTransaction, ...]:
    """Run a batch up to its decision, and return its children, which are not committed yet."""
    await driver.write(batch - 1)
    hurry(driver, *short)
    effect = await driver.until(CommitChildren, batch)
    assert effect.times_out
    return effect.children


async def until_timed_out(
    driver: ManualDriver, children: tuple[PreparedTransaction, ...], count: int
) -> None:
    async with asyncio.timeout(60):
        while len((await driver.cluster.children.describe(children)).ended) < count:
            await asyncio.sleep(0.1)


@pytest.mark.in_turn
async def test_transactional_sink_writes_new_batches_and_skips_written_batches(
    driver: ManualDriver,
) -> None:
    driver.kept_workers = [driver.worker() for _ in range(TASKS)]
    for batch in range(4):
        assert await driver.write(batch) == BatchOver(was_written=True)
    assert await driver.write(3) == BatchOver(was_written=False)
    second = driver.successor()
    assert await second.write(3) == BatchOver(was_written=False)
    assert await second.write(4) == BatchOver(was_written=True)
    await driver.assert_once(all_rows(5))


@pytest.mark.in_turn
async def test_transactional_sink_successor_writes_every_row_once_after_a_stop_at_each_step(
    bootstrap: str,
) -> None:
    async def dies_at(point: type[Effect] | str, driver: ManualDriver) -> list[str]:
        await driver.write(0)
        effect = await driver.until(CommitChildren if isinstance(point, str) else point, 1)
        if isinstance(effect, CommitChildren) and point == "half":
            await driver.cluster.children.commit(effect.children[:1], times_out=True)
        follower = driver.successor()
        is_decided = point in (CommitChildren, "half")
        assert await follower.write(1) == BatchOver(was_written=not is_decided)
        held = await follower.until(CommitChildren, 2)
        with pytest.raises(SinkStopped):
            await driver.on(effect)  # the leader was not dead
        await follower.on(held)
        return all_rows(3)

    points = (RunTasks, DescribeChildren, WriteDecision, CommitChildren, "half")
    await play(bootstrap, *(partial(dies_at, point) for point in points), mode=Mode.TRANSACTIONAL)


@pytest.mark.in_turn
async def test_transactional_sink_timeout_raises_an_alarm_only_after_a_committed_child(
    bootstrap: str,
) -> None:
    async def before_the_decision(driver: ManualDriver) -> list[str]:
        await driver.write(0)
        hurry(driver, 1)
        effect = await driver.until(DescribeChildren, 1)
        await until_timed_out(driver, effect.children, 1)
        with pytest.raises(SinkStopped, match="was not decided: 1 of the 3 transactions"):
            await driver.on(effect)
        follower = driver.successor()
        assert await follower.write(1) == BatchOver(was_written=True)
        return all_rows(2)

    async def all_of_a_decided_batch(driver: ManualDriver) -> list[str]:
        children = await decide(driver, 0, 1, 2)
        await until_timed_out(driver, children, TASKS)
        follower = driver.successor()
        assert await follower.write(1) == BatchOver(was_written=True), "it is written again"
        assert await follower.write(2) == BatchOver(was_written=True)
        return all_rows(3)

    async def all_under_a_driver_that_lives(driver: ManualDriver) -> list[str]:
        children = await decide(driver, 0, 1, 2)
        await until_timed_out(driver, children, TASKS)
        del driver.run_tasks  # the others have their time
        assert await driver.on(CommitChildren(children, True)) == BatchOver(was_written=True)
        return all_rows(2)

    async def one_while_the_decision_was_on_its_way(driver: ManualDriver) -> list[str]:
        await driver.write(0)
        hurry(driver, 1)
        effect = await driver.carry_out(await driver.until(WriteDecision, 1))
        assert isinstance(effect, DescribeChildren)
        await until_timed_out(driver, effect.children, 1)
        del driver.run_tasks
        assert await driver.on(effect) == BatchOver(was_written=True)
        assert await driver.write(2) == BatchOver(was_written=True)
        return all_rows(3)

    async def one_of_a_decided_batch(driver: ManualDriver) -> list[str]:
        children = await decide(driver, 1)
        await until_timed_out(driver, children, 1)
        follower = driver.successor()
        effect = await follower.until(RollBackChildren, 1)
        assert len(effect.children) == TASKS - 1
        assert await follower.on(effect) == BatchOver(was_written=True)
        with pytest.raises(SinkStopped, match="were aborted before"):  # the batch was taken back
            await driver.on(CommitChildren(children, True))
        return all_rows(2)

    async def driver_dies(driver: ManualDriver) -> list[str]:
        children = await decide(driver, 1)
        await driver.cluster.children.commit(children[:1], times_out=True)
        await until_timed_out(driver, children, 1)
        for _ in range(2):
            with pytest.raises(SinkStopped, match=r"BATCH 1 IS TORN .* 2 are known .* 1 cannot"):
                await driver.successor().write(1)
        follower = driver.successor(terms=Terms(first_batch=2))
        assert await follower.write(1) == BatchOver(was_written=False)
        assert await follower.write(2) == BatchOver(was_written=True)
        return [*batch_rows(0), *rows(1, 0), *rows(1, 2), *batch_rows(2)]

    async def commit_stands_still(driver: ManualDriver) -> list[str]:
        children = await decide(driver, 1)
        await until_timed_out(driver, children, 1)
        with pytest.raises(SinkStopped, match="BATCH 1 IS TORN"):
            await driver.on(CommitChildren(children, True))
        return [*batch_rows(0), *rows(1, 0), *rows(1, 2)]

    async def a_zombie_commits_meanwhile(driver: ManualDriver) -> list[str]:
        children = await decide(driver, 1)
        await until_timed_out(driver, children, 1)
        follower = driver.successor()
        effect = await follower.until(RollBackChildren, 1)
        await driver.cluster.children.commit(children[:1], times_out=True)
        with pytest.raises(SinkStopped, match=r"BATCH 1 IS TORN .* 1 are known .* 2 cannot"):
            await follower.on(effect)
        return [*batch_rows(0), *rows(1, 0)]

    await play(
        bootstrap, before_the_decision, all_of_a_decided_batch, all_under_a_driver_that_lives,
        one_while_the_decision_was_on_its_way, one_of_a_decided_batch, driver_dies,
        commit_stands_still, a_zombie_commits_meanwhile, mode=Mode.TRANSACTIONAL,
    )  # fmt: skip


async def test_sink_children_committed_or_aborted_twice_keep_their_first_outcome(
    driver: ManualDriver,
) -> None:
    children = await decide(driver)
    requests, names = driver.cluster.children, [c.transactional_id for c in children]
    assert set((await requests.describe(children)).open) == set(names)
    committed, aborted = children[:1], children[1:2]
    for _ in range(2):
        await requests.roll_back(aborted)
        await requests.commit(committed, times_out=True)
        assert await requests.describe(children) == ChildrenDescribed(
            open=(names[2],), ended=(names[1],)
        )
    refused = await requests.roll_back(committed)
    assert isinstance(refused, ChildrenRefused)
    assert not refused.forgotten
    assert isinstance(await requests.commit(aborted, times_out=True), ChildrenRefused)
    await driver.cluster.admin.transactions.end(names[2])
    assert (await requests.describe(children[2:])).ended == (names[2],)
    await driver.assert_once([*batch_rows(0), *rows(1, 0)])


@pytest.mark.chaos
async def test_sink_with_a_child_id_forgotten_by_the_broker_stops(expiring_ids: str) -> None:
    async with driving(expiring_ids, mode=Mode.TRANSACTIONAL) as driver:
        children = await decide(driver)
        await driver.cluster.children.commit(children, times_out=True)
        async with Admin(driver.bootstrap) as admin, asyncio.timeout(60):
            while await admin.transactions.list_transactions(
                prefix=f"oncelog.spark.{driver.sink_id}.g"
            ):
                await asyncio.sleep(0.2)
        with pytest.raises(
            SinkStopped, match=r"BATCH 1 IS TORN .* 3 cannot be \(the id has expired"
        ):
            await driver.successor().write(1)
        await driver.assert_once(all_rows(2))


async def test_sink_mode_and_timeout_follow_from_the_answers_of_the_brokers(
    bootstrap: str, request: pytest.FixtureRequest
) -> None:
    best = Mode.PREPARED if request.node.callspec.params["bootstrap"] == OURS else Mode.DRIVER
    async with Admin(bootstrap) as admin:
        assert (await settle_mode(admin, "asking", None, 70_000)).mode is best
        chosen = await settle_mode(admin, "asking", Mode.TRANSACTIONAL, None)
        assert chosen.task_timeout_ms == 100_000
        assert "is longer than 100 s" in chosen.in_words
        chosen = await settle_mode(admin, "asking", Mode.TRANSACTIONAL, 70_000)
        assert chosen.task_timeout_ms == 70_000
        with pytest.raises(SinkStopped, match="transaction_timeout_ms=200000 is above"):
            await settle_mode(admin, "asking", Mode.TRANSACTIONAL, 200_000)
        found = await longest_timeout_ms(admin, "asking", BrokerAnswers(unseen=(1,)))
        assert 99_000 <= found <= 100_000
