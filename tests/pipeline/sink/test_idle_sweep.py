"""Test that a late attempt's transaction is aborted even if the query has no next batch."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.pipeline.sink import cluster as sink_cluster
from oncelog.pipeline.sink import idle_sweep
from oncelog.pipeline.sink.cluster import ClusterThread
from oncelog.pipeline.sink.idle_sweep import IdleSweep
from oncelog.pipeline.sink.login import ClusterLogin
from oncelog.pipeline.sink.names import Leftovers
from oncelog.pipeline.sink.steps import BatchOver, CommitChildren, Effect, RunTasks, TasksFailed

from ...present import present
from .manual_driver import ManualDriver, all_rows, batch_rows, driving, rows, write_rows
from .output import open_transactions

DEADLINE_S = 60


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(nodes=1, data=tmp_path_factory.mktemp("idle") / "data") as running:
        yield running


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_sweep, "SWEEP_S", 0.2)


@pytest.fixture
def driver(ours: Cluster) -> AbstractAsyncContextManager[ManualDriver]:
    return driving(ours.bootstrap)


async def until_nothing_is_open(bootstrap: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await open_transactions(bootstrap):
            await asyncio.sleep(0.1)


async def come_late(driver: ManualDriver, effect: RunTasks) -> str:
    """Run an attempt of this batch after the batch's other attempts, and return its transactional
    id.
    """
    spec, worker = driver.task_spec(effect), driver.worker()
    found = await asyncio.to_thread(write_rows, spec, worker, rows(9, 9))
    return found.transactional_id


async def test_late_attempt_is_aborted_while_the_query_is_idle(driver: ManualDriver) -> None:
    await driver.write(0)
    effect = await driver.until(RunTasks, 1)
    assert driver.protocol.leftovers is None, "a batch runs"
    assert await driver.on(effect) == BatchOver(was_written=True)
    sweep = IdleSweep(driver.cluster.children, present(driver.protocol.leftovers))
    late = await come_late(driver, effect)
    await until_nothing_is_open(driver.bootstrap)
    swept = await sweep.stop()
    assert swept == [late]
    driver.protocol.swept(swept)
    assert await driver.write(2) == BatchOver(was_written=True)
    await driver.assert_once(all_rows(3))


async def test_idle_sweep_leaves_decided_children_open_and_aborts_those_of_a_failed_batch(
    driver: ManualDriver,
) -> None:
    decided: Effect = await driver.until(CommitChildren, 0)
    while not (isinstance(decided, CommitChildren) and decided.children):
        decided = await driver.on(await driver.carry_out(decided), CommitChildren)
    assert driver.protocol.leftovers is None
    kept = frozenset(child.transactional_id for child in decided.children)
    leftovers = Leftovers(driver.sink_id, driver.protocol.generation, kept)
    sweep = IdleSweep(driver.cluster.children, leftovers)
    await sweep.once()
    assert await sweep.stop() == []
    await driver.on(decided)
    effect = await driver.until(RunTasks, 1)
    assert await driver.on(driver.protocol.step(TasksFailed())) == BatchOver(was_written=False)
    sweep = IdleSweep(driver.cluster.children, present(driver.protocol.leftovers))
    await come_late(driver, effect)
    await until_nothing_is_open(driver.bootstrap)
    await sweep.stop()
    await driver.assert_once(batch_rows(0))


async def test_late_transactions_are_aborted_for_a_while_after_the_sink_was_garbage_collected(
    driver: ManualDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_cluster, "LINGER_S", DEADLINE_S)
    effect = await driver.until(RunTasks, 0)
    await driver.on(effect)
    thread = ClusterThread(ClusterLogin(driver.bootstrap), driver.sink_id, {})
    await asyncio.to_thread(thread.start_sweeps, present(driver.protocol.leftovers))
    thread.let_go()
    await come_late(driver, effect)
    await until_nothing_is_open(driver.bootstrap)
    await asyncio.to_thread(thread.close)
    await driver.assert_once(batch_rows(0))


@pytest.mark.parametrize("problem", [RuntimeError("a callback of the user"), OSError(24, "files")])
def test_idle_sweep_that_fails_in_any_form_is_repeated_and_stops_without_an_error(
    problem: Exception,
) -> None:
    asked: list[float] = []

    class Children:
        async def list_open(self) -> None:
            asked.append(time.monotonic())
            raise problem

    async def scene() -> list[str]:
        cluster: Any = SimpleNamespace(children=Children())
        sweep = IdleSweep(cluster.children, Leftovers("s", 1, frozenset()))
        async with asyncio.timeout(DEADLINE_S):
            while len(asked) < 3:
                await asyncio.sleep(0.05)
        return await sweep.stop()

    assert asyncio.run(scene()) == []


def test_idle_sweeps_of_many_sinks_delay_the_program_exit_only_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits: list[float] = []

    class Deaf:
        def sweep_once(self, limit_s: float) -> None:
            limits.append(limit_s)
            time.sleep(limit_s)

    deaf: Any = [Deaf() for _ in range(100)]
    monkeypatch.setattr(sink_cluster, "_sweeping", deaf)
    monkeypatch.setattr(sink_cluster, "LAST_SWEEP_S", 0.1)
    monkeypatch.setattr(sink_cluster, "LAST_SWEEPS_S", 0.3)
    sink_cluster._sweep_at_exit()
    assert 1 <= len(limits) <= 4 and sum(limits) <= 0.3


PROGRAM = """
import sys
from oncelog.pipeline.sink.cluster import ClusterThread
from oncelog.pipeline.sink.login import ClusterLogin
from oncelog.pipeline.sink.names import Leftovers

bootstrap, sink, generation = sys.argv[1], sys.argv[2], int(sys.argv[3])
thread = ClusterThread(ClusterLogin(bootstrap), sink, {})
thread.start_sweeps(Leftovers(sink, generation, frozenset()))
"""


async def test_idle_sweep_runs_a_last_time_at_the_program_exit(driver: ManualDriver) -> None:
    effect = await driver.until(RunTasks, 0)
    await driver.on(effect)
    await come_late(driver, effect)
    assert len(await open_transactions(driver.bootstrap)) == 1
    words = [driver.bootstrap, driver.sink_id, str(driver.protocol.generation)]
    command = [sys.executable, "-P", "-c", PROGRAM, *words]
    await asyncio.to_thread(subprocess.run, command, check=True, timeout=DEADLINE_S)
    assert await open_transactions(driver.bootstrap) == []
    await driver.assert_once(batch_rows(0))
