"""The exactly-once sink from Spark into topics of any Kafka-compatible cluster.

    from oncelog.pipeline import exactly_once

    query = exactly_once(
        rows,                                   # a streaming DataFrame with a column `value`
        sink_id="billing",                      # names this output for as long as it lives
        bootstrap="127.0.0.1:9092",
        topic="invoices",
        checkpoint="/data/billing-checkpoint",
    )

Readers with isolation.level=read_committed see the rows of each batch once, even after kills. With
mode="prepared", every task writes into its own prepared transaction, and the driver decides
(protocol.py). The cluster must support KIP-939. With mode="transactional", tasks write into
ordinary transactions, on any Kafka from 3.0 on. This mode is exact as long as no outage is longer
than the transactions' timeout. With mode="driver", all rows of a batch go to the driver, which
writes the rows and the decision in one transaction, on any Kafka from 3.0 on. mode="auto" is
"prepared" if the brokers support it, else "driver".

In a foreachBatch of your own, call an ExactlyOnceSink for every batch, and for nothing else. The
sink asks Spark for the query's checkpoint (checkpoint.py):

    sink = ExactlyOnceSink("billing", "127.0.0.1:9092", "invoices")

    def each_batch(frame, batch_id):
        sink(frame.select(...), batch_id)

If the sink and the checkpoint contradict each other, the query stops with a SinkStopped, whose text
has the cause and the remedy. The sink is for classic Spark. With Spark Connect, foreachBatch runs
in another process, and the sink refuses to work (connect.py).
"""

import contextlib
import functools
import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...client import PreparedTransaction, Producer
from ...client.settings import producer_settings
from ..connect import refuse_connect
from ..progress.written import note_written
from . import steps
from .batch_check import Terms
from .checkpoint import plan_digest
from .checks import ready_topic, refuse_missing_topic, settle_mode
from .cluster import ClusterThread, SinkCluster
from .columns import prepare, rows_by_topic
from .login import ClusterLogin, client_keywords
from .modes import Mode
from .names import check_sink_id
from .protocol import SinkProtocol
from .steps import Phase
from .stop_words import SinkStopped
from .task import TaskSpec, report_type, write_attempt

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["ExactlyOnceSink", "SinkStopped", "exactly_once"]

log = logging.getLogger("oncelog.sink")

IDLE_S = 600.0  # after that the control id is initialized again, since brokers forget it after days
QUERY_ID = "sql.streaming.queryId"
OUR_KEYS = (
    "bootstrap_servers",
    "client_id",
    "transactional_id",
    "transaction_two_phase_commit_enable",
)
TIMEOUT = "transaction_timeout_ms"
V1_ONLY = "oncelog_transaction_version_max"
CHUNK_ROWS = 10_000


def exactly_once(
    frame: "DataFrame",
    *,
    sink_id: str,
    bootstrap: str,
    topic: str | None = None,
    checkpoint: str,
    mode: str | None = "prepared",
    output_mode: str = "append",
    trigger: Mapping[str, Any] | None = None,
    query_name: str | None = None,
    **options: Any,
) -> "StreamingQuery":
    """Start a query that writes a streaming DataFrame (see the top of the file).

    topic: None when the rows have a column `topic`. trigger: the arguments of Spark's `trigger()`,
    such as `{"availableNow": True}`. options: the options of ExactlyOnceSink. Raises ValueError for
    columns that cannot be written, and for a missing topic.
    """
    sink = ExactlyOnceSink(sink_id, bootstrap, topic, mode=mode, checkpoint=checkpoint, **options)
    sink.check(frame)
    if topic is not None:
        refuse_missing_topic(sink.login, topic)
    writer = (
        frame.writeStream.foreachBatch(sink)
        .outputMode(output_mode)
        .option("checkpointLocation", checkpoint)
    )
    if trigger is not None:
        writer = writer.trigger(**trigger)
    if query_name is not None:
        writer = writer.queryName(query_name)
    return writer.start()


