"""Test that a record or offset delayed beyond its block is in no later transaction."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from oncelog.client import (
    BlockingAdmin,
    BlockingDualWriter,
    BlockingProducer,
    DualWriter,
    OutboxWriter,
    Producer,
)
from oncelog.client.dual_write.blocking_writer import BlockingDualWork
from oncelog.client.failures import IllegalProducerState

from .ledger import Ledger, assert_equal, events
from .postgresql import PostgresServer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]
OVER = "ended while this waited"


def made(bootstrap: str, topic: str) -> str:
    """Create the topic, and return its name."""
    with BlockingAdmin(bootstrap) as admin:
        admin.create_topic(topic)
    return topic


@pytest.mark.parametrize(
    "send",
    [lambda to, topic: to.send(topic, b"9"), lambda to, topic: to.send_many(topic, [b"9"])],
    ids=["send", "send_many"],
)
async def test_record_waiting_for_its_topic_is_refused_in_a_later_dual_write_block(
    bootstrap: str, server: PostgresServer, topic: str, send: Callable[..., Any]
) -> None:
    ledger = Ledger(server.connect, "%s").create()

    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(server.url)

    async with DualWriter(bootstrap, topic, connect) as writer:
        async with writer.transaction() as work:
            late = asyncio.create_task(send(work, f"{topic}.late"))
            await work.execute(ledger.insert, (1, 5))
            await work.send(topic, b"1")
        assert not late.done()
        async with writer.transaction() as work:
            await asyncio.to_thread(made, bootstrap, f"{topic}.late")
            with pytest.raises(IllegalProducerState, match=OVER):
                await late
            await work.execute(ledger.insert, (2, 5))
            await work.send(topic, b"2")
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)
    assert await asyncio.to_thread(events, bootstrap, f"{topic}.late") == []


async def test_record_waiting_for_its_topic_is_refused_in_a_later_transaction(
    bootstrap: str, topic: str
) -> None:
    async with Producer(bootstrap, transactional_id=topic) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        late = asyncio.create_task(producer.send(f"{topic}.late", b"9"))
        await producer.send(topic, b"1")
        await producer.commit_transaction()
        await producer.begin_transaction()
        await asyncio.to_thread(made, bootstrap, f"{topic}.late")
        with pytest.raises(IllegalProducerState, match=OVER):
            await late
        await producer.commit_transaction()
    assert await asyncio.to_thread(events, bootstrap, f"{topic}.late") == []


def test_record_sent_within_an_ended_transaction_is_refused_in_a_later_transaction(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncelog.client.blocking_producer.HANDED_MAX", 1)
    with BlockingProducer(bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        first = producer.transaction
        producer.send(topic, b"1")
        producer.commit_transaction()
        producer.begin_transaction()
        late = producer.send(topic, b"9", within=first)
        with pytest.raises(IllegalProducerState, match=OVER):
            producer.send_many(topic, [b"9"], within=first)
        producer.send(topic, b"2")
        producer.commit_transaction()
        with pytest.raises(IllegalProducerState, match=OVER):
            late.result(10)
    assert events(bootstrap, topic) == [1, 2]


def test_record_of_a_thread_waiting_for_buffer_memory_is_refused_in_a_later_block(
    bootstrap: str, ledger: Ledger, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, told, real = threading.Event(), list[Any](), BlockingProducer._wait_for_room

    def wait_for_room(producer: BlockingProducer) -> None:
        waits.set()
        real(producer)

    def send_late() -> None:
        told.append(work.send(topic, b"9"))

    late = threading.Thread(target=send_late)
    monkeypatch.setattr(BlockingProducer, "_wait_for_room", wait_for_room)
    monkeypatch.setattr("oncelog.client.blocking_producer.HANDED_MAX", 0)
    with BlockingDualWriter(bootstrap, topic, ledger.connect) as writer:
        with writer.transaction() as work:
            work.execute(ledger.insert, (1, 5))
            late.start()
            assert waits.wait(10)
        with writer.transaction() as second:
            monkeypatch.setattr("oncelog.client.blocking_producer.HANDED_MAX", 20_000)
            late.join()
            second.execute(ledger.insert, (2, 5))
            second.send(topic, b"2")
        with pytest.raises(IllegalProducerState, match=OVER):
            told[0].result(10)
    assert events(bootstrap, topic) == [2]


@pytest.mark.parametrize("call", ["send", "send_many"])
def test_record_of_a_thread_paused_inside_send_is_refused_in_a_later_block(
    bootstrap: str, ledger: Ledger, topic: str, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    is_checked, may_go_on, told = threading.Event(), threading.Event(), list[Exception]()
    real = BlockingDualWork._used

    def used(work: BlockingDualWork) -> None:
        real(work)
        if threading.current_thread() is late:
            is_checked.set()
            assert may_go_on.wait(30)

    def send_late() -> None:
        try:
            if call == "send":
                work.send(topic, b"9").result(10)
            else:
                work.send_many(topic, [b"9"])
        except IllegalProducerState as problem:
            told.append(problem)

    late = threading.Thread(target=send_late)
    monkeypatch.setattr(BlockingDualWork, "_used", used)
    with BlockingDualWriter(bootstrap, topic, ledger.connect) as writer:
        with writer.transaction() as work:
            work.execute(ledger.insert, (1, 5))
            late.start()
            assert is_checked.wait(10)
        with writer.transaction() as second:
            may_go_on.set()
            late.join()
            second.execute(ledger.insert, (2, 5))
            second.send(topic, b"2")
    assert [OVER in str(problem) for problem in told] == [True]
    assert events(bootstrap, topic) == [2]


@pytest.mark.parametrize("kind", ["dual write", "outbox"])
async def test_consumer_position_half_written_in_a_block_is_not_committed_by_the_next_block(
    bootstrap: str, server: PostgresServer, topic: str, kind: str
) -> None:
    updated, may_go_on = asyncio.Event(), asyncio.Event()

    class SlowCursor(psycopg.AsyncCursor[Any]):
        async def execute(self, query: Any, *args: Any, **options: Any) -> Any:
            await super().execute(query, *args, **options)
            if query.startswith("UPDATE oncelog_positions"):
                updated.set()
                await may_go_on.wait()
            return self

    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(server.url, cursor_factory=SlowCursor)

    dual = DualWriter(bootstrap, topic, connect)
    async with dual if kind == "dual write" else OutboxWriter(topic, connect) as writer:
        async with writer.transaction() as work:
            late = asyncio.create_task(work.consumed(topic, 0, 9))
            await updated.wait()
        async with writer.transaction():
            may_go_on.set()
            with pytest.raises(IllegalProducerState, match="is over"):
                await late
        assert await writer.positions() == {}
