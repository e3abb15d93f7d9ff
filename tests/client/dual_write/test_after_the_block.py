"""Test that a work object used after its block takes no part in the next block."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from oncelog.client import (
    BlockingDualWriter,
    BlockingOutboxWriter,
    DualWriter,
    OutboxWriter,
    WriterPool,
)
from oncelog.client.failures import IllegalProducerState

from .ledger import Ledger, assert_equal
from .postgresql import PostgresServer
from .test_other_modules import other

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]
__all__ = ["other"]


def late_calls(work: Any, ledger: Ledger, topic: str) -> list[Callable[[], Any]]:
    return [
        lambda: work.execute(ledger.insert, (9, 5)),
        lambda: work.send(topic, b"9"),
        lambda: work.consumed(topic, 0, 9),
        lambda: work.kept("a session", lambda _: None),
        lambda: work.connection,
    ]


@pytest.mark.parametrize("kind", ["dual write", "outbox"])
def test_work_object_used_after_its_block_is_refused_during_the_next_block(
    bootstrap: str, ledger: Ledger, topic: str, kind: str
) -> None:
    dual = BlockingDualWriter(bootstrap, topic, ledger.connect)
    with dual if kind == "dual write" else BlockingOutboxWriter(topic, ledger.connect) as writer:
        with pytest.raises(ZeroDivisionError), writer.transaction() as failed:
            raise ZeroDivisionError
        with writer.transaction() as old:
            old.execute(ledger.insert, (1, 5))
        with writer.transaction() as work:
            for call in late_calls(old, ledger, topic) + late_calls(failed, ledger, topic):
                with pytest.raises(IllegalProducerState, match="is over"):
                    call()
            work.execute(ledger.insert, (2, 5))
        assert writer.positions() == {}
    assert ledger.rows() == [1, 2]


@pytest.mark.parametrize("kind", ["dual write", "outbox"])
async def test_work_object_used_by_a_task_after_its_block_is_refused_during_the_next_block(
    bootstrap: str, server: PostgresServer, topic: str, kind: str
) -> None:
    ledger = Ledger(server.connect, "%s").create()

    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(server.url)

    dual = DualWriter(bootstrap, topic, connect)
    async with dual if kind == "dual write" else OutboxWriter(topic, connect) as writer:
        async with writer.transaction() as old:
            await old.execute(ledger.insert, (1, 5))
        async with writer.transaction() as work:
            for call in late_calls(old, ledger, topic):
                with pytest.raises(IllegalProducerState, match="is over"):
                    await call()
            await work.execute(ledger.insert, (2, 5))
        assert await writer.positions() == {}
    assert await asyncio.to_thread(ledger.rows) == [1, 2]


def assert_rolled_back(bootstrap: str, ledger: Ledger, topic: str) -> None:
    with BlockingDualWriter(bootstrap, topic, ledger.connect) as writer:
        for number in (1, 2):
            with writer.transaction() as work:
                cursor = work.execute(ledger.insert, (number, 5))
                work.send(topic, b"%d" % number)
            cursor.execute(ledger.insert, (10 + number, 5))
        assert writer.positions() == {}
        cursor.execute("SELECT count(*) FROM transfers")
    assert_equal(bootstrap, topic, ledger)
    assert ledger.rows() == [1, 2]


def test_cursor_used_after_its_block_commits_neither_row_nor_event(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    assert_rolled_back(bootstrap, ledger, topic)


def test_cursor_of_an_unknown_database_module_after_its_block_commits_neither_row_nor_event(
    bootstrap: str, other: Ledger, topic: str
) -> None:
    assert_rolled_back(bootstrap, other, topic)


async def test_cursor_read_after_its_block_leaves_the_pool_writer_usable(
    bootstrap: str, server: PostgresServer, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = Ledger(server.connect, "%s").create()

    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(server.url)

    async with WriterPool(bootstrap, topic, 1, connect) as pool:
        for number in (1, 2):
            async with pool.transaction() as work:
                cursor = await work.execute(ledger.insert, (number, 5))
                await work.send(topic, b"%d" % number)
            await cursor.execute("SELECT number FROM transfers")  # perhaps rendered late
    assert "after the end of a block are rolled back" in caplog.text
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)
    assert ledger.rows() == [1, 2]
