"""Test dual writes with database modules that the code does not know, through the DB-API."""

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from oncelog.client import BlockingDualWriter
from oncelog.client.dual_write.stop_words import BlockNotWhole, UnsafeDatabase

from .ledger import Ledger, assert_equal

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]


@pytest.fixture(params=["pg8000", "pysqlite3"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Ledger:
    """Return a table of transfers, in PostgreSQL through pg8000 or in SQLite through pysqlite3."""
    if request.param == "pysqlite3":
        pysqlite3: Any = pytest.importorskip("pysqlite3", reason="pysqlite3 is not installed")
        return Ledger(lambda: pysqlite3.connect(tmp_path / "ledger", timeout=20), "?").create()
    pg8000: Any = pytest.importorskip("pg8000.dbapi", reason="pg8000 is not installed")
    at = urlsplit(request.getfixturevalue("server").url)

    def connect() -> Any:
        where = {"host": at.hostname, "port": at.port, "database": at.path[1:]}
        return pg8000.connect(user=at.username, **where)

    return Ledger(connect, "%s").create()


def transfer(writer: BlockingDualWriter, ledger: Ledger, topic: str, number: int) -> None:
    with writer.transaction() as work:
        work.execute(ledger.insert, (number, 5))
        work.send(topic, b"%d" % number)


def test_dbapi_module_block_commits_both_rows_and_events_or_neither(
    bootstrap: str, other: Ledger, topic: str
) -> None:
    with BlockingDualWriter(bootstrap, topic, other.connect) as writer:
        transfer(writer, other, topic, 0)
        with pytest.raises(Exception, match=r"(?i)unique"), writer.transaction() as work:
            work.send(topic, b"0")
            work.execute(other.insert, (0, 5))
        with pytest.raises(BlockNotWhole), writer.transaction() as work:
            work.send(topic, b"1")
            work.connection.commit()
        transfer(writer, other, topic, 2)
    with BlockingDualWriter(bootstrap, topic, other.connect) as writer:
        transfer(writer, other, topic, 3)
    assert_equal(bootstrap, topic, other)
    assert other.rows() == [0, 2, 3]


def test_dbapi_module_block_with_a_refused_decision_commits_no_row(
    bootstrap: str, other: Ledger, topic: str
) -> None:
    """RELEASE of the savepoint must not commit, since the decision after it may be refused."""
    with BlockingDualWriter(bootstrap, topic, other.connect) as writer:
        transfer(writer, other, topic, 0)
        thief = other.connect()
        thief.cursor().execute("UPDATE oncelog_decisions SET generation = generation + 1")
        thief.commit()
        thief.close()
        with pytest.raises(Exception, match="superseded"):
            transfer(writer, other, topic, 1)
    assert other.rows() == [0]


def test_dbapi_module_connection_in_autocommit_is_refused(
    bootstrap: str, other: Ledger, topic: str
) -> None:
    connection = other.connect()
    if hasattr(connection, "in_transaction"):
        connection.isolation_level = None
    else:
        connection.autocommit = True
    with pytest.raises(UnsafeDatabase, match="autocommit"):
        BlockingDualWriter(bootstrap, topic, connection).start()
    connection.close()


def test_dbapi_module_connection_with_a_setting_that_loses_commits_is_refused(
    bootstrap: str, other: Ledger, topic: str
) -> None:
    connection = other.connect()
    if hasattr(connection, "in_transaction"):
        connection.execute("PRAGMA synchronous=OFF")
    else:
        connection.cursor().execute("SET synchronous_commit=off")
        connection.commit()
    with pytest.raises(UnsafeDatabase, match="synchronous"):
        BlockingDualWriter(bootstrap, topic, connection).start()
    connection.close()
