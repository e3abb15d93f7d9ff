"""The requests of a sink's driver about its decisions and its control transaction.

A decision is a record that names the task transactions which count, and the control transaction
writes it (protocol.py). All requests use Kafka's protocol. This file only translates answers into
events. A request is retried for as long as its outcome may still be decided. A refused request
becomes an event. An error is raised only if the outcome is certain.
"""

import atexit
import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ...client import Admin, ClusterView, Consumer, Producer, ProducerState
from ...client.fetch.offset_queries import EARLIEST, LATEST
from ...client.loop_thread import LoopThread
from ...wire.errors import ErrorCode, KafkaError
from . import steps
from .child_requests import ChildRequests
from .decision import TOPIC, Decision, decode, encode, newest_by_key
from .idle_sweep import LAST_SWEEP_S, LAST_SWEEPS_S, LINGER_S, IdleSweep
from .login import ClusterLogin
from .modes import CONTROL_TIMEOUT_MS
from .names import Leftovers, control_id

log = logging.getLogger("oncelog.sink")

CONTROL_TRIES = 5  # of a transaction that had to be aborted
# Another sink's control transaction blocks the topic until it times out. For mode "driver" this
# may take transaction.max.timeout.ms: Kafka's default, and a minute until its coordinator notices.
READ_TIMEOUT_S = 900.0 + 60.0
LOG_INTERVAL_S = 30.0
# How long a fetch waits at the topic's end. An abandoned fetch blocks its connection for this
# time, and with it the next reading.
FETCH_WAIT_MS = 50
PLACE = (TOPIC, 0)
THREAD = "oncelog-sink-driver"
T = TypeVar("T")
Write = Callable[[Producer], Awaitable[None]]
OF_THE_TRANSACTION = {  # errors of the transaction itself; another transaction may succeed
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
}


@dataclass(frozen=True, slots=True)
class Reading:
    """The newest committed value of each key in the topic of decisions, up to an offset."""

    position: int
    newest: dict[bytes, bytes | None]


class SinkCluster:
    """The requests of one sink to its cluster, on one event loop. The caller closes the view."""

    def __init__(
        self,
        view: ClusterView,
        sink_id: str,
        *,
        control_timeout_ms: int = CONTROL_TIMEOUT_MS,
        settings: dict[str, Any] | None = None,
    ) -> None:
        self.view, self.sink_id = view, sink_id
        self.admin = Admin(view)
        self.children = ChildRequests(self.admin, sink_id)
        self._control: Producer | None = None
        self._looked: Reading | None = None  # until something is written
        self.control_timeout_ms, self._settings = control_timeout_ms, settings or {}

    async def close(self) -> None:
        """Close the control producer, which aborts its open transaction if possible."""
        control, self._control = self._control, None
        if control is not None:
            await control.close()

    async def perform(self, effect: steps.Effect) -> steps.Event:
        """Execute an effect that needs no rows, with requests. Return the resulting event."""
        match effect:
            case steps.ReadDecision():
                return await self.read_decision()
            case steps.FenceControlId():
                return await self.fence()
            case steps.ListOpen():
                return await self.children.list_open()
            case steps.WriteDecision(decision):
                return await self.write_decision(decision)
            case steps.CommitChildren(children, times_out):
                return await self.children.commit(children, times_out=times_out)
            case steps.DescribeChildren(children):
                return await self.children.describe(children)
            case steps.RollBackChildren(children):
                return await self.children.roll_back(children)
            case steps.AbortChildren(names):
                return await self.children.abort(names)
            case _:
                raise AssertionError(effect)

    async def fence(self) -> steps.Event:
        """Call InitProducerId for the driver's transactional id, which fences older drivers of the
        sink.

        Raises an error when no coordinator answers for a long time.
        """
        await self.close()
        control = Producer(
            self.view,
            transactional_id=control_id(self.sink_id),
            transaction_timeout_ms=self.control_timeout_ms,
            **self._settings,
        )
        await control.init_transactions()  # waits while the id's last transaction is being ended
        self._control = control
        return steps.Fenced()

    async def read_decision(self) -> steps.Event:
        """Read the sink's newest committed decision, up to the current end of the topic.

        A second call reads only the newer records.
        """
        self._looked = await read_topic(self.admin, self._looked)
        return steps.DecisionRead(decode(self.sink_id, self._looked.newest))

    async def write_decision(self, decision: Decision, write: Write | None = None) -> steps.Event:
        """Commit the decision's records, and the records that `write` sends, in one control
        transaction.
        """
        control, self._looked = self._control, None
        if control is None or control.state is ProducerState.FATAL_ERROR:
            return steps.ControlInDoubt("the control id was lost before")
        last: KafkaError | None = None
        for _ in range(CONTROL_TRIES):
            try:
                await control.begin_transaction()
                if write is not None:
                    await write(control)
                for key, value in encode(self.sink_id, decision):
                    await control.send(TOPIC, value, key=key, partition=0)
                await _commit(control)
            except KafkaError as problem:
                if control.state is ProducerState.FATAL_ERROR:
                    return steps.ControlInDoubt(str(problem))
                log.warning(
                    "sink %s: an attempt to write its decision failed: %s", self.sink_id, problem
                )
                last = problem
                try:
                    await control.abort_transaction()
                except KafkaError as second:
                    if control.state is ProducerState.FATAL_ERROR:
                        return steps.ControlInDoubt(str(second))
                    raise
                if not (problem.retriable or problem.number in OF_THE_TRANSACTION):
                    raise  # the next try would fail the same way
            else:
                return steps.ControlCommitted()
        assert last is not None
        raise last


