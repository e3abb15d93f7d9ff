"""Run the sink's real driver and attempts on a real cluster, step by step and without Spark.

Each effect is a step that a test can hold, repeat after a death, or deliver late. One loop runs all
steps. An attempt runs in its own worker, as in another process.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pyarrow as pa

from oncelog.client import ClusterView, Producer
from oncelog.pipeline.sink import steps
from oncelog.pipeline.sink.batch_check import Terms
from oncelog.pipeline.sink.checks import ready_topic
from oncelog.pipeline.sink.cluster import SinkCluster
from oncelog.pipeline.sink.decision import Decision
from oncelog.pipeline.sink.login import ClusterLogin
from oncelog.pipeline.sink.protocol import Mode, SinkProtocol
from oncelog.pipeline.sink.task import Attempt, SinkWorker, TaskSpec

from ...interop.client_peers import new_topic
from .output import check_once

QUERY, TASKS = "query", 3
SCANS = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "300"}
FORGETS = {
    "transactional.id.expiration.ms": "8000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
}
E = TypeVar("E", bound=steps.Effect)


def rows(batch_id: int, partition: int, count: int = 20) -> list[str]:
    return [f"{batch_id}-{partition}-{row:03}" for row in range(count)]


def batch_rows(batch_id: int) -> list[str]:
    return [value for partition in range(TASKS) for value in rows(batch_id, partition)]


def all_rows(batches: int) -> list[str]:
    return [value for batch in range(batches) for value in batch_rows(batch)]


class ManualDriver:
    """The driver of a sink, which a test executes step by step.

    `close` ends its connections without a request, as the death of a process does.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        sink_id: str,
        *,
        mode: Mode = Mode.PREPARED,
        timeout_ms: int = 60_000,
        task_timeout_ms: int = 60_000,
        terms: Terms | None = None,
    ) -> None:
        self.bootstrap, self.topic, self.sink_id = bootstrap, topic, sink_id
        self.protocol = SinkProtocol(sink_id, mode=mode, terms=terms)
        self.task_timeout_ms = task_timeout_ms if mode is Mode.TRANSACTIONAL else None
        self.view = ClusterView(bootstrap, client_id="driver")
        self.cluster = SinkCluster(self.view, sink_id, control_timeout_ms=timeout_ms)
        self.workers: list[SinkWorker] = []
        self.kept_workers: list[SinkWorker] | None = None  # for all attempts of each partition
        self.successors: list[ManualDriver] = []

    def successor(self, **options: Any) -> "ManualDriver":
        """Return the next driver of the same sink, which `close` of this driver also closes."""
        options = {"mode": self.protocol.mode} | options
        other = ManualDriver(self.bootstrap, self.topic, self.sink_id, **options)
        self.successors.append(other)
        return other

    def worker(self) -> SinkWorker:
        worker = SinkWorker()
        self.workers.append(worker)
        return worker

    async def until(self, wanted: type[E], batch_id: int) -> E:
        """Give the batch to the driver, run it up to this effect, and return this effect."""
        await ready_topic(self.cluster.admin)
        effect = self.protocol.step(steps.BatchGiven(query_id=QUERY, batch_id=batch_id))
        found = await self.on(effect, wanted)
        assert isinstance(found, wanted)
        return found

    async def on(
        self, effect: steps.Effect, wanted: type[steps.Effect] = steps.BatchOver
    ) -> steps.Effect:
        """Execute this effect and its successors. Return the first wanted one, or BatchOver."""
        while not isinstance(effect, wanted | steps.BatchOver):
            effect = await self.carry_out(effect)
        return effect

    async def carry_out(self, effect: steps.Effect) -> steps.Effect:
        return self.protocol.step(await self.perform(effect))

    async def write(self, batch_id: int) -> steps.Effect:
        return await self.until(steps.BatchOver, batch_id)

    async def perform(self, effect: steps.Effect) -> steps.Event:
        match effect:
            case steps.RunTasks():
                return await self.run_tasks(effect)
            case steps.WriteBatch(decision):
                return await self.write_batch(decision)
            case _:
                return await self.cluster.perform(effect)

    async def run_tasks(self, effect: steps.RunTasks) -> steps.Event:
        spec = self.task_spec(effect)
        workers = self.kept_workers or [None] * TASKS
        reports = [await self.attempt(spec, p, workers[p]) for p in range(TASKS)]
        return steps.TasksDone(tuple(reports))

    async def write_batch(self, decision: Decision) -> steps.Event:
        values = [value.encode() for value in batch_rows(decision.batch_id)]

        async def write(producer: Producer) -> None:
            await producer.send_many(self.topic, values)

        return await self.cluster.write_decision(decision, write)

    def task_spec(self, effect: steps.RunTasks) -> TaskSpec:
        return TaskSpec(
            sink_id=self.sink_id,
            generation=effect.generation,
            batch_id=effect.batch_id,
            login=ClusterLogin(self.bootstrap),
            topic=self.topic,
            timeout_ms=self.task_timeout_ms,
            committed=effect.committed,
        )

    async def attempt(
        self, spec: TaskSpec, partition: int, worker: SinkWorker | None = None
    ) -> Any:
        """Write the rows of one task attempt, and return its report to the driver."""
        token = await asyncio.to_thread(
            write_rows, spec, worker or self.worker(), rows(spec.batch_id, partition)
        )
        return steps.TaskReport(partition_id=partition, record_count=20, child=token)

    async def assert_once(self, wanted: Iterable[str]) -> None:
        await check_once(self.bootstrap, self.topic, wanted)

    async def close(self) -> None:
        for successor in self.successors:
            await successor.close()
        while self.workers:
            await asyncio.to_thread(self.workers.pop().close)
        await self.view.close()


@asynccontextmanager
async def driving(bootstrap: str, **options: Any) -> AsyncIterator[ManualDriver]:
    """Yield a driver with a new topic and a sink of its own, and close it at the end."""
    topic = await new_topic(bootstrap, 3)
    driver = ManualDriver(bootstrap, topic, topic, **options)
    try:
        async with asyncio.timeout(240):
            yield driver
    finally:
        await driver.close()


Scene = Callable[[ManualDriver], Awaitable[list[str]]]


async def play(bootstrap: str, *scenes: Scene, **options: Any) -> None:
    """Run the scenes of a test concurrently, each with its own driver and topic.

    Each scene returns the rows that must be in its topic at the end.
    """

    async def run(scene: Scene) -> tuple[str, list[str]]:
        async with driving(bootstrap, **options) as driver:
            return driver.topic, await scene(driver)

    for topic, wanted in await asyncio.gather(*map(run, scenes)):
        await check_once(bootstrap, topic, wanted)


def write_rows(spec: TaskSpec, worker: SinkWorker, values: list[str]) -> Any:
    """Write these rows as one task attempt, and return the token of its prepared transaction."""
    attempt = Attempt(spec, worker)
    attempt.write(pa.RecordBatch.from_pydict({"value": [v.encode() for v in values]}))
    return attempt.prepare()
