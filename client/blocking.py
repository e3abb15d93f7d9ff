"""Consumer and administration for programs without an event loop: the same, without `await`.

    with BlockingConsumer("127.0.0.1:9092", group_id="billing") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer.poll(timeout_ms=500):
            ...

Callbacks of `subscribe` run in a thread of their own while the call that led to them waits, so they
may use the consumer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Self, TypeVar

from ..wire.identifiers import TopicPartition
from .admin import Admin
from .blocking_producer import BlockingProducer
from .consumer import Consumer
from .fetch.record_columns import RecordColumns
from .fetch.record_reader import ConsumerRecord
from .fetch.state import RawBatch
from .group_metadata import GroupMetadata, OffsetAndMetadata
from .loop_thread import LoopThread
from .view_source import Source

__all__ = ["BlockingAdmin", "BlockingConsumer", "BlockingProducer"]
T = TypeVar("T")
Callback = Callable[[list[TopicPartition]], object]


class BlockingConsumer:
    """See the top of the file; arguments as for `Consumer`. For one thread at a time."""

    def __init__(self, source: Source | None = None, /, **keywords: Any) -> None:
        self._consumer = Consumer(source, **keywords)
        self._thread = LoopThread("oncelog-consumer")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, call: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        async def on_loop() -> T:
            return call(*arguments, **keywords)

        return self._thread.run(on_loop())

    def close(self) -> None:
        """As `Consumer.close`."""
        if not self._thread.loop.is_closed():
            try:
                self._thread.run(self._consumer.close())
            finally:
                self._thread.close()

    def subscribe(
        self,
        topics: Iterable[str],
        *,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """As `Consumer.subscribe`."""
        self._call(
            self._consumer.subscribe,
            topics,
            on_assigned=_in_a_thread(on_assigned),
            on_revoked=_in_a_thread(on_revoked),
            on_lost=_in_a_thread(on_lost),
        )

    def assign(self, partitions: Mapping[TopicPartition, int] | Iterable[TopicPartition]) -> None:
        """As `Consumer.assign`."""
        self._call(self._consumer.assign, partitions)

    def unassign(self, topic: str, partition: int) -> None:
        """As `Consumer.unassign`."""
        self._call(self._consumer.unassign, topic, partition)

    @property
    def assignment(self) -> list[TopicPartition]:
        """What is read now."""
        return self._consumer.assignment

    def position(self, topic: str, partition: int) -> int:
        """As `Consumer.position`."""
        return self._consumer.position(topic, partition)

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """As `Consumer.seek`."""
        self._call(self._consumer.seek, topic, partition, offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """As `Consumer.seek_to_beginning`."""
        self._thread.run(self._consumer.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """As `Consumer.seek_to_end`."""
        self._thread.run(self._consumer.seek_to_end(partitions))

    def pause(self, *partitions: TopicPartition) -> None:
        """As `Consumer.pause`."""
        self._call(self._consumer.pause, *partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """As `Consumer.resume`."""
        self._call(self._consumer.resume, *partitions)

    def poll(self, timeout_ms: int = 500, max_records: int | None = None) -> list[ConsumerRecord]:
        """As `Consumer.poll`."""
        return self._thread.run(self._consumer.poll(timeout_ms, max_records))

    def poll_columns(
        self, timeout_ms: int = 500, max_records: int | None = None
    ) -> list[RecordColumns]:
        """As `Consumer.poll_columns`."""
        return self._thread.run(self._consumer.poll_columns(timeout_ms, max_records))

    def poll_batches(self, timeout_ms: int = 500, max_records: int | None = None) -> list[RawBatch]:
        """As `Consumer.poll_batches`."""
        return self._thread.run(self._consumer.poll_batches(timeout_ms, max_records))

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None
    ) -> None:
        """As `Consumer.commit`."""
        self._thread.run(self._consumer.commit(offsets))

    def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """As `Consumer.committed`."""
        return self._thread.run(self._consumer.committed(partitions))

    def group_metadata(self) -> GroupMetadata:
        """As `Consumer.group_metadata`."""
        return self._consumer.group_metadata()

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Consumer.beginning_offsets`."""
        return self._thread.run(self._consumer.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """As `Consumer.end_offsets`."""
        return self._thread.run(self._consumer.end_offsets(partitions))

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """As `Consumer.offsets_for_times`."""
        return self._thread.run(self._consumer.offsets_for_times(times_ms))


def _in_a_thread(callback: Callback | None) -> Callable[[list[TopicPartition]], Any] | None:
    if callback is None:
        return None

    def in_executor(partitions: list[TopicPartition]) -> Awaitable[object]:
        return asyncio.get_running_loop().run_in_executor(None, callback, partitions)

    return in_executor


class BlockingAdmin:
    """Every coroutine method of `Admin`, `Admin.groups` and `Admin.transactions`, without `await`.

    with BlockingAdmin("127.0.0.1:9092") as admin:
        admin.create_topic("orders", partitions=3)
        admin.groups.describe("billing")
    """

    def __init__(self, source: Source, /, *, timeout_ms: int = 15_000) -> None:
        self._admin = Admin(source, timeout_ms=timeout_ms)
        self._thread = LoopThread("oncelog-admin")
        self.groups = _BlockingCalls(self._admin.groups, self._thread)
        self.transactions = _BlockingCalls(self._admin.transactions, self._thread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return getattr(_BlockingCalls(self._admin, self._thread), name)

    def run(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Run `work(admin)` to its end."""

        async def call() -> T:
            return await work(self._admin)

        return self._thread.run(call())

    def close(self) -> None:
        """Close connections and the loop."""
        if not self._thread.loop.is_closed():
            try:
                self._thread.run(self._admin.close())
            finally:
                self._thread.close()


class _BlockingCalls:
    """Methods of a thing whose coroutines are waited for."""

    def __init__(self, thing: Any, thread: LoopThread) -> None:
        self._thing, self._thread = thing, thread

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._thing, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            return self._thread.run(method(*arguments, **keywords))

        call.__doc__ = method.__doc__
        return call
