"""Test failures of deliveries that the application never reads, and max.block.ms."""

import asyncio
import threading
import time
from array import array
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from oncelog.client import BlockingProducer, Producer
from oncelog.client.blocking_producer import HandedDelivery
from oncelog.client.cluster_view import ClusterView, PartitionInfo
from oncelog.client.failures import ClientClosed
from oncelog.client.produce import sender as sender_module
from oncelog.client.produce import topic_lookup
from oncelog.client.produce.accumulator import ProducerBatch
from oncelog.wire.batch_builder import BatchBuilder
from oncelog.wire.errors import (
    ErrorCode,
    InvalidTimestamp,
    KafkaError,
    NetworkException,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
)
from oncelog.wire.messages.produce import ProducedPartition

from ...awaiting import until

NOWHERE = "127.0.0.1:1"
REFUSED = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class Leader:
    """A leader that answers each batch with `code`, after `pause`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.code, self.refreshes = 0, 0
        self.pause: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0)
        self.view = ClusterView(NOWHERE)
        self.add("t")
        self.view.snapshot.topic_errors["typo"] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        monkeypatch.setattr(sender_module, "produce_batches", self.produce)
        monkeypatch.setattr(sender_module, "fresh_producer_id", self.fresh_id)
        monkeypatch.setattr(self.view, "refresh", self.refresh)

    def add(self, topic: str, partition: int = 0) -> None:
        self.view.snapshot.topic_errors.pop(topic, None)
        self.view.snapshot.partitions[(topic, partition)] = PartitionInfo(
            topic=topic, partition=partition, leader=1, leader_epoch=0, replicas=(1,), isr=(1,)
        )

    async def refresh(self, topics: Any = None) -> Any:
        self.refreshes += 1
        await asyncio.sleep(0)
        return self.view.snapshot

    async def fresh_id(self, view: Any, *, timeout_ms: int) -> tuple[int, int]:
        return 1, 0

    async def produce(
        self,
        view: Any,
        leader: int,
        batches: Sequence[ProducerBatch],
        settings: Any,
        *,
        is_v2: bool,
    ) -> dict[tuple[str, int], ProducedPartition]:
        await self.pause()
        return {
            (b.topic, b.partition): ProducedPartition(
                b.partition, error_code=self.code, base_offset=0
            )
            for b in batches
        }


@pytest.fixture
def leader(monkeypatch: pytest.MonkeyPatch) -> Leader:
    return Leader(monkeypatch)


async def test_flush_after_an_unread_failure_raises_the_failure_once(leader: Leader) -> None:
    producer = Producer(leader.view, linger_ms=0)
    leader.code = REFUSED
    await producer.send("t", b"lost")
    with pytest.raises(TopicAuthorizationFailed):
        await producer.flush()
    leader.code = 0
    await producer.send("t", b"written")
    await producer.flush()
    await producer.close()


async def test_record_that_is_not_bytes_leaves_no_empty_batch(leader: Leader) -> None:
    async with Producer(leader.view) as producer:
        with pytest.raises(TypeError):
            await producer.send("t", "text")  # type: ignore[arg-type]
        assert not producer._batches
        assert (await (await producer.send("t", b"written"))).offset == 0


@pytest.mark.parametrize("timestamp", [2**63, -1, 1.5, "now"])
async def test_send_with_a_timestamp_that_is_no_time_in_64_bits_is_refused(
    leader: Leader, timestamp: Any
) -> None:
    async with Producer(leader.view, linger_ms=0) as producer:
        with pytest.raises((InvalidTimestamp, TypeError)):
            await producer.send("t", b"1", timestamp_ms=timestamp)
        with pytest.raises((InvalidTimestamp, TypeError)):
            await producer.send_many("t", [b"1", b"2"], timestamp_ms=[timestamp, timestamp])
        with pytest.raises((InvalidTimestamp, TypeError, ValueError)):
            await producer.send_many("t", [b"1", b"2"], timestamp_ms=timestamp)
        assert not producer._batches
        assert (await (await producer.send("t", b"written", timestamp_ms=2**63 - 1))).offset == 0


class Number:
    """A whole number that equals no int, as a tensor of one element."""

    def __index__(self) -> int:
        return 0


async def test_records_of_a_partition_that_is_no_int_but_a_number_share_its_batch(
    leader: Leader,
) -> None:
    async with Producer(leader.view, linger_ms=60_000) as producer:
        await producer.send("t", b"1", partition=Number())  # type: ignore[arg-type]
        await producer.send_many("t", [b"2"], partition=[Number()])  # type: ignore[list-item]
        await producer.send("t", b"3", partition=0)
        assert [batch.builder.count for batch in producer._batches.take_all()] == [3]


@pytest.mark.parametrize(
    "field", [memoryview(array("H", [1, 2])), memoryview(b"abcd")[::2], bytearray(b"ab")]
)
@pytest.mark.parametrize("is_many", [False, True])
async def test_record_of_bytes_like_objects_contains_their_bytes(
    leader: Leader, field: Any, *, is_many: bool
) -> None:
    """The length of a memoryview is perhaps not counted in bytes, or its bytes not adjacent."""
    header, expected = [("name", field)], BatchBuilder()
    expected.append(5, bytes(field), bytes(field), [("name", bytes(field))])
    async with Producer(leader.view, linger_ms=60_000) as producer:
        if is_many:
            await producer.send_many(
                "t", [field], keys=[field], headers=[header], timestamp_ms=5, partition=0
            )
        else:
            await producer.send("t", field, key=field, headers=header, timestamp_ms=5)
        (batch,) = producer._batches.take_all()
        assert batch.builder.build() == expected.build()


@pytest.mark.parametrize("field", [array("H", [1, 2]), "text", 5])
async def test_send_of_other_objects_than_bytes_is_refused(leader: Leader, field: Any) -> None:
    fields: dict[str, Any]
    async with Producer(leader.view) as producer:
        for fields in ({"value": field}, {"key": field}, {"headers": [("name", field)]}):
            with pytest.raises(TypeError):
                await producer.send("t", **fields)
        for fields in ({"values": [field]}, {"keys": [field]}, {"headers": [[("name", field)]]}):
            with pytest.raises(TypeError):
                await producer.send_many("t", **{"values": [b"1"], **fields})
        assert not producer._batches


def test_blocking_send_takes_the_bytes_that_the_caller_changes_afterwards(leader: Leader) -> None:
    """The event loop encodes the record later, in its own thread."""
    field: Any = bytearray(b"ab")
    headers: list[Any] = [("name", bytearray(b"ab"))]
    expected = "t", b"ab", b"ab", None, None, [("name", b"ab")]
    with BlockingProducer(leader.view) as producer:
        producer._is_awake = True  # the loop takes the record at the next call that waits
        delivery = producer.send("t", field, key=field, headers=headers)
        field[:], headers[0][1][:] = b"cd", b"cd"
        headers.append(("another", bytearray()))
        assert delivery.record == expected
        assert delivery.result(timeout_s=5).offset == 0


@pytest.mark.parametrize("topic", [b"t", 5, None, ("t",)])
async def test_send_to_a_topic_that_is_no_text_is_refused_without_a_request(
    leader: Leader, topic: Any
) -> None:
    async with asyncio.timeout(5), Producer(leader.view) as producer:
        with pytest.raises(TypeError, match="a topic is text"):
            await producer.send(topic, b"1")
        with pytest.raises(TypeError, match="a topic is text"):
            await producer.send_many(topic, [b"1"])
    assert not leader.refreshes


async def test_send_to_a_partition_that_is_no_int_is_refused(leader: Leader) -> None:
    async with Producer(leader.view, linger_ms=0) as producer:
        with pytest.raises(TypeError):
            await producer.send("t", b"1", partition=0.0)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await producer.send_many("t", [b"1"], partition=[0.0])  # type: ignore[list-item]
        assert not producer._batches


async def test_close_without_a_flush_raises_an_unread_failure(leader: Leader) -> None:
    producer = Producer(leader.view, linger_ms=0)
    leader.code = REFUSED
    await producer.send("t", b"lost")
    with pytest.raises(TopicAuthorizationFailed):
        await producer.close()
    await producer.close()


async def test_delivery_failure_read_by_the_application_is_not_raised_again(leader: Leader) -> None:
    leader.code = REFUSED
    async with Producer(leader.view, linger_ms=0) as producer:
        with pytest.raises(TopicAuthorizationFailed):
            await (await producer.send("t", b"awaited"))
        called: list[object] = []
        (await producer.send("t", b"called")).add_done_callback(called.append)
        await producer.flush()
        assert len(called) == 1
        many = await producer.send_many("t", [b"a", b"b"])
        with pytest.raises(TopicAuthorizationFailed):
            await many
        await producer.flush()


async def test_application_exception_is_not_replaced_by_an_unread_record_failure(
    leader: Leader,
) -> None:
    leader.code = REFUSED
    with pytest.raises(ZeroDivisionError):
        async with Producer(leader.view, linger_ms=0) as producer:
            await producer.send("t", b"lost")
            raise ZeroDivisionError


def test_blocking_producer_flush_and_close_raise_unread_failures() -> None:
    producer = BlockingProducer(NOWHERE, max_block_ms=100, request_timeout_ms=100)
    producer.send("t", b"lost")
    with pytest.raises(KafkaError):
        producer.flush()
    looked_at = producer.send("t", b"lost")
    with pytest.raises(KafkaError):
        looked_at.result()
    producer.flush()
    producer.send("t", b"lost")
    with pytest.raises(KafkaError):
        producer.close()


async def test_send_to_a_mistyped_topic_blocks_only_the_first_record(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Producer(leader.view, linger_ms=0, max_block_ms=300) as producer:
        begun = time.monotonic()
        with pytest.raises(UnknownTopicOrPartition):
            await producer.send("typo", b"")
        assert time.monotonic() - begun >= 0.29  # timers may be a little early
        looked = leader.refreshes
        for _ in range(100):
            with pytest.raises(UnknownTopicOrPartition, match="typo"):
                await producer.send("typo", b"")
        assert leader.refreshes - looked <= 2
        monkeypatch.setattr(topic_lookup, "LOOK_AGAIN_MS", 0)
        leader.add("typo")
        await (await producer.send("typo", b"made since"))


async def test_producer_names_the_obstacle_while_a_record_waits_for_its_topic(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Producer(leader.view, linger_ms=0) as producer:
        assert producer.obstacle is None
        sending = asyncio.create_task(producer.send("typo", b""))
        await until(lambda: isinstance(producer.obstacle, UnknownTopicOrPartition))
        refresh = leader.view.refresh

        async def silent(topics: Any = None) -> Any:
            raise NetworkException("no broker answers")

        monkeypatch.setattr(leader.view, "refresh", silent)
        await until(lambda: isinstance(producer.obstacle, NetworkException))
        monkeypatch.setattr(leader.view, "refresh", refresh)
        leader.add("typo")
        await (await sending)
        assert producer.obstacle is None


async def test_send_to_a_silent_cluster_waits_max_block_ms_for_a_topic_that_was_missing_at_first(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Producer(leader.view, linger_ms=0, max_block_ms=2_000) as producer:
        monkeypatch.setattr(producer.settings, "max_block_ms", 0)
        with pytest.raises(UnknownTopicOrPartition):
            await producer.send("typo", b"")
        monkeypatch.setattr(producer.settings, "max_block_ms", 5_000)
        monkeypatch.setattr(topic_lookup, "LOOK_AGAIN_MS", 0)
        refresh, silences = leader.view.refresh, 3

        async def silent(topics: Any = None) -> Any:
            nonlocal silences
            silences -= 1
            if silences >= 0:
                raise NetworkException("no broker answers")
            leader.add("typo")
            return await refresh(topics)

        monkeypatch.setattr(leader.view, "refresh", silent)
        await (await producer.send("typo", b"made since"))


async def test_max_block_ms_restarts_with_each_acknowledged_batch(
    leader: Leader,
) -> None:
    limits = {"buffer_memory": 20_000, "batch_size": 1_000, "max_block_ms": 400}
    async with Producer(leader.view, linger_ms=0, **limits) as producer:
        leader.pause = lambda: asyncio.sleep(0.1)
        begun = time.monotonic()
        for _ in range(60):
            await producer.send("t", bytes(900))
        assert time.monotonic() - begun > 0.4, "nothing was waited for"


async def test_producer_without_progress_fails_after_max_block_ms(leader: Leader) -> None:
    limits = {"buffer_memory": 2_000, "batch_size": 1_000, "max_block_ms": 300}
    producer = Producer(leader.view, linger_ms=0, **limits)
    ended = asyncio.Event()
    leader.pause = ended.wait
    with pytest.raises(RequestTimedOut, match=r"for 300 ms \(max.block.ms\)"):
        async with asyncio.timeout(10):
            for _ in range(10):
                await producer.send("t", bytes(900))
    ended.set()
    await producer.close()


async def test_record_larger_than_the_free_buffer_waits_without_blocking_the_event_loop(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Producer(leader.view, linger_ms=0, buffer_memory=1_000) as producer:
        waits, until_sendable = 0, producer.until_sendable

        async def counted(topic: str) -> None:
            nonlocal waits
            waits += 1
            assert waits < 100, "it asks again and again, and lets nothing else run"
            await until_sendable(topic)

        monkeypatch.setattr(producer, "until_sendable", counted)
        await producer.send("t", bytes(300))
        await (await producer.send("t", bytes(800)))


async def test_send_many_failure_read_by_the_application_is_not_raised_again(
    leader: Leader,
) -> None:
    leader.code = REFUSED
    leader.add("t", 1)
    async with Producer(leader.view, linger_ms=0) as producer:
        many = await producer.send_many("t", [b"a", b"b"], partition=[0, 1])
        while not many.done():
            await asyncio.sleep(0)
        assert isinstance(many.exception(), TopicAuthorizationFailed)
        await producer.flush()


async def test_producer_flush_continues_when_another_flush_is_cancelled(leader: Leader) -> None:
    leader.add("u")
    async with Producer(leader.view, linger_ms=30_000) as producer:
        answered = asyncio.Event()
        leader.pause = answered.wait
        await producer.send("t", b"first")
        first = asyncio.create_task(producer.flush())
        await asyncio.sleep(0.01)
        second = asyncio.create_task(producer.flush())
        await asyncio.sleep(0.01)
        await producer.send("u", b"lingers if nobody flushes")
        first.cancel()
        answered.set()
        async with asyncio.timeout(10):
            await second
        leader.pause = lambda: asyncio.sleep(0)
        lingering = await producer.send("t", b"lingers")
        await asyncio.sleep(0.05)
        assert not lingering.done()


def test_blocking_producer_close_refuses_a_send_that_waits_for_buffer_memory() -> None:
    producer = BlockingProducer(NOWHERE, max_block_ms=100, request_timeout_ms=100)
    producer._given_bytes += 1 << 40
    refused: list[Exception] = []

    def send() -> None:
        try:
            producer.send("t", b"waits")
        except Exception as problem:
            refused.append(problem)

    sender = threading.Thread(target=send)
    sender.start()
    time.sleep(0.1)
    producer.close()
    sender.join(10)
    assert [type(problem) for problem in refused] == [ClientClosed]


def test_blocking_producer_send_after_close_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = BlockingProducer(NOWHERE, max_block_ms=100, request_timeout_ms=100)
    late: list[HandedDelivery] = []
    end = producer._thread.close

    def close() -> None:
        end()
        producer._is_closed = False  # for a `send` that has checked this before
        late.append(producer.send("t", b"late"))
        producer._is_closed = True

    monkeypatch.setattr(producer._thread, "close", close)
    producer.close()
    assert late[0].done()
    assert isinstance(late[0].exception(), ClientClosed)
    with pytest.raises(ClientClosed):
        late[0].result()
