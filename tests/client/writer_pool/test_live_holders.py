"""Test that a block keeps its pool writer when a task or thread that worked in it ends."""

import asyncio
import threading
from typing import Any

import pytest

from oncelog.client import BlockingWriterPool
from oncelog.client.writer_pool.pool_names import NoWriterFree

from ...waiting import until
from ..dual_write.ledger import Ledger, assert_equal
from ..dual_write.postgresql import PostgresServer
from .test_pools import blocking_transfer, impatient, pool_of, postgres_ledger, transfer

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("dual_write"),
    pytest.mark.usefixtures("impatient"),
]
__all__ = ["impatient", "postgres_ledger"]
OPTIONS = {"acquire_timeout_ms": 600}


async def test_writer_pool_block_that_awaits_gathered_tasks_keeps_its_writer(
    bootstrap: str, server: PostgresServer, postgres_ledger: Ledger, topic: str
) -> None:
    pool = pool_of(bootstrap, server, topic, 1, **OPTIONS)
    async with pool, pool.transaction() as work:
        await asyncio.gather(work.execute(postgres_ledger.insert, (2, 5)), work.send(topic, b"2"))
        with pytest.raises(NoWriterFree, match="by task 'Task"):
            await asyncio.create_task(transfer(pool, postgres_ledger, topic, 1))
    await asyncio.to_thread(assert_equal, bootstrap, topic, postgres_ledger)
    assert postgres_ledger.rows() == [2]


async def test_writer_pool_block_that_is_committing_keeps_its_writer(
    bootstrap: str, server: PostgresServer, postgres_ledger: Ledger, topic: str
) -> None:
    async with asyncio.timeout(30), pool_of(bootstrap, server, topic, 1, **OPTIONS) as pool:
        block = pool.transaction()
        work = await asyncio.create_task(block.__aenter__())
        await asyncio.gather(work.execute(postgres_ledger.insert, (2, 5)), work.send(topic, b"2"))
        with server.connect() as other:
            other.execute("SELECT * FROM oncelog_decisions FOR UPDATE")
            ending = asyncio.create_task(block.__aexit__(None, None, None), name="the end")
            await asyncio.sleep(0)  # the block's end has begun
            with pytest.raises(NoWriterFree, match="by task 'the end'"):
                await transfer(pool, postgres_ledger, topic, 1)
        await ending
    await asyncio.to_thread(assert_equal, bootstrap, topic, postgres_ledger)
    assert postgres_ledger.rows() == [2]


def test_writer_pool_block_that_works_in_other_threads_keeps_its_writer(
    bootstrap: str, server: PostgresServer, postgres_ledger: Ledger, topic: str
) -> None:
    pool, refused = BlockingWriterPool(bootstrap, topic, 1, server.connect, **OPTIONS), list[Any]()

    def transfers() -> None:
        with pytest.raises(NoWriterFree) as told:
            blocking_transfer(pool, postgres_ledger, topic, 1)
        refused.append(told.value)

    with pool, pool.transaction() as work:

        def insert_and_send() -> None:
            work.execute(postgres_ledger.insert, (2, 5))
            work.send(topic, b"2")

        for target in (insert_and_send, transfers):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
        assert "by thread 'MainThread'" in str(refused[0])
    assert_equal(bootstrap, topic, postgres_ledger)
    assert postgres_ledger.rows() == [2]


def test_pool_writer_stays_taken_while_another_thread_commits_its_transaction(
    bootstrap: str, server: PostgresServer, postgres_ledger: Ledger, topic: str
) -> None:
    with BlockingWriterPool(bootstrap, topic, 1, server.connect, **OPTIONS) as pool:
        block, entered = pool.transaction(), list[Any]()

        def enter() -> None:
            entered.append(block.__enter__())
            entered[0].execute(postgres_ledger.insert, (2, 5))
            entered[0].send(topic, b"2")

        entering = threading.Thread(target=enter)
        entering.start()
        entering.join()
        with server.connect() as other:
            other.execute("SELECT * FROM oncelog_decisions FOR UPDATE")
            ending = threading.Thread(target=lambda: block.__exit__(None, None, None), name="end")
            ending.start()
            until(lambda: "'end'" in str(pool._names.slots[0].holder))
            with pytest.raises(NoWriterFree, match="by thread 'end'"):
                blocking_transfer(pool, postgres_ledger, topic, 1)
        ending.join()
    assert_equal(bootstrap, topic, postgres_ledger)
    assert postgres_ledger.rows() == [2]
