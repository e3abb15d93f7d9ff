"""Test that an outbox writer cancelled at any point leaves no database transaction open."""

import asyncio
import contextlib
from typing import Any

import psycopg
import pytest

from oncelog.client import OutboxWriter

from ..dual_write.postgresql import PostgresServer

pytestmark = pytest.mark.xdist_group("dual_write")


class Words:
    """Words of the SQL statement that cancels a task, and the task (the current one if None)."""

    cut = ""
    caller: "asyncio.Task[None] | None" = None


async def meet(query: str) -> None:
    if Words.cut and Words.cut in query:
        Words.cut = ""
        task = Words.caller or asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)


class Cursor(psycopg.AsyncCursor[Any]):
    async def execute(self, query: Any, *more: Any, **options: Any) -> Any:
        result = await super().execute(query, *more, **options)
        await meet(query)
        return result


class Connection(psycopg.AsyncConnection[Any]):
    async def commit(self) -> None:
        await super().commit()
        await meet("COMMIT")


async def opened_at(server: PostgresServer) -> Any:
    return await Connection.connect(server.url, cursor_factory=Cursor)


async def until_cancelled(step: Any, *, is_caller: bool = False) -> None:
    task = asyncio.create_task(step)
    Words.caller = task if is_caller else None
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled() and not Words.cut


async def write(writer: OutboxWriter) -> None:
    async with writer.transaction() as work:
        await work.consumed("topic", 0, 1)


@pytest.mark.parametrize("is_caller", [False, True], ids=["itself", "caller"])
@pytest.mark.parametrize(
    "words", ["SAVEPOINT oncelog", "SELECT topic, partition_id", "RELEASE", "COMMIT"]
)
async def test_outbox_writer_continues_after_a_cancellation(
    server: PostgresServer, words: str, is_caller: bool
) -> None:
    async def connect() -> Any:
        return await opened_at(server)

    async with OutboxWriter("cut", connect) as writer:
        Words.cut = words
        step = writer.positions() if "SELECT" in words else write(writer)
        await until_cancelled(step, is_caller=is_caller)
        await write(writer)
        assert writer.connection.info.transaction_status == 0


async def test_outbox_start_that_was_cancelled_releases_its_database_lock(
    server: PostgresServer,
) -> None:
    """With the lock held, each later writer of the name would wait."""
    opened: list[Any] = []

    async def connect() -> Any:
        opened.append(await opened_at(server))
        return opened[-1]

    async with OutboxWriter("start", connect):
        pass
    Words.cut = "SET generation = generation + 1"
    await until_cancelled(OutboxWriter("start", connect).start())
    assert opened[-1].closed
    async with asyncio.timeout(20), OutboxWriter("start", connect) as writer:
        await write(writer)
