"""Test that a block takes effect in a real cluster and a database, or in neither."""

import asyncio
import sqlite3
import sys
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import BlockingAdmin, BlockingConsumer, BlockingDualWriter, DualWriter
from oncelog.client.dual_write.stop_words import (
    BlockNotWhole,
    UnsafeDatabase,
    WriterSuperseded,
)
from oncelog.client.failures import IllegalProducerState
from oncelog.wire.errors import InvalidConfig, InvalidRequest, KafkaError

from ...programs import printed_by
from .ledger import Ledger, assert_equal, events, sqlite_ledger
from .postgresql import PostgresServer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]


def transfer(writer: BlockingDualWriter, ledger: Ledger, topic: str, number: int) -> None:
    with writer.transaction() as work:
        work.execute(ledger.insert, (number, 5))
        work.send(topic, b"%d" % number)


def test_dual_write_block_commits_both_rows_and_events_or_neither(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    with BlockingDualWriter(bootstrap, topic, ledger.connect) as writer:
        for number in range(5):
            transfer(writer, ledger, topic, number)
        with pytest.raises(ZeroDivisionError), writer.transaction() as work:
            work.execute(ledger.insert, (5, 5))
            work.send(topic, b"5").result(timeout_s=20)
            raise ZeroDivisionError
        with pytest.raises(Exception, match=r"(?i)unique"), writer.transaction() as work:
            work.send(topic, b"0")
            work.execute(ledger.insert, (0, 5))
        with pytest.raises(KafkaError, match="has partitions"), writer.transaction() as work:
            work.execute(ledger.insert, (6, 5))
            work.send(topic, b"6", partition=9)
        with writer.transaction() as work:  # no records
            work.execute(ledger.insert, (100, 5))
        with writer.transaction() as work:
            work.execute("DELETE FROM transfers WHERE number = 100")
        with writer.transaction() as work:
            pass
        transfer(writer, ledger, topic, 7)
    assert_equal(bootstrap, topic, ledger)
    assert events(bootstrap, topic) == [0, 1, 2, 3, 4, 7]
    committed = "SELECT count(*) FROM oncelog_decisions WHERE outcome = 'committed'"
    assert ledger.rows(f"{committed} AND writer = '{topic}'") == [1], "old rows are deleted"


async def test_asynchronous_dual_write_block_commits_both_rows_and_events_or_neither(
    bootstrap: str, server: PostgresServer, topic: str, tmp_path: Path
) -> None:
    import psycopg

    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(server.url)

    postgres = Ledger(server.connect, "%s").create()
    sqlite = sqlite_ledger(tmp_path / "ledger").create()
    for name, ledger, given in (("p", postgres, connect), ("s", sqlite, sqlite.connect)):
        async with DualWriter(bootstrap, f"{topic}-{name}", given) as writer:
            for number in range(3):
                async with writer.transaction() as work:
                    await work.execute(ledger.insert, (number, 5))
                    await work.send_many(topic, [b"%d" % number])
            with pytest.raises(ZeroDivisionError):
                async with writer.transaction() as work:
                    await work.execute(ledger.insert, (5, 5))
                    await work.send(topic, b"5")
                    raise ZeroDivisionError
        assert ledger.rows() == [0, 1, 2]
    found = await asyncio.to_thread(events, bootstrap, topic)
    assert found == [0, 0, 1, 1, 2, 2]


def test_writer_offsets_in_the_database_resume_a_consumer_after_a_failed_block(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    """The offsets are in the database, so a consumer reads the record of a failed block again."""
    source = f"{topic}.in"
    with BlockingAdmin(bootstrap) as admin:
        admin.create_topic(source, partitions=1)
    with BlockingDualWriter(bootstrap, f"{topic}.feed", ledger.connect) as feed:
        for number in range(6):
            with feed.transaction() as work:
                work.send(source, b"%d" % number)
    for fails_at in (3, None):
        consumer = BlockingConsumer(
            bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
        )
        with BlockingDualWriter(bootstrap, topic, ledger.connect) as writer, consumer:
            consumer.assign([(source, 0)])
            for (name, partition), at in writer.positions().items():
                consumer.seek(name, partition, at)
            count = len(ledger.rows())
            while count < 6:
                for record in consumer.poll(timeout_ms=500):
                    number = int(record.value or b"")
                    try:
                        with writer.transaction() as work:
                            work.execute(ledger.insert, (number, 5))
                            work.send(topic, record.value)
                            work.consumed(record.topic, record.partition, record.offset + 1)
                            if number == fails_at:
                                raise ZeroDivisionError
                    except ZeroDivisionError:
                        count = 6
                        break
                    count += 1
    assert ledger.rows() == list(range(6))
    assert_equal(bootstrap, topic, ledger)


def test_newest_writer_of_a_name_supersedes_older_writers(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    with BlockingDualWriter(bootstrap, topic, ledger.connect) as old:
        transfer(old, ledger, topic, 1)
        with BlockingDualWriter(bootstrap, topic, ledger.connect) as new:
            transfer(new, ledger, topic, 2)
            with pytest.raises(WriterSuperseded, match="was superseded"):
                transfer(old, ledger, topic, 3)
            with pytest.raises(WriterSuperseded), old.transaction() as work:
                work.execute(ledger.insert, (4, 5))
            transfer(new, ledger, topic, 5)
    assert_equal(bootstrap, topic, ledger)
    assert events(bootstrap, topic) == [1, 2, 5]


def test_dual_write_block_with_a_commit_or_rollback_inside_raises(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    with BlockingDualWriter(bootstrap, topic, ledger.connect) as writer:
        for number, ends in enumerate(("commit", "rollback")):
            with pytest.raises(BlockNotWhole, match="inside"), writer.transaction() as work:
                work.send(topic, b"%d" % number)
                getattr(work.connection, ends)()
                work.execute(ledger.insert, (number, 5))
        transfer(writer, ledger, topic, 3)
        told = pytest.raises(IllegalProducerState, match="one block at a time")
        with told, writer.transaction(), writer.transaction():
            pass
        transfer(writer, ledger, topic, 4)
    assert_equal(bootstrap, topic, ledger)


def test_connection_with_a_setting_that_could_lose_a_decision_is_refused(
    bootstrap: str, server: PostgresServer, tmp_path: Path
) -> None:
    def refused(connection: Any, word: str) -> None:
        with closing(connection), pytest.raises(UnsafeDatabase, match=word):
            BlockingDualWriter(bootstrap, "refused", connection).start()

    def sqlite(pragma: str = "", **keywords: Any) -> sqlite3.Connection:
        connection = sqlite3.connect(tmp_path / "file", **keywords)
        connection.execute(f"PRAGMA {pragma}" if pragma else "SELECT 1")
        return connection

    refused(sqlite(isolation_level=None), "autocommit")
    refused(sqlite("synchronous=NORMAL"), "synchronous")
    refused(sqlite("journal_mode=MEMORY"), "journal_mode")
    refused(sqlite3.connect(":memory:"), "in memory")
    refused(server.connect(autocommit=True), "autocommit")
    refused(server.connect(options="-c synchronous_commit=off"), "synchronous_commit")
    with pytest.raises(InvalidRequest, match="no name"):
        BlockingDualWriter(bootstrap, "a b", sqlite)
    with pytest.raises(InvalidConfig, match="transactional_id"):
        BlockingDualWriter(bootstrap, "a", sqlite, transactional_id="mine")


def test_connection_with_synchronous_commit_disabled_before_the_commit_is_refused(
    bootstrap: str, server: PostgresServer, topic: str
) -> None:
    ledger = Ledger(server.connect, "%s").create()
    with BlockingDualWriter(bootstrap, topic, ledger.connect) as writer:
        told = pytest.raises(UnsafeDatabase, match="synchronous_commit")
        with told, writer.transaction() as work:
            work.execute("SET LOCAL synchronous_commit = off")
            work.execute(ledger.insert, (1, 5))
            work.send(topic, b"1")
        transfer(writer, ledger, topic, 2)
    assert_equal(bootstrap, topic, ledger)


def test_connection_with_an_open_transaction_is_refused_and_keeps_the_transaction(
    bootstrap: str, ledger: Ledger, topic: str
) -> None:
    connection = ledger.connect()

    def own_work(number: int) -> None:
        connection.cursor().execute(ledger.insert, (number, 5))

    def is_refused() -> AbstractContextManager[Any]:
        return pytest.raises(UnsafeDatabase, match="open already")

    with closing(connection):
        own_work(1)
        with is_refused(), BlockingDualWriter(bootstrap, topic, connection):
            pass
        connection.commit()
        with BlockingDualWriter(bootstrap, topic, connection) as writer:
            own_work(2)
            with is_refused(), writer.transaction():
                pass
            with is_refused():
                writer.positions()
            connection.commit()
            assert ledger.rows() == [1, 2]
            connection.cursor().execute("DELETE FROM transfers")
            connection.commit()
            transfer(writer, ledger, topic, 2)
    assert_equal(bootstrap, topic, ledger)


def test_dual_write_service_in_the_docs_runs_as_shown(bootstrap: str, tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "databases.md"
    program = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    assert len(program.splitlines()) <= 40
    (tmp_path / "service.py").write_text(program, encoding="utf-8")
    command = [sys.executable, "service.py", bootstrap, "bank.db"]
    assert printed_by(command, cwd=tmp_path).splitlines() == [
        f"transfer {number}: account 1 has not enough" for number in (10, 11)
    ]
    bank = sqlite_ledger(tmp_path / "bank.db")
    assert bank.rows("SELECT balance FROM accounts ORDER BY id") == [0, 100]
    assert events(bootstrap, "transfers") == [10] * 10
