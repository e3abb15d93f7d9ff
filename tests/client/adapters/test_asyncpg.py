"""Test blocks of a dual write with asyncpg, on a real cluster and a real PostgreSQL."""

import asyncio
import contextlib
import subprocess
import sys
from typing import Any

import pytest

from oncelog.client import Admin, CheckBack, DatabaseResolver, DualWriter, OutboxWriter, WriterPool
from oncelog.client.adapters.asyncpg import AsyncpgConnection, connect
from oncelog.client.dual_write.stop_words import (
    BlockNotWhole,
    CheckedBackError,
    DualWriteError,
    UnsafeDatabase,
    WriterSuperseded,
)

from ...docs.blocks import block
from ..dual_write.ledger import Ledger, assert_equal
from ..dual_write.postgresql import PostgresServer

asyncpg: Any = pytest.importorskip("asyncpg", reason="asyncpg is missing (extra: test)")
pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]
INSERT = "INSERT INTO transfers (number, amount) VALUES ($1, 5)"


@pytest.fixture
def ledger(server: PostgresServer) -> Ledger:
    return Ledger(server.connect, "%s").create()


async def transfer(writer: DualWriter | WriterPool, topic: str, number: int) -> None:
    async with writer.transaction() as work:
        await work.connection.raw.execute(INSERT, number)
        await work.send(topic, b"%d" % number)


async def test_asyncpg_block_commits_both_rows_and_events_or_neither(
    bootstrap: str, server: PostgresServer, ledger: Ledger, topic: str
) -> None:
    async with DualWriter(bootstrap, topic, connect(server.url)) as writer:
        await transfer(writer, topic, 1)
        with pytest.raises(asyncpg.UniqueViolationError):
            await transfer(writer, topic, 1)
        with pytest.raises(BlockNotWhole):
            async with writer.transaction() as work:
                await work.send(topic, b"2")
                await work.connection.raw.execute("ROLLBACK")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05), writer.transaction() as work:
                await work.connection.raw.execute(INSERT, 3)
                await work.send(topic, b"3")
                await work.connection.raw.execute("SELECT pg_sleep(30)")
        async with writer.transaction() as work:
            raw = work.connection.raw
            with pytest.raises(ZeroDivisionError):
                async with raw.transaction():
                    await raw.execute(INSERT, 4)
                    raise ZeroDivisionError
            cursor = await work.execute(
                "INSERT INTO transfers VALUES ($1, 5) RETURNING number", (5,)
            )
            assert (cursor.rowcount, await cursor.fetchone()) == (1, (5,))
            assert await cursor.fetchone() is None
            await work.send(topic, b"5")
            await work.consumed(topic, 0, 17)
        assert await writer.positions() == {(topic, 0): 17}
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)
    assert ledger.rows() == [1, 5]


async def test_asyncpg_block_ended_by_a_check_back_or_a_newer_writer_raises_a_typed_error(
    bootstrap: str, server: PostgresServer, ledger: Ledger, topic: str
) -> None:
    opens = connect(server.url)
    async with DualWriter(bootstrap, topic, opens) as first:
        with pytest.raises(CheckedBackError):
            async with first.transaction() as work:
                await work.connection.raw.execute(INSERT, 1)
                sent = await work.send(topic, b"1")
                await sent
                async with Admin(bootstrap) as admin:
                    resolver = DatabaseResolver(opens)
                    await CheckBack(admin.view, resolver, older_than_ms=0, writer=topic).sweep()
                    await resolver.close()
        async with DualWriter(bootstrap, topic, opens) as second:
            await transfer(second, topic, 2)
            with pytest.raises(WriterSuperseded):
                await transfer(first, topic, 3)
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)
    assert ledger.rows() == [2]


async def test_asyncpg_writer_continues_after_a_server_restart(
    bootstrap: str, server: PostgresServer, ledger: Ledger, topic: str
) -> None:
    async with WriterPool(bootstrap, topic, 2, connect(server.url)) as pool:
        await asyncio.gather(*(transfer(pool, topic, number) for number in range(4)))
        with pytest.raises(Exception):  # noqa: B017
            async with pool.transaction() as work:
                await work.send(topic, b"9")
                await asyncio.to_thread(server.kill)
                await work.connection.raw.execute(INSERT, 9)
        await asyncio.to_thread(server.start)
        await asyncio.gather(*(transfer(pool, topic, number) for number in (5, 6)))
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)
    assert ledger.rows() == [0, 1, 2, 3, 5, 6]


class Deaf(AsyncpgConnection):
    """A connection that executes the next commit and is then lost, so the commit has no answer."""

    is_armed = False

    async def commit(self) -> None:
        await super().commit()
        if self.is_armed:
            self.raw.terminate()
            raise ConnectionError("lost in the commit")


