"""The sink's real driver and real attempts on a real cluster, moved by driver, without Spark.

Each effect is a step that a test can hold, repeat after a death, or let come late. One loop for
everything; an attempt lives in a worker of its own, as in another process.
"""

import asyncio
from typing import Any

import pyarrow as pa

from oncelog.client import ClusterView, Producer
from oncelog.pipeline.sink import steps
from oncelog.pipeline.sink.checks import ready_topic
from oncelog.pipeline.sink.cluster import SinkCluster
from oncelog.pipeline.sink.decision import Decision
from oncelog.pipeline.sink.login import ClusterLogin
from oncelog.pipeline.sink.protocol import Mode, SinkProtocol
from oncelog.pipeline.sink.task import Attempt, SinkWorker, TaskSpec

QUERY, TASKS = "query", 3


def rows(batch_id: int, partition: int, count: int = 20) -> list[str]:
    return [f"{batch_id}-{partition}-{row:03}" for row in range(count)]


def batch_rows(batch_id: int) -> list[str]:
    return [value for partition in range(TASKS) for value in rows(batch_id, partition)]


class ManualDriver:
    """One driver. `close` ends its connections as a death would: without a word."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        sink_id: str,
        *,
        mode: Mode = Mode.PREPARED,
        timeout_ms: int = 60_000,
        task_timeout_ms: int = 60_000,
    ) -> None:
        self.bootstrap, self.topic, self.sink_id, self.tasks = bootstrap, topic, sink_id, TASKS
        self.protocol = SinkProtocol(sink_id, mode=mode)
        self.task_timeout_ms = task_timeout_ms if mode is Mode.TRANSACTIONAL else None
        self.view = ClusterView(bootstrap, client_id="driver")
        self.cluster = SinkCluster(self.view, sink_id, control_timeout_ms=timeout_ms)
        self.workers: list[SinkWorker] = []

    def worker(self) -> SinkWorker:
        worker = SinkWorker()
        self.workers.append(worker)
        return worker

    async def until(self, wanted: type[steps.Effect], batch_id: int) -> steps.Effect:
        """Go on until this effect is next; it is not carried out."""
        await ready_topic(self.cluster.admin)
        effect = self.protocol.step(steps.BatchGiven(query_id=QUERY, batch_id=batch_id))
        return await self.on(effect, wanted)

    async def on(
        self, effect: steps.Effect, wanted: type[steps.Effect] = steps.BatchOver
    ) -> steps.Effect:
        """Carry out this effect and what follows, until the wanted one is next."""
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
        reports = [await self.attempt(spec, p) for p in range(self.tasks)]
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
        """One whole attempt, as Spark would see it."""
        token = await asyncio.to_thread(
            write_rows, spec, worker or self.worker(), rows(spec.batch_id, partition)
        )
        return steps.TaskReport(partition_id=partition, record_count=20, child=token)

    async def close(self) -> None:
        for worker in self.workers:
            await asyncio.to_thread(worker.close)
        await self.view.close()


def write_rows(spec: TaskSpec, worker: SinkWorker, values: list[str]) -> Any:
    """The token of a prepared transaction with these rows; on a thread of its own."""
    attempt = Attempt(spec, worker)
    attempt.write(pa.RecordBatch.from_pydict({"value": [v.encode() for v in values]}))
    return attempt.prepare()
