"""The producer for programs without an event loop, with the same calls, without `await`.

    with BlockingProducer("127.0.0.1:9092") as producer:
        delivery = producer.send("orders", b"value")
        print(delivery.result(timeout_s=10))

This file follows some rules. `send` hands a record to an event loop in another thread and returns
immediately, unless buffer.memory bytes or HANDED_MAX records already wait for that loop. The error
of a record is therefore in the record's delivery, and `flush` raises an error that the application
has not read, as does `close` without a transactional id. An application that ignores deliveries
must not commit a transaction without the failed record. Therefore the commit raises the error too,
and the transaction must be aborted. Every other call first waits until the event loop has taken the
records that were handed over before.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from ..wire.batch_builder import Headers
from ..wire.errors import KafkaError, TransactionAbortable
from ..wire.record_rows import as_bytes
from .failures import FORKED, ClientClosed, IllegalProducerState, as_abortable, tell_of_forks
from .loop_thread import BlockingClient, waiting
from .produce.delivery import UNSEEN_MAX, Delivery, RecordMetadata
from .producer import Producer
from .transactions.prepared import PreparedTransaction
from .transactions.producer_state import ProducerState
from .transactions.scope import TransactionScope
from .view_source import Source

HANDED_MAX = 20_000
RECORD_BYTES = 100  # the memory of a waiting record beside key and value
TAKEN: tuple[Any, ...] = ()
NOT_SENT = "the producer was closed before the record went"
TURN = 500  # records between two turns of the network
INVALID = (KafkaError, TypeError, ValueError)  # raised by `send` itself
P = ParamSpec("P")
T = TypeVar("T")


def _or_forbid_commit(
    method: Callable[Concatenate[Producer, P], Awaitable[T]],
) -> Callable[Concatenate["BlockingProducer", P], T]:
    """Return the synchronous form of a method, which forbids the commit if it is interrupted.

    A part of its records or offsets may then be missing in the open transaction, or all of them.
    """

    @wraps(method)
    def call(blocking: "BlockingProducer", /, *arguments: P.args, **keywords: P.kwargs) -> T:
        own: list[BaseException] = []  # raised by the method

        async def called(producer: Producer) -> T:
            try:
                return await method(producer, *arguments, **keywords)
            except Exception as problem:
                own.append(problem)
                raise

        try:
            return blocking.run(called)
        except BaseException as raised:
            if raised not in own:  # of a signal handler
                blocking._forbid_commit(method.__name__, raised)  # pyright: ignore[reportPrivateUsage]
            raise

    return call


class HandedDelivery:
    """The delivery of a record that `BlockingProducer.send` accepted. Any thread may use it."""

    __slots__ = ("_blocking", "_delivery", "_problem", "is_seen", "record", "size_bytes", "within")

    def __init__(
        self, producer: "BlockingProducer", record: tuple[Any, ...], size_bytes: int, within: object
    ) -> None:
        self._blocking, self.record, self.size_bytes = producer, record, size_bytes
        self.within = within  # the transaction
        self._delivery: Delivery | None = None
        self._problem: Exception | None = None  # why it was refused
        self.is_seen = False  # the application has read why it was refused

    def done(self) -> bool:
        """Return whether the record was written or has failed."""
        if self._delivery is None:
            return self._problem is not None
        return self._delivery.done()

    def exception(self) -> Exception | None:
        """Return why the record was not written.

        Return None if the record was written or its outcome is still unknown.
        """
        if self._delivery is None or not self._delivery.done():
            self.is_seen = self._problem is not None
            return self._problem
        return self._delivery.exception()

    def result(self, timeout_s: float | None = None) -> RecordMetadata:
        """Wait until the record is written, and return its partition and offset.

        Raises the record's error, or TimeoutError after `timeout_s`.
        """
        if not self.done():
            try:
                self._blocking.wait_for(self, timeout_s)
            except ClientClosed:
                if not self.done():
                    raise
        if self._delivery is None:
            self.is_seen = True  # signals are handled at calls, and none follows
            raise self._problem or ClientClosed(NOT_SENT)
        return self._delivery.result()

    def taken(self, delivery: Delivery) -> None:
        """Keep the asynchronous producer's delivery, after that producer has put the record into a
        batch.
        """
        self._delivery, self.record = delivery, TAKEN

    def refused(self, problem: Exception) -> None:
        """Mark the record as failed, because the event loop refused it."""
        self._problem, self.record = problem, TAKEN

    async def until_decided(self) -> None:
        """Wait on the event loop until the record was written or has failed.

        `taken` or `refused` must have been called before.
        """
        if self._delivery is not None and not self._delivery.done():
            await self._delivery.settled()


class BlockingProducer(BlockingClient[Producer]):
    """A producer for any number of threads. The arguments are the same as for `Producer`."""

    def __init__(self, source: Source | None = None, /, **keywords: Any) -> None:
        client = Producer(source, **keywords)
        self._bytes_max: int = client.settings.buffer_memory
        self._is_transactional = client.settings.transactional_id is not None
        self._handed: deque[HandedDelivery | Callable[[], object]] = deque()
        # the first counts records given by senders, the second those taken by the loop
        self._given_bytes = self._taken_bytes = 0
        self._lock = threading.Lock()
        self._is_awake = self._is_closed = False
        self._work = asyncio.Event()
        self._problem: KafkaError | None = None  # the error of a record that its transaction lacks
        self._refused: deque[HandedDelivery] = deque(maxlen=UNSEEN_MAX)
        super().__init__(client, "oncelog-producer")

    def _started(self) -> None:
        self._taking = asyncio.run_coroutine_threadsafe(self._take(), self._thread.loop)
        tell_of_forks(self)

    def forked(self) -> None:
        """Accept no more records in a forked child.

        The event loop belongs to the parent process.
        """
        self._is_closed = True

    @property
    def state(self) -> ProducerState:
        """The state of the producer, as in `Producer.state`."""
        return self._client.state

    @property
    def transaction(self) -> object:
        """The token of the open transaction, as in `Producer.transaction`."""
        return self._client.transaction

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        within: object = None,
    ) -> HandedDelivery:
        """Hand a record over to the event loop, and return its delivery.

        within: the `transaction` of the record, by default the open one. If another thread ends
        that transaction before the event loop takes the record, the record is refused, and the next
        transaction is not affected. If the call is interrupted, the commit raises
        TransactionAbortable. With a transactional id and without a transaction the call raises
        IllegalProducerState.
        """
        try:
            if within is None:
                within = self._client.transaction
            # copies of objects that the caller may change before the loop takes the record
            if value is not None and type(value) is not bytes:
                value = as_bytes(value)
            if key is not None and type(key) is not bytes:
                key = as_bytes(key)
            if headers:
                headers = [
                    (name, each if each is None or type(each) is bytes else as_bytes(each))
                    for name, each in headers
                ]
            size = RECORD_BYTES + (len(value) if value else 0) + (len(key) if key else 0)
            handed = self._handed
            if len(handed) >= HANDED_MAX or self._given_bytes - self._taken_bytes > self._bytes_max:
                self._wait_for_room()
            if self._is_closed:
                raise self._why_closed()
            if within is None and self._is_transactional:
                self._client.require_transaction()
                raise IllegalProducerState("the transaction began during this send")
            record = (topic, value, key, partition, timestamp_ms, headers)
            delivery = HandedDelivery(self, record, size, within)
            handed.append(delivery)
            with self._lock:  # after it is handed over, since a signal handler may raise between
                self._given_bytes += size
            if not self._is_awake:
                self._is_awake = True
                self._wake()
            if self._thread.loop.is_closed():  # by another thread, meanwhile
                self._refuse_rest()
            return delivery
        except INVALID:
            raise
        except BaseException as interrupted:  # of a signal handler
            self._is_awake = False  # the next send wakes the loop
            self._forbid_commit("send", interrupted)
            raise

    send_many = _or_forbid_commit(Producer.send_many)

    def _forbid_commit(self, call: str, interrupted: BaseException) -> None:
        """Forbid the commit of the open transaction after an interrupted call."""
        words = f"{call} was interrupted ({interrupted!r})"
        self._problem = self._problem or TransactionAbortable(f"{words}: abort, then try again")

    def _why_closed(self) -> ClientClosed:
        return ClientClosed(FORKED if self._thread.is_forked else "the producer is closed")

    def _wait_for_room(self) -> None:
        """Wait until the loop has taken records, without an Event.

        A signal handler that raises in an Event can leave its lock held, and the loop would wait
        for that lock for ever.
        """
        pause_s = 0.001
        while not self._is_closed and (
            len(self._handed) >= HANDED_MAX
            or self._given_bytes - self._taken_bytes > self._bytes_max
        ):
            self._wake()
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.05)

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._thread.loop.call_soon_threadsafe(self._work.set)

    def _refuse_rest(self) -> None:
        """Fail the records that still wait for the event loop after the end of the loop.

        They stay in the queue, so that a repeated close fails them if this is interrupted.
        """
        for item in list(self._handed):
            if isinstance(item, HandedDelivery) and not item.done():
                item.refused(ClientClosed(NOT_SENT))

    # --- on the loop

    async def _take(self) -> None:
        """Pass records of other threads to the producer, in order, until the task is cancelled."""
        handed, work, client = self._handed, self._work, self._client
        while True:
            await work.wait()
            work.clear()
            self._is_awake = False  # a `send` after this wakes the task again
            while handed:
                for _ in range(min(len(handed), TURN)):
                    item = handed.popleft()
                    if not isinstance(item, HandedDelivery):
                        item()
                        continue
                    try:
                        client.require_same(item.within)
                        while (taken := client.try_send(*item.record)) is None:
                            await client.until_sendable(item.record[0])
                        item.taken(taken)
                    except Exception as problem:  # also a value that is not bytes
                        self._refuse(item, problem)
                    except asyncio.CancelledError:
                        item.refused(ClientClosed(NOT_SENT))
                        raise
                    self._taken_bytes += item.size_bytes
                await asyncio.sleep(0)

    def _refuse(self, delivery: HandedDelivery, problem: Exception) -> None:
        delivery.refused(problem)
        self._refused.append(delivery)
        if delivery.within is not self._client.transaction:
            return
        known = problem if isinstance(problem, KafkaError) else KafkaError(repr(problem))
        self._problem = self._problem or known

    async def _all_taken(self) -> None:
        reached = asyncio.Event()
        self._handed.append(reached.set)
        self._work.set()
        await reached.wait()

    # --- calls that wait

    def wait_for(self, delivery: HandedDelivery, timeout_s: float | None) -> None:
        """Wait until this delivery's record was written or has failed, or raise TimeoutError."""

        async def decided() -> None:
            await self._all_taken()
            await delivery.until_decided()

        self._thread.run(decided(), timeout_s)

    def run(self, work: Callable[[Producer], Awaitable[T]]) -> T:
        """Run `work(producer)`, and return its result.

        All records that were sent before the call are first put into batches.
        """
        if self._is_closed:
            raise self._why_closed()

        async def in_order(producer: Producer) -> T:
            await self._all_taken()
            return await work(producer)

        return super().run(in_order)

    def _raise_refused(self) -> None:
        """Raise the first unread error of a record, and mark all of them as read.

        If this is interrupted, the next call raises the error.
        """
        unread = [each for each in list(self._refused) if not each.is_seen]
        for each in unread[1:]:
            each.is_seen = True
        if unread:
            unread[0].result()

    def flush(self) -> None:
        """Flush as `Producer.flush` does, and raise the unread error of a refused record."""
        failed, is_left = HandedDelivery(self, TAKEN, 0, None), False

        async def flushed(producer: Producer) -> None:
            try:
                await producer.flush()
            except Exception as problem:
                failed.refused(problem)
                if is_left:
                    self._refused.appendleft(failed)

        try:
            self.run(flushed)
            if failed.done():
                failed.result()
        except BaseException:
            is_left = True  # perhaps interrupted: then the next flush raises the error
            if not failed.is_seen and failed.done():
                self._refused.appendleft(failed)
            raise
        self._raise_refused()

    def close(self) -> None:
        """Close as `Producer.close` does.

        Without a transactional id, raise the unread error of a refused record.
        """
        try:
            super().close()
        finally:
            if self._thread.loop.is_closed():
                self._refuse_rest()

    def _close(self) -> None:
        try:
            if not self._is_closed:  # by a close that was interrupted
                self.run(Producer.close)
        finally:
            self._is_closed = True
            self._thread.close()
        if not self._is_transactional:
            self._raise_refused()

    init_transactions = waiting(Producer.init_transactions)
    complete = waiting(Producer.complete)

    def begin_transaction(self) -> None:
        """Begin a transaction as `Producer.begin_transaction` does."""

        async def begin(producer: Producer) -> None:
            await producer.begin_transaction()
            self._problem = None  # on the loop, before it takes a record of the transaction
            self._refused.clear()

        self.run(begin)

    send_offsets_to_transaction = _or_forbid_commit(Producer.send_offsets_to_transaction)

    def commit_transaction(self) -> None:
        """Commit as `Producer.commit_transaction` does, or raise the error of a failed record."""
        self.run(lambda _: self._whole().commit_transaction())

    def abort_transaction(self) -> None:
        """Abort as `Producer.abort_transaction` does."""

        async def abort(producer: Producer) -> None:
            await producer.abort_transaction()
            self._problem = None

        self.run(abort)

    def prepare(self, *, may_time_out: bool = False) -> PreparedTransaction:
        """Prepare as `Producer.prepare` does, or raise the error of a failed record.

        If the call is interrupted, a close aborts the transaction.
        """
        scope = self._client.transaction
        was_prepared = not isinstance(scope, TransactionScope) or scope.prepared
        try:
            return self.run(lambda _: self._whole().prepare(may_time_out=may_time_out))
        except BaseException:
            if not was_prepared:
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._thread.loop.call_soon_threadsafe(setattr, scope, "prepared", False)
            raise

    def _whole(self) -> Producer:
        """Return the producer, or raise the error that forbids a commit.

        A commit is forbidden after the event loop has refused a record of the transaction, and
        after the sending of records or offsets was interrupted.
        """
        if self._problem is not None:
            raise as_abortable(self._problem)
        return self._client