class ExactlyOnceSink:
    """A sink for foreachBatch. Each query has its own sink, in the driver.

    checkpoint: the query's checkpoint, needed only if Spark itself does not return it.
    replaces_query, first_batch: see batch_check.py. transaction_timeout_ms: how long a batch may
    take, with mode "driver" (10 minutes) or "transactional" (the longest that brokers allow).
    settings: the settings of the producers (compression_type, linger_ms, batch_size..., see
    client/settings.py), with TLS and SASL, as keywords or with the names of the source
    (`**{"kafka.sasl.password": ...}`).
    """

    def __init__(
        self,
        sink_id: str,
        bootstrap: str,
        topic: str | None = None,
        *,
        mode: str | None = "prepared",
        checkpoint: str | None = None,
        replaces_query: str | None = None,
        first_batch: int | str | None = None,
        transaction_timeout_ms: int | str | None = None,
        **settings: Any,
    ) -> None:
        self.sink_id = check_sink_id(sink_id)
        self.bootstrap, self.topic = bootstrap, topic
        self._wanted, self._checkpoint = Mode.named(mode), checkpoint
        settings = client_keywords(settings)
        if TIMEOUT in settings:  # by Kafka's name
            if transaction_timeout_ms is not None:
                raise ValueError(f"{TIMEOUT} is given twice")
            transaction_timeout_ms = settings.pop(TIMEOUT)
        for key in OUR_KEYS:
            if key in settings:
                raise ValueError(f"{key} is the sink's own to set")
        producer_settings(None, {"transactional_id": sink_id, **settings})  # raises on errors
        if self._wanted is Mode.TRANSACTIONAL and V1_ONLY in settings:
            raise ValueError(
                f'{V1_ONLY} does not go with mode="transactional": the driver ends what tasks have '
                "written, which the brokers of oncelog allow to clients with transactions V2 only"
            )
        self.login = ClusterLogin.of(bootstrap, settings)
        first_batch = _whole("first_batch", first_batch, 0)
        terms = Terms(replaces_query=replaces_query, first_batch=first_batch)
        self.protocol = SinkProtocol(sink_id, mode=self._wanted or Mode.PREPARED, terms=terms)
        self.timeout_ms = _whole(TIMEOUT, transaction_timeout_ms, 1)
        self._task_timeout_ms: int | None = None
        self._settings = settings
        self._opened: ClusterThread | None = None
        self._last_s = time.monotonic()
        self._is_at_work = threading.Lock()
        self._done = ("", -1, 0, 0)  # the last batch: query, number, session of the run, plan
        self.record_count = 0  # of the last batch

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "an exactly-once sink lives in the driver and cannot be sent elsewhere; Spark Connect, "
            "which runs foreachBatch in another process, is not supported"
        )

    def check(self, frame: "DataFrame") -> None:
        """Raise ValueError if rows with the frame's columns cannot be written."""
        refuse_connect(frame)
        prepare(frame, self.topic)

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        """Write a batch, or only compute it if it was already written, to advance Spark's state.

        Raises SinkStopped, and the errors of tasks.
        """
        if not self._is_at_work.acquire(blocking=False):
            raise RuntimeError(
                f"sink {self.sink_id} is at work on another batch: a sink serves one query, and "
                "one run of it at a time. Make one for each output, with a sink_id of its own; "
                "for a query that was started again, wait until its last run has ended"
            )
        try:
            self._take(frame, batch_id)
        finally:
            self._is_at_work.release()

    def _take(self, frame: "DataFrame", batch_id: int) -> None:
        if self._opened is not None:
            self.protocol.swept(self._opened.stop_sweeps())
        given = self._given(frame, batch_id)
        of_batch = (given.query_id, batch_id, _session_of(frame), frame.semanticHash())
        self._refuse_other_rows(of_batch)
        rows = prepare(frame, self.topic)
        if self.protocol.phase is Phase.IDLE:
            self._make_ready()
        problem: BaseException | None = None
        event: steps.Event = given
        try:
            while True:
                effect = self.protocol.step(event)
                if isinstance(effect, steps.BatchOver):
                    break
                try:
                    event = self.perform(effect, rows)
                except BaseException as caught:  # also the stop of the query
                    problem = problem or caught
                    is_work = isinstance(effect, steps.RunTasks | steps.WriteBatch)
                    event = steps.TasksFailed() if is_work else steps.Failed()
        except SinkStopped:
            self.close()
            raise
        if problem is not None:
            self._let_go()
            raise problem
        self._sweep_while_idle()
        if not effect.was_written:  # it was written before, which Spark does not know yet
            _compute(rows)
        self._last_s, self._done = time.monotonic(), of_batch
        self.record_count = self.record_count if effect.was_written else 0
        note_written(given.query_id, batch_id, self.record_count)
        at = self.sink_id, batch_id
        if effect.was_written:
            log.info("sink %s: batch %s is written with %s records", *at, self.record_count)
        else:
            log.info("sink %s: batch %s was written before, so nothing is written now", *at)

    def close(self) -> None:
        """Close the sink's thread and connections. A query that continues opens them again.

        The sink itself calls this method after a SinkStopped and after a failed start. After
        another failure of a batch, or by the garbage collector, the same is closed later.
        """
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _let_go(self) -> None:
        """Close the connections after a failed batch.

        If sweeps for late attempts run, they continue for LINGER_S, and the connections are closed
        afterwards, because attempts of the batch may still run.
        """
        with contextlib.suppress(Exception):
            self._sweep_while_idle()
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.let_go()

    def _sweep_while_idle(self) -> None:
        leftovers = self.protocol.leftovers
        has_tasks = self.protocol.mode is not Mode.DRIVER
        if self._opened is not None and leftovers is not None and has_tasks:
            self._opened.start_sweeps(leftovers)

    # --- carrying out

    def perform(self, effect: steps.Effect, rows: "DataFrame") -> steps.Event:
        """Execute an effect and return the resulting event."""
        match effect:
            case steps.RunTasks():
                return self._run_tasks(effect, rows)
            case steps.WriteBatch():
                return self._write_batch(effect, rows)
            case _:
                if self.protocol.phase is Phase.UNDECIDING:
                    log.warning(
                        "sink %s: the transactions of a decided batch timed out "
                        "before one was committed, so the batch is written again",
                        self.sink_id,
                    )
                return self._run(lambda cluster: cluster.perform(effect))

    def _run_tasks(self, effect: steps.RunTasks, rows: "DataFrame") -> steps.Event:
        spec = TaskSpec(
            sink_id=self.sink_id,
            generation=effect.generation,
            batch_id=effect.batch_id,
            login=self.login,
            topic=self.topic,
            timeout_ms=self._task_timeout_ms,
            committed=effect.committed,
            settings=self._settings,
        )
        # Spark's signature requires an iterator of batches, and ours returns one row.
        found = rows.mapInArrow(functools.partial(write_attempt, spec), report_type()).collect()
        self.record_count = sum(row.record_count for row in found)
        return steps.TasksDone(tuple(map(_report, found)))

    def _write_batch(self, effect: steps.WriteBatch, rows: "DataFrame") -> steps.Event:
        table = rows.toArrow()
        self.record_count = table.num_rows

        async def write(producer: Producer) -> None:
            for batch in table.to_batches(max_chunksize=CHUNK_ROWS):
                for topic, columns in rows_by_topic(batch, self.topic):
                    await producer.send_many(topic, **columns)

        return self._run(lambda cluster: cluster.write_decision(effect.decision, write))

    def _run(self, work: Callable[[SinkCluster], Any]) -> Any:
        if self._opened is None:
            self._opened = ClusterThread(self.login, self.sink_id, self._settings)
            # A foreachBatch is not told that its query has ended; its object is only dropped.
            weakref.finalize(self, self._opened.let_go).atexit = False
        return self._opened.run(work)

    def _refuse_other_rows(self, of_batch: tuple[str, int, int, int]) -> None:
        """Raise ValueError if the sink was called for this batch before, with other rows.

        Plans can be compared only within one run of a query.
        """
        if of_batch[:3] == self._done[:3] and of_batch != self._done:
            raise ValueError(
                f"sink {self.sink_id} was given batch {of_batch[1]} before, and is given other "
                "rows as the same batch: they would be taken for written, and be lost. Call the "
                "sink once in each batch, with the union of all its rows, or make a sink for each "
                "output, each with a sink_id of its own"
            )

    def _make_ready(self) -> None:
        try:
            self._run(self._ready)
        except BaseException:
            self.close()  # the query ends, and Spark may hold the sink for long
            raise

    async def _ready(self, cluster: SinkCluster) -> None:
        chosen = await settle_mode(cluster.admin, self.sink_id, self._wanted, self.timeout_ms)
        is_plain = chosen.mode is not Mode.TRANSACTIONAL and self._wanted is not None
        log.log(logging.INFO if is_plain else logging.WARNING, "%s", chosen.in_words)
        self.protocol.mode = chosen.mode
        self._task_timeout_ms = chosen.task_timeout_ms
        cluster.control_timeout_ms = chosen.control_timeout_ms
        await ready_topic(cluster.admin)

    def _given(self, frame: "DataFrame", batch_id: int) -> steps.BatchGiven:
        refuse_connect(frame)
        spark = frame.sparkSession
        query_id = spark.sparkContext.getLocalProperty(QUERY_ID)
        if query_id is None:
            raise RuntimeError(
                "the sink was called outside of a streaming query: it belongs into foreachBatch, "
                "which tells it the query and the batch"
            )
        digest = plan_digest(spark, query_id, batch_id, self._checkpoint)
        return steps.BatchGiven(
            query_id=query_id,
            batch_id=batch_id,
            digest=digest,
            is_long_after=time.monotonic() - self._last_s > IDLE_S,
        )


def _compute(rows: "DataFrame") -> None:
    """Compute a batch and discard its rows, which advances Spark's state and the watermark."""
    rows.write.format("noop").mode("overwrite").save()


def _session_of(frame: "DataFrame") -> int:
    """Return the hash of the frame's Spark session, which differs for each run of a query."""
    session: Any = frame.sparkSession._jsparkSession
    return int(session.hashCode())


def _whole(name: str, value: int | str | None, least: int) -> int | None:
    """Parse an option that is a whole number, or raise ValueError if it is less than `least`."""
    try:
        number = None if value is None else int(value)
    except ValueError:
        number = least - 1
    if number is not None and number < least:
        raise ValueError(f"{name} is a whole number from {least} on, not {value!r}")
    return number


def _report(row: Any) -> steps.TaskReport:
    child = None
    if row.transactional_id is not None:
        child = PreparedTransaction(
            row.transactional_id, row.producer_id, row.producer_epoch, row.is_v2
        )
    return steps.TaskReport(
        partition_id=row.partition_id, record_count=row.record_count, child=child
    )
