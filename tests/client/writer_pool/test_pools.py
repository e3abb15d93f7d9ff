"""Test writer pools with concurrent blocks, ended tasks, closes and forks on a real cluster."""

import asyncio
import os
import sqlite3
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncelog.client import BlockingWriterPool, WriterPool
from oncelog.client.dual_write.stop_words import WriterSuperseded
from oncelog.client.failures import ClientClosed
from oncelog.client.writer_pool.pool_names import NoWriterFree, PoolNames
from oncelog.wire.errors import InvalidConfig

from ...waiting import until
from ..dual_write.ledger import Ledger, assert_equal
from ..dual_write.postgresql import PostgresServer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]
WRITERS, BLOCKS = 4, 24


@pytest.fixture
def postgres_ledger(server: PostgresServer) -> Ledger:
    return Ledger(server.connect, "%s").create()


def pool_of(bootstrap: str, server: PostgresServer, topic: str, size: int, **more: Any) -> Any:
    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(server.url)

    return WriterPool(bootstrap, topic, size, connect, **more)


async def transfer(pool: WriterPool, ledger: Ledger, topic: str, number: int) -> None:
    async with pool.transaction() as work:
        await work.execute(ledger.insert, (number, 5))
        await work.send(topic, b"%d" % number)


def blocking_transfer(pool: BlockingWriterPool, ledger: Ledger, topic: str, number: int) -> None:
    with pool.transaction() as work:
        work.execute(ledger.insert, (number, 5))
        work.send(topic, b"%d" % number)


async def test_pool_runs_as_many_blocks_at_once_as_it_has_writers(
    bootstrap: str, server: PostgresServer, postgres_ledger: Ledger, topic: str
) -> None:
    running, most, full = 0, 0, asyncio.Event()

    async def block(pool: WriterPool, number: int) -> None:
        nonlocal running, most
        async with pool.transaction() as work:
            running += 1
            most = max(most, running)
            if running == WRITERS:
                full.set()
            await full.wait()
            await work.execute(postgres_ledger.insert, (number, 5))
            await work.send(topic, b"%d" % number)
            running -= 1

    async with asyncio.timeout(60), pool_of(bootstrap, server, topic, WRITERS) as pool:
        await asyncio.gather(*(block(pool, number) for number in range(BLOCKS)))
    assert most == WRITERS
    await asyncio.to_thread(assert_equal, bootstrap, topic, postgres_ledger)
    named = "SELECT writer FROM oncelog_decisions WHERE outcome = 'session' AND writer LIKE"
    found = postgres_ledger.rows(f"{named} '{topic}-%' ORDER BY writer")
    assert found == [f"{topic}-{number}" for number in range(WRITERS)]


async def test_pool_wait_that_times_out_names_the_holders_and_leaves_no_ticket(
    bootstrap: str, server: PostgresServer, postgres_ledger: Ledger, topic: str
) -> None:
    async with pool_of(bootstrap, server, topic, 1, acquire_timeout_ms=150) as pool:
        held, may_end = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with pool.acquire():
                held.set()
                await may_end.wait()

        holder = asyncio.create_task(hold(), name="slow")
        await held.wait()
        with pytest.raises(NoWriterFree, match=rf"0.15 s.*{topic}-0 by task 'slow' for 0\.\d s"):
            await transfer(pool, postgres_ledger, topic, 1)
        cancelled = asyncio.create_task(transfer(pool, postgres_ledger, topic, 2))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        may_end.set()
        await holder
        await transfer(pool, postgres_ledger, topic, 3)
    await asyncio.to_thread(assert_equal, bootstrap, topic, postgres_ledger)
    assert postgres_ledger.rows() == [3]


