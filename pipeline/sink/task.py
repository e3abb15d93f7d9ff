"""The part of the sink that runs in Spark's workers, with one open transaction for each attempt.

A worker process has one event loop and one view of the cluster, and keeps them from task to task.
An attempt opens its transaction at its first row. An attempt without rows opens no transaction. The
first request of an id is InitProducerId. If its answer was lost, the id is abandoned, since the
request may arrive a second time, much later, and would then abort the id's open transaction. An
attempt that fails aborts its transaction if possible, and the driver sweeps the rest.

With transactions V1 a lost answer to AddPartitionsToTxn fails an attempt of mode "transactional".
The request may arrive again after the commit, and would then open the id's transaction again, with
the same epoch. When that transaction times out, the committed transaction would seem aborted.

child_ids.py decides which ids attempts use.
"""

import asyncio
import contextlib
import gc
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...client import ClusterView, Producer
from ...client.loop_thread import LoopThread
from ...wire.errors import KafkaError, RequestTimedOut
from .child_ids import ChildIds, ids_file
from .columns import rows_by_topic
from .login import ClusterLogin

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("oncelog.sink")

ABORT_TIMEOUT_MS = 5_000
ID_TRIES = 5


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """The values that the driver passes to every attempt of a batch.

    settings: the settings of the producers. timeout_ms: the timeout of ordinary transactions, or
    None for prepared transactions, which have no timeout.
    """

    sink_id: str
    generation: int
    batch_id: int
    login: ClusterLogin
    topic: str | None
    timeout_ms: int | None = None
    committed: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


class SinkWorker:
    """The state that a worker process keeps between tasks.

    It has the table of ids, the event loop, and the connections by cluster and login.
    """

    is_settled = False  # all modules that a task needs are loaded, and frozen

    def __init__(self, ids: ChildIds | None = None) -> None:
        self.ids = ids or ChildIds()
        self.thread = LoopThread("oncelog-sink")
        self.views: dict[tuple[Any, ...], ClusterView] = {}

    def view(self, login: ClusterLogin) -> ClusterView:
        """Return the view of a cluster, opened when it is first used."""
        if login.key not in self.views:
            self.views[login.key] = login.open_view("oncelog-sink")
        return self.views[login.key]

    def close(self) -> None:
        """Close the connections and the event loop. Open transactions stay open."""
        for view in self.views.values():
            self.thread.run(view.close())
        self.thread.close()
        self.ids.close()


_workers: dict[int, SinkWorker] = {}


def worker_of_process(new: Callable[[], SinkWorker] = SinkWorker) -> SinkWorker:
    """Return this process's SinkWorker. A forked process gets a new one.

    Spark runs the garbage collector after every task, which takes 50 ms for modules that never
    change. Therefore the modules are frozen (`gc.freeze`) from the second task on.
    """
    process_id = os.getpid()
    worker = _workers.get(process_id)
    if worker is None:
        _workers.clear()
        worker = _workers[process_id] = new()
    elif not worker.is_settled:
        worker.is_settled = True
        gc.freeze()
    return worker


def report_type() -> "StructType":
    """Return Spark's type of the row that `write_attempt` yields.

    Parsing the type from text would need about a hundred calls to the JVM.
    """
    from pyspark.sql.types import BooleanType, IntegerType, LongType, StringType, StructType

    kinds = {
        "partition_id": IntegerType(),
        "record_count": LongType(),
        "transactional_id": StringType(),
        "producer_id": LongType(),
        "producer_epoch": IntegerType(),
        "is_v2": BooleanType(),
    }
    report = StructType()
    for name, kind in kinds.items():
        report.add(name, kind)
    return report


