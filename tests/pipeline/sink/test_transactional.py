"""Mode "transactional" on real clusters: what times out, what is taken back, and what is torn.

On brokers of ours, on Apache Kafka 4.3 with both versions of transactions, and on one without the
verification of KIP-890 (before 3.6).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

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

from ...interop.client_peers import KAFKAS, OURS, new_topic
from ...interop.kafka_peer import KafkaPeer, is_enabled
from .manual_driver import TASKS, ManualDriver, batch_rows, rows
from .output import assert_once

SCANS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "300"}
FORGETS = {
    "transactional.id.expiration.ms": "8000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
}
SHORT = {"transaction.max.timeout.ms": "100000"}
TIMEOUT_MS = 4_000


EITHER = [OURS, *(pytest.param(name, marks=pytest.mark.kafka) for name in KAFKAS)]


@contextmanager
def running(name: str, folder: Path, **more: str) -> Iterator[str]:
    """The bootstrap line of one node."""
    settings = SCANS | SHORT | more
    if name == OURS:
        with Cluster(nodes=1, data=folder / "data", config=settings) as cluster:
            yield cluster.bootstrap
    elif not is_enabled():
        pytest.skip("ONCELOG_KAFKA is not 1")
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
    """One that forgets idle ids within seconds."""
    with running(request.param, tmp_path, **FORGETS) as line:
        yield line


Scene = Callable[[ManualDriver], Awaitable[list[str]]]


def play(bootstrap: str, *scenes: Scene) -> None:
    """Each with a topic and a sink of its own, side by side; what it returns has to be there."""

    async def run(scene: Scene) -> tuple[str, list[str]]:
        topic = await new_topic(bootstrap, 3)
        driver = ManualDriver(bootstrap, topic, topic, mode=Mode.TRANSACTIONAL)
        try:
            return topic, await asyncio.wait_for(scene(driver), 240)
        finally:
            await driver.close()

    async def run_all() -> list[tuple[str, list[str]]]:
        return await asyncio.gather(*map(run, scenes))

    for topic, wanted in asyncio.run(run_all()):
        assert_once(bootstrap, topic, wanted)


def successor(driver: ManualDriver, **terms: Any) -> ManualDriver:
    other = ManualDriver(driver.bootstrap, driver.topic, driver.sink_id, mode=Mode.TRANSACTIONAL)
    other.protocol.terms = Terms(**terms)
    return other


def hurry(driver: ManualDriver, *partitions: int) -> None:
    """From here on the transactions of these tasks are short; they are the last to write."""

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
    """A batch that is decided, and not committed."""
    await driver.write(batch - 1)
    hurry(driver, *short)
    effect = await driver.until(CommitChildren, batch)
    assert isinstance(effect, CommitChildren)
    assert effect.times_out
    return effect.children


async def until_timed_out(
    driver: ManualDriver, children: tuple[PreparedTransaction, ...], count: int
) -> None:
    async with asyncio.timeout(60):
        while len((await driver.cluster.children.describe(children)).ended) < count:
            await asyncio.sleep(0.1)


def all_rows(batches: int) -> list[str]:
    return [value for batch in range(batches) for value in batch_rows(batch)]


def test_batches_are_written_skipped_and_their_ids_used_again(
    bootstrap: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="oncelog.sink")

    async def scene(driver: ManualDriver) -> list[str]:
        workers = [driver.worker() for _ in range(TASKS)]

        async def run_tasks(effect: RunTasks) -> TasksDone:
            spec = driver.task_spec(effect)
            reports = [await driver.attempt(spec, p, workers[p]) for p in range(TASKS)]
            return TasksDone(tuple(reports))

        driver.run_tasks = run_tasks  # type: ignore[method-assign]
        for batch in range(4):
            assert await driver.write(batch) == BatchOver(was_written=True)
        assert await driver.write(3) == BatchOver(was_written=False)
        second = successor(driver)
        assert await second.write(3) == BatchOver(was_written=False)
        assert await second.write(4) == BatchOver(was_written=True)
        await second.close()
        return all_rows(5)

    play(bootstrap, scene)


def test_a_driver_that_dies_anywhere_has_a_successor(bootstrap: str) -> None:
    def dies_at(point: type[Effect] | str) -> Scene:
        async def scene(driver: ManualDriver) -> list[str]:
            await driver.write(0)
            effect = await driver.until(CommitChildren if isinstance(point, str) else point, 1)
            if isinstance(effect, CommitChildren) and point == "half":
                await driver.cluster.children.commit(effect.children[:1], times_out=True)
            follower = successor(driver)
            is_decided = point in (CommitChildren, "half")
            assert await follower.write(1) == BatchOver(was_written=not is_decided)
            held = await follower.until(CommitChildren, 2)
            with pytest.raises(SinkStopped):
                await driver.on(effect)  # it was not dead
            await follower.on(held)
            await follower.close()
            return all_rows(3)

        return scene

    points = (RunTasks, DescribeChildren, WriteDecision, CommitChildren, "half")
    play(bootstrap, *map(dies_at, points))


def test_what_times_out_costs_nothing_until_a_part_is_committed_then_it_tears_the_batch(
    bootstrap: str,
) -> None:
    async def before_the_decision(driver: ManualDriver) -> list[str]:
        await driver.write(0)
        hurry(driver, 1)
        effect = await driver.until(DescribeChildren, 1)
        assert isinstance(effect, DescribeChildren)
        await until_timed_out(driver, effect.children, 1)
        with pytest.raises(SinkStopped, match="was not decided: 1 of the 3 transactions"):
            await driver.on(effect)
        follower = successor(driver)
        assert await follower.write(1) == BatchOver(was_written=True)
        await follower.close()
        return all_rows(2)

    async def all_of_a_decided_batch(driver: ManualDriver) -> list[str]:
        children = await decide(driver, 0, 1, 2)
        await until_timed_out(driver, children, TASKS)
        follower = successor(driver)
        assert await follower.write(1) == BatchOver(was_written=True), "it is written again"
        assert await follower.write(2) == BatchOver(was_written=True)
        await follower.close()
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
        follower = successor(driver)
        effect = await follower.until(RollBackChildren, 1)
        assert isinstance(effect, RollBackChildren)
        assert len(effect.children) == TASKS - 1
        assert await follower.on(effect) == BatchOver(was_written=True)
        with pytest.raises(SinkStopped, match="were aborted before"):  # whose batch was taken back
            await driver.on(CommitChildren(children, True))
        await follower.close()
        return all_rows(2)

    async def driver_dies(driver: ManualDriver) -> list[str]:
        children = await decide(driver, 1)
        await driver.cluster.children.commit(children[:1], times_out=True)
        await until_timed_out(driver, children, 1)
        for _ in range(2):
            follower = successor(driver)
            with pytest.raises(SinkStopped, match=r"BATCH 1 IS TORN .* 2 are known .* 1 cannot"):
                await follower.write(1)
            await follower.close()
        follower = successor(driver, first_batch=2)
        assert await follower.write(1) == BatchOver(was_written=False)
        assert await follower.write(2) == BatchOver(was_written=True)
        await follower.close()
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
        follower = successor(driver)
        effect = await follower.until(RollBackChildren, 1)
        await driver.cluster.children.commit(children[:1], times_out=True)
        with pytest.raises(SinkStopped, match=r"BATCH 1 IS TORN .* 1 are known .* 2 cannot"):
            await follower.on(effect)
        await follower.close()
        return [*batch_rows(0), *rows(1, 0)]

    play(
        bootstrap, before_the_decision, all_of_a_decided_batch, all_under_a_driver_that_lives,
        one_while_the_decision_was_on_its_way, one_of_a_decided_batch, driver_dies,
        commit_stands_still, a_zombie_commits_meanwhile,
    )  # fmt: skip


def test_ending_children_is_idempotent(bootstrap: str) -> None:
    async def scene(driver: ManualDriver) -> list[str]:
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
        refused = await requests.commit(aborted, times_out=True)
        assert isinstance(refused, ChildrenRefused)
        await driver.cluster.admin.transactions.end(names[2])
        assert (await requests.describe(children[2:])).ended == (names[2],)
        return [*batch_rows(0), *rows(1, 0)]

    play(bootstrap, scene)


@pytest.mark.chaos
def test_an_id_that_is_forgotten_tells_nothing_and_the_sink_stops(expiring_ids: str) -> None:
    async def scene(driver: ManualDriver) -> list[str]:
        children = await decide(driver)
        await driver.cluster.children.commit(children, times_out=True)
        async with Admin(driver.bootstrap) as admin, asyncio.timeout(60):
            while await admin.transactions.list_transactions(
                prefix=f"oncelog.spark.{driver.sink_id}.g"
            ):
                await asyncio.sleep(0.2)
        follower = successor(driver)
        with pytest.raises(
            SinkStopped, match=r"BATCH 1 IS TORN .* 3 cannot be \(the id has expired"
        ):
            await follower.write(1)
        await follower.close()
        return all_rows(2)

    play(expiring_ids, scene)


def test_what_brokers_answer_settles_the_mode_and_its_timeout(
    bootstrap: str, request: pytest.FixtureRequest
) -> None:
    best = Mode.PREPARED if request.node.callspec.params["bootstrap"] == OURS else Mode.DRIVER

    async def look() -> None:
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

    asyncio.run(look())