async def test_pool_close_fails_waiting_transactions_and_rolls_back_the_open_transaction(
    bootstrap: str,
    server: PostgresServer,
    postgres_ledger: Ledger,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oncelog.client.writer_pool.pool.CLOSE_TIMEOUT_MS", 100)
    pool = pool_of(bootstrap, server, topic, 1)
    await pool.start()
    block = pool.transaction()
    work = await block.__aenter__()
    await work.execute(postgres_ledger.insert, (1, 5))
    await work.send(topic, b"1")
    waiting = asyncio.create_task(transfer(pool, postgres_ledger, topic, 2))
    await asyncio.sleep(0)
    await pool.close()
    with pytest.raises(ClientClosed, match="pool is closed"):
        await waiting
    with pytest.raises(ClientClosed, match="writer is closed"):
        await block.__aexit__(None, None, None)
    with pytest.raises(ClientClosed, match="pool is closed"):
        await transfer(pool, postgres_ledger, topic, 3)
    await asyncio.to_thread(assert_equal, bootstrap, topic, postgres_ledger)
    assert postgres_ledger.rows() == []


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pool reclaim the writers of ended tasks and threads without the usual delay."""
    monkeypatch.setattr("oncelog.client.writer_pool.pool_names.SILENT_S", 0.0)


@pytest.mark.usefixtures("impatient")
async def test_pool_writer_of_an_ended_task_is_reclaimed(
    bootstrap: str, server: PostgresServer, postgres_ledger: Ledger, topic: str
) -> None:
    async with pool_of(bootstrap, server, topic, 1) as pool:
        left: list[Any] = []

        async def leaves_it_open() -> None:
            left.append(pool.transaction())
            work = await left[0].__aenter__()
            await work.execute(postgres_ledger.insert, (1, 5))
            await work.send(topic, b"1")

        await asyncio.create_task(leaves_it_open())
        await transfer(pool, postgres_ledger, topic, 2)
        with pytest.raises(ClientClosed):
            await left[0].__aexit__(None, None, None)
        await transfer(pool, postgres_ledger, topic, 3)
    await asyncio.to_thread(assert_equal, bootstrap, topic, postgres_ledger)
    assert postgres_ledger.rows() == [2, 3]


async def test_writer_pool_block_entered_by_another_task_keeps_its_writer(
    bootstrap: str,
    server: PostgresServer,
    postgres_ledger: Ledger,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with pool_of(bootstrap, server, topic, 1, acquire_timeout_ms=600) as pool:
        block = pool.transaction()
        work = await asyncio.create_task(block.__aenter__())  # asyncio.wait_for does the same
        with pytest.raises(NoWriterFree):
            await transfer(pool, postgres_ledger, topic, 1)
        await work.execute(postgres_ledger.insert, (2, 5))
        monkeypatch.setattr("oncelog.client.writer_pool.pool_names.SILENT_S", 0.0)
        with pytest.raises(NoWriterFree, match="by task 'Task"):
            await transfer(pool, postgres_ledger, topic, 3)
        await work.send(topic, b"2")
        await block.__aexit__(None, None, None)
    await asyncio.to_thread(assert_equal, bootstrap, topic, postgres_ledger)
    assert postgres_ledger.rows() == [2]


async def test_pool_with_many_waiting_tasks_looks_for_dead_holders_in_the_first_task_only(
    bootstrap: str, server: PostgresServer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, many, real = [0], 200, PoolNames.take

    def take(*args: Any) -> Any:
        looks[0] += 1
        return real(*args)

    async def want(pool: WriterPool) -> None:
        with pytest.raises(NoWriterFree):
            async with pool.acquire(timeout_ms=1_100):
                pass

    async with pool_of(bootstrap, server, topic, 1) as pool, pool.acquire():
        monkeypatch.setattr(PoolNames, "take", take)
        await asyncio.gather(*(want(pool) for _ in range(many)))
    assert looks[0] < 3 * many, "one when it comes, one when it goes"


async def test_pool_writer_that_stopped_is_replaced_by_a_new_writer(
    bootstrap: str, server: PostgresServer, postgres_ledger: Ledger, topic: str
) -> None:
    async with pool_of(bootstrap, server, topic, 1) as pool:
        async with pool.acquire() as writer:
            writer._protocol.stop(RuntimeError("in doubt"))
        await transfer(pool, postgres_ledger, topic, 1)
    await asyncio.to_thread(assert_equal, bootstrap, topic, postgres_ledger)


async def test_pool_with_names_taken_by_another_pool_is_superseded(
    bootstrap: str, server: PostgresServer, postgres_ledger: Ledger, topic: str
) -> None:
    async with pool_of(bootstrap, server, topic, 2) as older:
        await transfer(older, postgres_ledger, topic, 1)
        async with pool_of(bootstrap, server, topic, 2) as newer:
            for _ in range(4):
                with pytest.raises(WriterSuperseded):
                    await transfer(older, postgres_ledger, topic, 2)
            await transfer(newer, postgres_ledger, topic, 3)
    await asyncio.to_thread(assert_equal, bootstrap, topic, postgres_ledger)
    assert postgres_ledger.rows() == [1, 3]


async def test_pool_connection_opened_during_the_close_is_closed(
    bootstrap: str, server: PostgresServer, topic: str
) -> None:
    opened, asked, may_open = list[Any](), asyncio.Event(), asyncio.Event()

    async def connect() -> Any:
        asked.set()
        await may_open.wait()
        opened.append(await psycopg.AsyncConnection.connect(server.url))
        return opened[-1]

    pool = WriterPool(bootstrap, topic, 1, connect)
    starting = asyncio.create_task(pool.start())
    await asked.wait()
    closing = asyncio.create_task(pool.close())
    await asyncio.sleep(0)
    may_open.set()
    await closing
    with pytest.raises(ClientClosed):
        await starting
    assert [each.closed for each in opened] == [True]


async def test_pool_of_tasks_over_sqlite_is_refused(bootstrap: str, tmp_path: Path) -> None:
    pool = WriterPool(bootstrap, "lite", 2, lambda: sqlite3.connect(tmp_path / "file"))
    with pytest.raises(InvalidConfig, match="one lock for all"):
        await pool.start()


def test_writer_pool_block_entered_by_another_thread_keeps_its_writer(
    bootstrap: str, server: PostgresServer, topic: str, postgres_ledger: Ledger
) -> None:
    options = {"acquire_timeout_ms": 600}
    with BlockingWriterPool(bootstrap, topic, 1, server.connect, **options) as pool:
        entered, block = list[Any](), pool.transaction()
        thread = threading.Thread(target=lambda: entered.append(block.__enter__()))
        thread.start()
        thread.join()
        with pytest.raises(NoWriterFree):
            blocking_transfer(pool, postgres_ledger, topic, 1)
        entered[0].execute(postgres_ledger.insert, (2, 5))
        entered[0].send(topic, b"2")
        with pytest.raises(NoWriterFree, match="by thread 'MainThread'"):
            blocking_transfer(pool, postgres_ledger, topic, 3)
        block.__exit__(None, None, None)
    assert_equal(bootstrap, topic, postgres_ledger)
    assert postgres_ledger.rows() == [2]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_blocking_pool_shared_by_threads_reclaims_writers_of_dead_threads(
    bootstrap: str, server: PostgresServer, topic: str, tmp_path: Path, kind: str
) -> None:
    def connect() -> Any:
        return sqlite3.connect(tmp_path / "ledger", timeout=20, check_same_thread=False)

    given = (connect, "?") if kind == "sqlite" else (server.connect, "%s")
    ledger, left = Ledger(*given).create(), list[Any]()
    with BlockingWriterPool(bootstrap, topic, 2, ledger.connect) as pool:

        def work(first: int) -> None:
            for number in range(first, first + 5):
                blocking_transfer(pool, ledger, topic, number)

        def leave_it_open() -> None:
            left.append(pool.transaction())
            block = left[-1].__enter__()
            block.execute(ledger.insert, (100 + len(left), 5))
            block.send(topic, b"100")

        for targets in ([(work, (10 * n,)) for n in range(4)], [(leave_it_open, ())] * 1):
            threads = [threading.Thread(target=t, args=args) for t, args in targets]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        with pool.acquire() as free, pool.acquire() as orphan:
            assert {free.name, orphan.name} == {f"{topic}-0", f"{topic}-1"}
            with (
                pytest.raises(NoWriterFree, match="by thread 'MainThread'"),
                pool.acquire(timeout_ms=50),
            ):
                pass
        blocking_transfer(pool, ledger, topic, 50)
    assert_equal(bootstrap, topic, ledger)
    assert ledger.rows() == sorted([n + 10 * m for m in range(4) for n in range(5)] + [50])


def test_close_of_a_blocking_pool_fails_waiting_threads(
    bootstrap: str, server: PostgresServer, topic: str, postgres_ledger: Ledger
) -> None:
    told: list[str] = []
    pool = BlockingWriterPool(bootstrap, topic, 1, server.connect)
    pool.start()

    def wait() -> None:
        try:
            blocking_transfer(pool, postgres_ledger, topic, 1)
        except ClientClosed as problem:
            told.append(str(problem))

    waiter = threading.Thread(target=wait)
    with pool.acquire():
        waiter.start()
        until(lambda: pool._names._waiting)
        closer = threading.Thread(target=pool.close)
        closer.start()
        waiter.join()
        assert told == ["the pool is closed"]
    closer.join()


def test_blocking_pool_used_in_a_forked_child_is_refused(
    bootstrap: str, server: PostgresServer, topic: str, postgres_ledger: Ledger
) -> None:
    with BlockingWriterPool(bootstrap, topic, 2, server.connect) as pool:
        blocking_transfer(pool, postgres_ledger, topic, 1)
        with pool.acquire() as writer:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    for call in (pool.transaction, writer.transaction):
                        try:
                            with call():
                                code = 2
                        except ClientClosed as problem:
                            code = 0 if "forked" in str(problem) and code != 2 else 3
                    writer.close()
                    pool.close()
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        blocking_transfer(pool, postgres_ledger, topic, 2)
    assert_equal(bootstrap, topic, postgres_ledger)
    assert postgres_ledger.rows() == [1, 2]
