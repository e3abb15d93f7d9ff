"""Consumer and administration for programs without an event loop, called without `await`.

    with BlockingConsumer("127.0.0.1:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer.poll(timeout_ms=500):
            ...

Callbacks of `subscribe` run in a thread of their own while the call that triggered them waits, so
they may use the consumer. That call raises their exceptions, also SystemExit.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

from ..wire.identifiers import TopicPartition
from .admin import Admin
from .blocking_producer import BlockingProducer
from .consumer import Consumer, ConsumerRecord
from .fetch.record_columns import RecordColumns
from .fetch.state import RawBatch
from .group_metadata import GroupMetadata
from .loop_thread import BlockingClient, LoopThread, on_loop, waiting
from .view_source import Source

__all__ = ["BlockingAdmin", "BlockingConsumer", "BlockingProducer"]
Callback = Callable[[list[TopicPartition]], object]
T = TypeVar("T")


class BlockingConsumer(BlockingClient[Consumer]):
    """A consumer for one thread at a time. The arguments are the same as for `Consumer`."""

    def __init__(self, source: Source | None = None, /, **keywords: Any) -> None:
        self._calls: dict[asyncio.Task[Any], int] = {}  # with their threads; on the loop
        self._asked = self._gave = self._got = 0  # polls: called, ended on the loop, returned
        # polls: the last interrupted one, and the last one taken back
        self._left = self._settled = 0
        self._left_by = 0  # the thread of the last interrupted poll
        super().__init__(Consumer(source, **keywords), "oncelog-consumer")

    def run(self, work: Callable[[Consumer], Awaitable[T]]) -> T:
        """Run `work(consumer)` and return its result.

        If the last poll was interrupted before it returned its records, the next poll returns them.
        """
        # this call may be interrupted, too, before the loop begins it
        left, left_by, thread = self._left, self._left_by, threading.get_ident()

        async def in_turn(consumer: Consumer) -> T:
            # a callback of the interrupted poll still runs in another thread
            others = [each for each, caller in self._calls.items() if caller == left_by]
            task = asyncio.current_task()
            assert task is not None
            self._calls[task] = thread
            task.add_done_callback(self._calls.pop)
            if left > self._settled:
                for each in others:
                    each.cancel()
                if others:
                    await asyncio.wait(others)
                if self._gave > self._got:
                    consumer.take_back()
                self._got, self._settled = self._gave, left
            return await work(consumer)

        return super().run(in_turn)

    def _poll(self, method: Callable[..., Awaitable[T]], *limits: int | None) -> T:
        self._asked += 1
        number, thread = self._asked, threading.get_ident()

        async def polled(consumer: Consumer) -> T:
            found = await method(consumer, *limits)
            self._gave = number
            return found

        try:
            found = self.run(polled)
            self._got = number  # signals are handled at calls, and none follows
            return found
        except BaseException:
            self._left_by, self._left = thread, number
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._client.is_interrupted = kind is not None
        super().__exit__(kind, *_)

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Subscribe as `Consumer.subscribe` does, with callbacks that are plain functions."""
        subscribe = on_loop(Consumer.subscribe)
        callbacks = {"on_assigned": on_assigned, "on_revoked": on_revoked, "on_lost": on_lost}
        in_threads = {name: _in_a_thread(each) for name, each in callbacks.items()}
        subscribe(self, topics, pattern=pattern, **in_threads)

    assign, unassign = on_loop(Consumer.assign), on_loop(Consumer.unassign)
    seek, pause, resume = on_loop(Consumer.seek), on_loop(Consumer.pause), on_loop(Consumer.resume)
    seek_to_beginning = waiting(Consumer.seek_to_beginning)
    seek_to_end = waiting(Consumer.seek_to_end)
    commit = waiting(Consumer.commit)
    committed = waiting(Consumer.committed)
    beginning_offsets = waiting(Consumer.beginning_offsets)
    end_offsets = waiting(Consumer.end_offsets)
    offsets_for_times = waiting(Consumer.offsets_for_times)

    def poll(self, timeout_ms: int = 500, max_records: int | None = None) -> list[ConsumerRecord]:
        """Poll as `Consumer.poll` does.

        If a poll is interrupted, the next poll returns its records.
        """
        return self._poll(Consumer.poll, timeout_ms, max_records)

    def poll_columns(
        self, timeout_ms: int = 500, max_records: int | None = None
    ) -> list[RecordColumns]:
        """Poll as `Consumer.poll_columns` does. An interrupted call loses no records."""
        return self._poll(Consumer.poll_columns, timeout_ms, max_records)

    def poll_batches(self, timeout_ms: int = 500, max_records: int | None = None) -> list[RawBatch]:
        """Poll as `Consumer.poll_batches` does. An interrupted call loses no records."""
        return self._poll(Consumer.poll_batches, timeout_ms, max_records)

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are currently assigned."""
        return self._client.assignment

    def position(self, topic: str, partition: int) -> int:
        """Return the position as `Consumer.position` does."""
        if self._left > self._settled:
            self.run(lambda _: asyncio.sleep(0))
        return self._client.position(topic, partition)

    def group_metadata(self) -> GroupMetadata:
        """Return the group metadata as `Consumer.group_metadata` does."""
        return self._client.group_metadata()


def _in_a_thread(callback: Callback | None) -> Callable[[list[TopicPartition]], Any] | None:
    if callback is None:
        return None

    def in_executor(partitions: list[TopicPartition]) -> Awaitable[object]:
        return asyncio.get_running_loop().run_in_executor(None, callback, partitions)

    return in_executor


class _BlockingCalls:
    """A wrapper whose methods call an object's coroutine methods and wait for the results."""

    def __init__(self, thing: Any, thread: LoopThread) -> None:
        self._thing, self._thread = thing, thread

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._thing, name)

        @wraps(method)
        def call(*arguments: Any, **keywords: Any) -> Any:
            return self._thread.run(method(*arguments, **keywords))

        return call


class BlockingAdmin(BlockingClient[Admin], _BlockingCalls):
    """The methods of `Admin`, its `groups`, `transactions` and `acls`, without `await`.

    with BlockingAdmin("127.0.0.1:9092") as admin:
        admin.create_topic("orders", partitions=3)
        admin.groups.describe("billing")
    """

    def __init__(self, source: Source, /, *, timeout_ms: int = 15_000) -> None:
        self._thing = Admin(source, timeout_ms=timeout_ms)
        super().__init__(self._thing, "oncelog-admin")

    def _started(self) -> None:
        self.groups = _BlockingCalls(self._thing.groups, self._thread)
        self.transactions = _BlockingCalls(self._thing.transactions, self._thread)
        self.acls = _BlockingCalls(self._thing.acls, self._thread)