def write_attempt(
    spec: TaskSpec, batches: "Iterator[pa.RecordBatch]"
) -> "Iterator[pa.RecordBatch]":
    """Write the rows of one partition as one attempt. Yield one row, the report (report_type).

    This function is for mapInArrow.
    """
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    attempt = Attempt(spec, worker_of_process(lambda: SinkWorker(ChildIds(ids_file()))))
    try:
        for batch in batches:
            if batch.num_rows:
                attempt.write(batch)
        child = attempt.prepare()
    except BaseException:
        attempt.abort()
        raise
    row = {
        "partition_id": [context.partitionId()],
        "record_count": [attempt.record_count],
        "transactional_id": [child.transactional_id if child else None],
        "producer_id": [child.producer_id if child else None],
        "producer_epoch": [child.producer_epoch if child else None],
        "is_v2": [child.is_v2 if child else None],
    }
    types = [pa.int32(), pa.int64(), pa.string(), pa.int64(), pa.int32(), pa.bool_()]
    schema = pa.schema(list(zip(row, types, strict=True)))
    yield pa.RecordBatch.from_pydict(row, schema)


class Attempt:
    """One attempt, which opens its transaction with its first row."""

    def __init__(self, spec: TaskSpec, worker: SinkWorker) -> None:
        self._spec, self._worker = spec, worker
        self._producer: Producer | None = None
        self.record_count = 0

    def write(self, batch: "pa.RecordBatch") -> None:
        """Pass rows to the producer, and return when they are in batches, or raise its errors."""
        self._worker.thread.run(self._write(batch))
        self.record_count += batch.num_rows

    def prepare(self) -> Any:
        """Flush the rows, and prepare the transaction. Return the transaction's token, or None
        without rows.
        """
        child = self._worker.thread.run(self._prepare())
        if child is not None:
            spec, ids = self._spec, self._worker.ids
            ids.put_back(child.transactional_id, spec.sink_id, spec.generation, spec.batch_id)
        return child

    def abort(self) -> None:
        """Abort the open transaction, as far as possible within a few seconds."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):
                self._worker.thread.run(producer.close(), ABORT_TIMEOUT_MS / 1000)

    async def _write(self, batch: "pa.RecordBatch") -> None:
        if self._producer is None:
            self._producer = await self._open()
        for topic, columns in rows_by_topic(batch, self._spec.topic):
            await self._producer.send_many(topic, **columns)

    async def _prepare(self) -> Any:
        producer, self._producer = self._producer, None
        if producer is None:
            return None
        may_time_out = self._spec.timeout_ms is not None
        try:
            child = await producer.prepare(may_time_out=may_time_out)
            if may_time_out and producer.lost_answers:
                await producer.abort_transaction()
                raise RequestTimedOut(
                    f"an answer of the coordinator about {child.transactional_id} was lost, and "
                    "its transaction cannot be relied upon; the attempt has to be made again"
                )
            return child
        finally:
            await producer.close()  # leaves a prepared transaction open

    async def _open(self) -> Producer:
        spec = self._spec
        problem: KafkaError | None = None
        for _ in range(ID_TRIES):
            name = self._worker.ids.take(
                spec.sink_id, spec.generation, spec.batch_id, spec.committed
            )
            producer = Producer(
                self._worker.view(spec.login),
                transactional_id=name,
                **_kind_of_transaction(spec.timeout_ms),
                **spec.settings,
            )
            try:
                await producer.init_transactions()
                if not producer.lost_answers:
                    await producer.begin_transaction()
                    return producer
                log.info("the answer to InitProducerId of %s was lost, so another id is used", name)
                problem = None
            except KafkaError as caught:
                problem = caught
            await producer.close()
            if problem is not None and not problem.retriable:
                raise problem
            await asyncio.sleep(0.1)
        raise problem or RuntimeError(
            f"the answer to InitProducerId was lost {ID_TRIES} times in a row"
        )


def _kind_of_transaction(timeout_ms: int | None) -> dict[str, Any]:
    if timeout_ms is None:
        return {"transaction_two_phase_commit_enable": True}
    return {"transaction_timeout_ms": timeout_ms}