async def test_asyncpg_commit_without_an_answer_counts_as_committed_if_it_took_effect(
    bootstrap: str, server: PostgresServer, ledger: Ledger, topic: str
) -> None:
    opened: list[Deaf] = []

    async def deaf() -> Deaf:
        opened.append(Deaf((await connect(server.url)()).raw))
        return opened[-1]

    async with DualWriter(bootstrap, topic, deaf) as writer:
        await transfer(writer, topic, 1)
        opened[0].is_armed = True
        await transfer(writer, topic, 2)
        await transfer(writer, topic, 3)
    assert len(opened) == 2
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)
    assert ledger.rows() == [1, 2, 3]


class Torn(AsyncpgConnection):
    """A connection on which another task's statement fails right before the commit.

    PostgreSQL then answers the COMMIT with ROLLBACK.
    """

    is_armed = False

    async def commit(self) -> None:
        if self.is_armed:
            self.is_armed = False
            with contextlib.suppress(asyncpg.PostgresError):
                await self.raw.execute("SELECT 1 / 0")
        await super().commit()


async def test_asyncpg_commit_answered_by_rollback_commits_neither_rows_nor_events(
    bootstrap: str, server: PostgresServer, ledger: Ledger, topic: str
) -> None:
    torn = Torn((await connect(server.url)()).raw)
    async with DualWriter(bootstrap, topic, torn) as writer:
        torn.is_armed = True
        with pytest.raises(DualWriteError, match="ROLLBACK"):
            await transfer(writer, topic, 1)
        await transfer(writer, topic, 2)
    await torn.close()
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)
    assert ledger.rows() == [2]


async def until_cut(call: Any, at: int) -> None:
    """Run a call for `at` iterations of the event loop, cancel it, and wait for its end."""
    task = asyncio.ensure_future(call)
    for _ in range(at):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("is_given", [True, False], ids=["connection", "function"])
async def test_asyncpg_block_after_a_cancelled_call_commits_its_rows(
    server: PostgresServer, ledger: Ledger, is_given: bool
) -> None:
    opens, numbers = connect(server.url), range(1, 12)
    given = await opens()
    async with OutboxWriter("cut", given if is_given else opens) as writer:
        for number in numbers:
            await until_cut(writer.positions(), number)
            async with writer.transaction() as work:
                raw = work.connection.raw
                await raw.execute(INSERT, number)
                with pytest.raises(ZeroDivisionError):
                    async with raw.transaction():
                        await raw.execute(INSERT, -number)
                        raise ZeroDivisionError
            assert ledger.rows() == list(range(1, number + 1)), "the block returned well"
    await given.close()


async def test_asyncpg_writer_with_a_given_connection_stops_when_the_connection_is_lost(
    bootstrap: str, server: PostgresServer, ledger: Ledger, topic: str
) -> None:
    given = await connect(server.url)()
    async with DualWriter(bootstrap, topic, given) as writer:
        await transfer(writer, topic, 1)
        given.raw.terminate()
        for _ in range(2):
            with pytest.raises(Exception):  # noqa: B017
                await transfer(writer, topic, 2)
        assert isinstance(writer.stopped_by, DualWriteError)
        for call in (transfer(writer, topic, 3), writer.positions()):
            with pytest.raises(DualWriteError, match="another connection"):
                await call
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)
    assert ledger.rows() == [1]


async def test_asyncpg_unsafe_setting_is_refused_at_the_writer_start_and_before_a_commit(
    bootstrap: str, server: PostgresServer, ledger: Ledger, topic: str
) -> None:
    careless = connect(server.url, server_settings={"synchronous_commit": "off"})
    with pytest.raises(UnsafeDatabase, match="synchronous_commit"):
        await DualWriter(bootstrap, topic, careless).start()
    opened: AsyncpgConnection = await connect(server.url)()
    async with DualWriter(bootstrap, topic, opened) as writer:
        with pytest.raises(UnsafeDatabase, match="synchronous_commit"):
            async with writer.transaction() as work:
                await work.connection.raw.execute("SET synchronous_commit = off")
        with pytest.raises(UnsafeDatabase, match="already"):
            async with opened.raw.transaction():
                await transfer(writer, topic, 1)
    await opened.close()
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)
    assert ledger.rows() == []


async def test_asyncpg_outbox_writer_commits_the_row_and_the_outbox_row_of_a_block(
    server: PostgresServer, ledger: Ledger
) -> None:
    async with (
        OutboxWriter("asyncpg", connect(server.url)) as writer,
        writer.transaction() as work,
    ):
        await work.connection.raw.execute(INSERT, 1)
        await work.send("transfers", b"1")
    assert ledger.rows() == [1]
    assert ledger.rows("SELECT outbox FROM oncelog_outbox").count("asyncpg") == 1


def test_asyncpg_program_in_the_docs_runs_as_shown(bootstrap: str, server: PostgresServer) -> None:
    program = block("docs/databases.md", "adapters.asyncpg").text
    ran = subprocess.run(
        [sys.executable, "-c", program, bootstrap, server.url],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["[10, 20, 30]"]
