"""Test blocks of a dual write with SQLAlchemy Core and ORM, on a real cluster."""

import asyncio
from typing import Any

import psycopg
import pytest

from oncelog.client import BlockingDualWriter, DualWriter
from oncelog.client.adapters import sqlalchemy as adapter
from oncelog.client.dual_write.stop_words import BlockNotWhole
from oncelog.client.failures import IllegalProducerState

from ..dual_write.ledger import Ledger, assert_equal
from ..dual_write.postgresql import PostgresServer

sa: Any = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is missing (extra: test)")
orm: Any = pytest.importorskip("sqlalchemy.orm")
pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]
registry = orm.registry()
table = sa.Table(
    "transfers",
    registry.metadata,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("amount", sa.Integer, nullable=False),
)


class Transfer:
    def __init__(self, number: int) -> None:
        self.number, self.amount = number, 5


registry.map_imperatively(Transfer, table)


def test_sqlalchemy_core_and_orm_writes_commit_with_the_events_of_their_block(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    with BlockingDualWriter(bootstrap, topic, ledger.connect) as writer:
        for number in (1, 3):
            with writer.transaction() as work:
                with adapter.connection(work) as bound:
                    bound.execute(sa.insert(table).values(number=number, amount=5))
                with adapter.session(work) as session:
                    session.add(Transfer(number + 1))
                for each in (number, number + 1):
                    work.send(topic, b"%d" % each)
        with pytest.raises(ZeroDivisionError), writer.transaction() as work:
            with adapter.session(work) as session:
                session.add(Transfer(9))
                session.commit()
            work.send(topic, b"9")
            raise ZeroDivisionError
        with writer.transaction() as work, adapter.session(work) as session:
            session.add(Transfer(8))
            session.flush()
            session.rollback()
            session.add(Transfer(5))
            work.send(topic, b"5")
        with pytest.raises(Exception, match=r"(?i)unique"), writer.transaction() as work:
            with adapter.session(work) as session:
                session.add(Transfer(1))
            work.send(topic, b"1")
    assert_equal(bootstrap, topic, ledger)
    assert ledger.rows() == [1, 2, 3, 4, 5]


def insert(number: int) -> Any:
    return sa.insert(table).values(number=number, amount=5)


def test_sqlalchemy_rollback_removes_its_rows_from_the_block(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    with BlockingDualWriter(bootstrap, topic, ledger.connect) as writer:
        with writer.transaction() as work:
            with adapter.connection(work) as bound:
                bound.execute(insert(1))
                bound.rollback()
            for opens, number in ((adapter.connection, 2), (adapter.session, 3)):
                with pytest.raises(ZeroDivisionError), opens(work) as bound:
                    bound.execute(insert(number))
                    raise ZeroDivisionError
            with pytest.raises(sa.exc.IntegrityError), adapter.connection(work) as bound:
                bound.execute(insert(4))
                bound.execute(insert(4))
            with adapter.connection(work) as bound:
                with pytest.raises(ZeroDivisionError), bound.begin_nested():
                    bound.execute(insert(5))
                    raise ZeroDivisionError
                bound.execute(insert(6))
            work.send(topic, b"6")
        with pytest.raises(BlockNotWhole), writer.transaction() as work:
            with adapter.connection(work) as bound:
                work.connection.rollback()
            work.send(topic, b"7")
    assert_equal(bootstrap, topic, ledger)
    assert ledger.rows() == [6]


def test_sqlalchemy_second_session_of_a_block_is_refused_while_the_first_is_open(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    with BlockingDualWriter(bootstrap, topic, ledger.connect) as writer:
        with writer.transaction() as work, adapter.session(work) as first:
            first.execute(insert(1))
            for opens in (adapter.session, adapter.connection):
                with pytest.raises(IllegalProducerState, match="one at a time"), opens(work):
                    pass
            first.rollback()
            first.execute(insert(2))
            work.send(topic, b"2")
        with writer.transaction() as work, adapter.session(work) as again:
            again.execute(insert(3))
            work.send(topic, b"3")
    assert_equal(bootstrap, topic, ledger)
    assert ledger.rows() == [2, 3]


async def test_sqlalchemy_asyncio_rollback_removes_its_rows_from_the_block(
    bootstrap: str, server: PostgresServer, topic: str
) -> None:
    ledger = Ledger(server.connect, "%s").create()

    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(server.url)

    async with DualWriter(bootstrap, topic, connect) as writer, writer.transaction() as work:
        async with adapter.async_connection(work) as bound:
            await bound.execute(insert(1))
            await bound.rollback()
        for opens, number in ((adapter.async_connection, 2), (adapter.async_session, 3)):
            with pytest.raises(ZeroDivisionError):
                async with opens(work) as bound:
                    await bound.execute(insert(number))
                    raise ZeroDivisionError
        async with adapter.async_session(work) as session:
            with pytest.raises(IllegalProducerState, match="one at a time"):
                async with adapter.async_connection(work):
                    pass
            session.add(Transfer(4))
            await work.send(topic, b"4")
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)
    assert ledger.rows() == [4]


async def test_sqlalchemy_asyncio_block_cancelled_in_a_session_commits_neither_rows_nor_events(
    bootstrap: str, server: PostgresServer, topic: str
) -> None:
    ledger = Ledger(server.connect, "%s").create()

    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(server.url)

    async with DualWriter(bootstrap, topic, connect) as writer:
        async with writer.transaction() as work, adapter.async_connection(work) as bound:
            await bound.execute(sa.insert(table).values(number=1, amount=5))
            await work.send(topic, b"1")
        with pytest.raises(TimeoutError):
            async with (
                asyncio.timeout(0.05),
                writer.transaction() as work,
                adapter.async_session(work) as session,
            ):
                session.add(Transfer(2))
                await work.send(topic, b"2")
                await session.execute(sa.text("SELECT pg_sleep(30)"))
        async with writer.transaction() as work, adapter.async_session(work) as session:
            session.add(Transfer(3))
            await work.send(topic, b"3")
    await asyncio.to_thread(assert_equal, bootstrap, topic, ledger)
    assert ledger.rows() == [1, 3]
