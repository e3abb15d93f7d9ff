"""An idempotent producer, asyncio first.

    async with Producer(view) as producer:
        metadata = await producer.send("orders", b"value", key=b"key")

`send` waits until the record is in a batch (and for room, when the buffer is full) and returns what
becomes true when the broker has acknowledged: await it, or let `flush` wait for all. Errors are
classes of `wire.errors`. `acks` is "all" with idempotence; 0 and 1 are for those who want to see
what they lose.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..wire.errors import (
    ErrorCode,
    KafkaError,
    OutOfOrderSequenceNumber,
    RequestTimedOut,
    error_for,
)
from ..wire.messages import produce
from ..wire.records import Record, encode_batch
from .accumulator import Accumulator, Batch
from .cluster_view import ClusterView, topic_error
from .partitioner import StickyPartitioner
from .producer_state import Fate, ProducerIdentity, ProducerState, fate_after

PRODUCE, INIT_PRODUCER_ID = 0, 22
PRODUCE_BY_NAME_NEWEST = 12
COMPRESSION = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
RETRY_BACKOFF_MS, NO_OFFSET = 20, -1


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record was written; offset NO_OFFSET when the broker does not say (acks=0)."""

    topic: str
    partition: int
    offset: int


class Producer:
    """See the top of the file. The view is the caller's to close."""

    def __init__(
        self,
        view: ClusterView,
        *,
        acks: str = "all",
        enable_idempotence: bool | None = None,
        linger_ms: int = 5,
        batch_bytes: int = 256 * 1024,
        buffer_bytes: int = 32 * 1024 * 1024,
        compression: str = "none",
        request_timeout_ms: int = 10_000,
        delivery_timeout_ms: int = 60_000,
    ) -> None:
        self._view, self._compression = view, COMPRESSION[compression]
        self._acks = {"all": -1, "-1": -1, "1": 1, "0": 0}[acks]
        is_all = self._acks == -1
        self._is_idempotent = is_all if enable_idempotence is None else enable_idempotence
        if self._is_idempotent and not is_all:
            raise ValueError("idempotence needs acks=all")
        self._request_timeout_ms = request_timeout_ms
        self._buffer_bytes = buffer_bytes
        self.identity = ProducerIdentity()
        self._batches = Accumulator(
            batch_bytes=batch_bytes, linger_ms=linger_ms, delivery_timeout_ms=delivery_timeout_ms
        )
        self._partitioners: dict[str, StickyPartitioner] = {}
        self._wake, self._room = asyncio.Event(), asyncio.Event()
        self._is_flushing = self._is_closing = self._needs_new_id = False
        self._sender: asyncio.Task[None] | None = None
        self._requests: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Producer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> "asyncio.Future[RecordMetadata]":
        """Put a record into a batch; the future is done when it is acknowledged."""
        if self._is_closing:
            raise RuntimeError("the producer is closed")
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_batches())
        if self._sender.done():
            self._sender.result()
        size = len(key or b"") + len(value or b"")
        chosen = partition if partition is not None else await self._choose(topic, key, size)
        while self._batches.unfinished_bytes + size > self._buffer_bytes and self._batches:
            self._room.clear()
            self._wake.set()
            await self._room.wait()
        when = timestamp_ms if timestamp_ms is not None else time.time_ns() // 1_000_000
        future = asyncio.get_running_loop().create_future()
        record = Record(0, when, key, value, tuple(headers))
        self._batches.append(topic, chosen, record, future, _now_ms())
        self._wake.set()
        return future

    async def flush(self) -> None:
        """Return when every record handed over is decided; its errors are in the futures."""
        self._is_flushing = True
        try:
            while self._batches and self._sender is not None and not self._sender.done():
                self._room.clear()
                self._wake.set()
                await asyncio.wait(
                    [asyncio.ensure_future(self._room.wait()), self._sender],
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            self._is_flushing = False

    async def close(self) -> None:
        """Flush and end."""
        await self.flush()
        self._is_closing = True
        self._wake.set()
        if self._sender is not None:
            await self._sender

    # --- the sender

    async def _send_batches(self) -> None:
        try:
            while not self._is_closing or self._batches:
                now_ms = _now_ms()
                self._fail(self._batches.expire(now_ms), RequestTimedOut("the time was over"))
                if not await self._has_identity():
                    continue
                wait_ms = self._batches.next_ready_ms(now_ms)
                is_ready = wait_ms == 0 or (wait_ms is not None and self._is_flushing)
                batches = self._batches.take(now_ms, is_flushing=self._is_flushing)
                if batches:
                    self._dispatch(batches)
                    await asyncio.sleep(0)
                    continue
                self._wake.clear()
                pause_ms = 2 if is_ready else min(wait_ms if wait_ms is not None else 500, 500)
                try:
                    async with asyncio.timeout(pause_ms / 1000):
                        await self._wake.wait()
                except TimeoutError:
                    pass
        except BaseException as problem:
            failure = problem if isinstance(problem, KafkaError) else RuntimeError(str(problem))
            self._batches_all_failed(failure)
            raise

    async def _has_identity(self) -> bool:
        """Whether batches may leave: a producer id is there, or not needed."""
        if not self._is_idempotent:
            return True
        if self._needs_new_id:
            if self._batches.has_in_flight:
                self._wake.clear()
                await self._wake.wait()
                return False
            self._fail(self._batches.give_up_sent(), OutOfOrderSequenceNumber())
            self._needs_new_id = False
            self.identity.move_to(ProducerState.UNINITIALIZED)
        if self.identity.state is ProducerState.READY:
            return True
        if self.identity.state is ProducerState.FATAL_ERROR:
            raise error_for(ErrorCode.PRODUCER_FENCED)
        if not self._batches:
            return True
        self.identity.move_to(ProducerState.INITIALIZING)
        request = {"transactional_id": None, "transaction_timeout": 60_000}
        request |= {"producer_id": -1, "producer_epoch": -1}

        async def attempt() -> Any:
            answer = await (await self._view.any_broker()).call(INIT_PRODUCER_ID, request)
            if answer.error_code:
                raise error_for(int(answer.error_code))
            return answer

        answer = await self._view.retrying(attempt, timeout_ms=60_000)
        self.identity.initialized(int(answer.producer_id), int(answer.producer_epoch))
        return True

    def _dispatch(self, batches: list[Batch]) -> None:
        for batch in batches:
            if self._is_idempotent and batch.base_sequence < 0:
                batch.base_sequence = self.identity.take_sequences(
                    batch.topic, batch.partition, len(batch.records)
                )
            if batch.encoded is None:
                batch.encoded = encode_batch(
                    batch.records,
                    base_offset=0,
                    compression=self._compression,
                    producer_id=self.identity.producer_id if self._is_idempotent else -1,
                    producer_epoch=self.identity.producer_epoch if self._is_idempotent else -1,
                    base_sequence=batch.base_sequence,
                )
        by_leader: dict[int, list[Batch]] = {}
        for batch in batches:
            known = self._view.snapshot.partitions.get((batch.topic, batch.partition))
            by_leader.setdefault(known.leader if known else -1, []).append(batch)
        for leader, group in by_leader.items():
            task = asyncio.create_task(self._request(leader, group))
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)

    async def _request(self, leader: int, batches: list[Batch]) -> None:
        """Send one request and decide about its batches."""
        try:
            if leader < 0:
                await self._view.refresh({b.topic for b in batches})
                raise error_for(ErrorCode.LEADER_NOT_AVAILABLE)
            connection = await self._view.broker(leader)
            version = min(connection.version_for(PRODUCE), PRODUCE_BY_NAME_NEWEST)
            topics: dict[str, produce.ProduceTopic] = {}
            for b in batches:
                topic = topics.setdefault(b.topic, produce.ProduceTopic(b.topic, None, []))
                topic.partitions.append(produce.ProducePartition(b.partition, b.encoded))
            request = produce.ProduceRequest(
                None, self._acks, self._request_timeout_ms, list(topics.values())
            )
            body = produce.encode_request(request, version)
            if self._acks == 0:
                await connection.post(PRODUCE, version, body)
                codes = {(b.topic, b.partition): (0, NO_OFFSET, None) for b in batches}
            else:
                limit_ms = self._request_timeout_ms + 5_000
                answer = await connection.send(PRODUCE, version, body, timeout_ms=limit_ms)
                codes = {
                    (topic.name, p.index): (p.error_code, p.base_offset, p.error_message)
                    for topic in produce.decode_response(answer, version).topics
                    for p in topic.partitions
                }
        except KafkaError as problem:
            for batch in batches:
                self._decide(batch, int(problem.code), NO_OFFSET, str(problem))
        else:
            for b in batches:
                unknown = (int(ErrorCode.UNKNOWN_SERVER_ERROR), NO_OFFSET, "not in the answer")
                code, base_offset, message = codes.get((b.topic, b.partition), unknown)
                self._decide(b, code, base_offset, message)
        retried = {b.topic for b in batches if b.not_before_ms}
        if retried:
            with contextlib.suppress(KafkaError):  # the next try asks again
                await self._view.refresh(retried)
        self._wake.set()

    def _decide(self, batch: Batch, code: int, base_offset: int, message: str | None) -> None:
        problem = error_for(code, message) if code else None
        fate = fate_after(
            code,
            is_retriable=problem is not None and problem.retriable,
            is_oldest_in_flight=self._batches.is_oldest_in_flight(batch),
        )
        if fate is Fate.DONE:
            self._batches.finish(batch)
            for i, waiter in enumerate(batch.waiters):
                offset = base_offset + i if base_offset >= 0 else NO_OFFSET
                if not waiter.done():
                    waiter.set_result(RecordMetadata(batch.topic, batch.partition, offset))
            self._room.set()
            return
        if fate is Fate.RETRY:
            backoff_ms = min(RETRY_BACKOFF_MS << min(batch.attempts, 5), 500)
            scattered = int(backoff_ms * random.uniform(0.8, 1.2))
            self._batches.retry(batch, _now_ms(), scattered)
            return
        assert problem is not None
        self._batches.finish(batch)
        self._fail([batch], problem)
        if fate is Fate.FATAL:
            self.identity.move_to(ProducerState.FATAL_ERROR)
        elif self._is_idempotent:
            self._needs_new_id = True  # its sequence numbers are spent

    def _fail(self, batches: list[Batch], problem: Exception) -> None:
        for batch in batches:
            for waiter in batch.waiters:
                if not waiter.done():
                    waiter.set_exception(problem)
                    waiter.exception()  # who does not await it is told by flush's caller anyway
            if batch.attempts and self._is_idempotent:
                self._needs_new_id = True
        if batches:
            self._room.set()

    def _batches_all_failed(self, problem: Exception) -> None:
        for batch in self._batches.take_all():
            for waiter in batch.waiters:
                if not waiter.done():
                    waiter.set_exception(problem)
                    waiter.exception()
        self._room.set()

    async def _choose(self, topic: str, key: bytes | None, size_bytes: int) -> int:
        count = len(self._view.snapshot.partitions_of(topic))
        if not count:

            async def attempt() -> int:
                snapshot = await self._view.refresh([topic])
                if topic in snapshot.topic_errors:
                    raise topic_error(topic, snapshot.topic_errors[topic])
                return len(snapshot.partitions_of(topic))

            count = await self._view.retrying(attempt, timeout_ms=10_000, topics=[topic])
        sticky = self._partitioners.get(topic)
        if sticky is None:
            sticky = self._partitioners[topic] = StickyPartitioner(random.randrange(1 << 16))
        return sticky.choose(key, size_bytes, count)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