class ClusterThread:
    """A thread with an event loop and a SinkCluster, for callers without an event loop."""

    def __init__(self, login: ClusterLogin, sink_id: str, settings: dict[str, Any]) -> None:
        self._thread = LoopThread(THREAD)
        self._make = lambda: SinkCluster(  # on the loop
            login.open_view(THREAD),
            sink_id,
            settings=settings,
        )
        self._cluster: SinkCluster | None = None
        self._sweep: IdleSweep | None = None
        self._closed = threading.Event()

    def run(self, work: Callable[[SinkCluster], Awaitable[T]]) -> T:
        """Return the result of `work(cluster)`, which runs on the thread's event loop."""

        async def on_loop() -> T:
            if self._cluster is None:
                self._cluster = self._make()
            return await work(self._cluster)

        return self._thread.run(on_loop())

    def start_sweeps(self, leftovers: Leftovers) -> None:
        """Abort the transactions of late attempts periodically, until `stop_sweeps` or `close`."""

        async def start(cluster: SinkCluster) -> None:
            self._sweep = IdleSweep(cluster.children, leftovers)

        self.run(start)
        _sweeping.add(self)

    def stop_sweeps(self) -> list[str]:
        """Stop the sweeps. Return the ids that they have aborted, or may still abort."""
        sweep, self._sweep = self._sweep, None
        _sweeping.discard(self)
        return [] if sweep is None else self._thread.run(sweep.stop())

    def sweep_once(self, limit_s: float) -> None:
        """Sweep once at the end of a program, for at most `limit_s`. Errors are ignored."""
        sweep = self._sweep
        if sweep is not None and not self._closed.is_set():
            with contextlib.suppress(Exception):
                self._thread.run(sweep.once(), limit_s)

    def close(self) -> None:
        """Close the connections and the thread."""
        if self._closed.is_set():
            return
        self._closed.set()
        _sweeping.discard(self)
        try:
            if self._cluster is not None:
                self._thread.run(self._cluster.close())
                self._thread.run(self._cluster.view.close())
        finally:
            self._thread.close()

    def let_go(self) -> None:
        """Close the connections and the thread, in a separate thread.

        They are closed at once, or after LINGER_S if sweeps run, which continue for that long. The
        garbage collector calls this method, possibly in the thread that has to end.
        """
        if not self._closed.is_set():
            threading.Thread(target=self._linger, daemon=True).start()

    def _linger(self) -> None:
        if self._sweep is not None:
            with contextlib.suppress(Exception):
                self.run(SinkCluster.close)  # aborts the driver's own open transaction
            self._closed.wait(LINGER_S)
        self.close()


_sweeping: "weakref.WeakSet[ClusterThread]" = weakref.WeakSet()


@atexit.register
def _sweep_at_exit() -> None:
    """Sweep once more at the program's end, for every sink that sweeps.

    An open transaction would otherwise block readers until the next start of its query.
    """
    until_s = time.monotonic() + LAST_SWEEPS_S
    for each in list(_sweeping):
        left_s = until_s - time.monotonic()
        if left_s > 0:
            each.sweep_once(min(LAST_SWEEP_S, left_s))


async def read_topic(
    admin: Admin, before: Reading | None = None, *, timeout_s: float | None = None
) -> Reading:
    """Read the newest committed value of each key of the topic of decisions, from `before` on.

    The read ends at the current high watermark, which a leader reports only when it is certain. The
    read waits for a transaction that blocks readers below this offset, for timeout_s, by default
    READ_TIMEOUT_S. Raises TimeoutError, which names the blocking transaction.
    """
    timeout_s = READ_TIMEOUT_S if timeout_s is None else timeout_s
    end = (await admin.list_offsets({PLACE: LATEST}))[PLACE]
    if before is None or before.position > end:
        start = (await admin.list_offsets({PLACE: EARLIEST}))[PLACE]
        before = Reading(start, {})
    if before.position == end:
        return before
    newest = dict(before.newest)
    async with Consumer(
        admin.view,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        fetch_max_wait_ms=FETCH_WAIT_MS,
    ) as consumer:
        consumer.assign({PLACE: before.position})
        begun_s = said_s = time.monotonic()
        while (position := consumer.position(*PLACE)) < end:
            records = await consumer.poll(FETCH_WAIT_MS)
            newest |= newest_by_key((r.key, r.value) for r in records)
            now_s = time.monotonic()
            if now_s - begun_s > timeout_s:
                raise TimeoutError(await _held_up(admin, consumer.position(*PLACE), end))
            if now_s - said_s > LOG_INTERVAL_S:
                log.warning("%s", await _held_up(admin, consumer.position(*PLACE), end))
                said_s = now_s
    return Reading(position, newest)


async def _held_up(admin: Admin, position: int, end: int) -> str:
    """Return a sentence about the offset to which the topic of decisions can be read, and why."""
    said = f"The topic {TOPIC} is read to offset {position}, and has to be read to {end}"
    stable = (await admin.list_offsets({PLACE: LATEST}, read_committed=True))[PLACE]
    if stable >= end:
        return f"{said}; its last stable offset is {stable}, but no broker gives what is before it."
    return (
        f"{said}; its last stable offset is {stable}, where a transaction began that nobody has "
        "ended yet. It holds up every sink, until it times out or its query is started again "
        "(oncelog txn list --prefix oncelog.spark. shows it)."
    )


async def _commit(control: Producer) -> None:
    """Commit the control transaction, and repeat EndTxn until the outcome is known."""
    while True:
        try:
            await control.commit_transaction()
        except KafkaError as problem:
            if control.state is not ProducerState.COMMITTING_TRANSACTION:
                raise
            log.warning(
                "it is unknown whether a sink's decision is committed, so EndTxn is sent again: %s",
                problem,
            )
        else:
            return
