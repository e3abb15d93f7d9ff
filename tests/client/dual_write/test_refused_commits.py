"""Test COMMITs that the database refuses. The caller gets the error of the database module."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import BlockingDualWriter, BlockingOutboxWriter, OutboxWriter
from oncelog.client.adapters import asyncpg as adapter
from oncelog.client.dual_write.stop_words import DecisionInDoubt

from .ledger import Ledger, assert_equal
from .postgresql import PostgresServer
from .test_other_modules import other

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("dual_write")]
__all__ = ["other"]
DEFERRED = "DEFERRABLE INITIALLY DEFERRED"
CHILDREN = f"CREATE TABLE children (of INTEGER REFERENCES transfers (number) {DEFERRED})"
ORPHAN = "INSERT INTO children VALUES (99)"
LATE_REFUSAL = f"""
CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.amount < 0 THEN
        RAISE EXCEPTION 'refused' USING ERRCODE = 'STATE';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER refuses AFTER INSERT ON transfers
    {DEFERRED} FOR EACH ROW EXECUTE FUNCTION refuse();
"""


def executed(ledger: Ledger, *statements: str) -> None:
    connection = ledger.connect()
    for sql in statements:
        connection.cursor().execute(sql)
    connection.commit()
    connection.close()


@pytest.fixture
def strict(database: str, request: pytest.FixtureRequest) -> Ledger:
    """Return transfers with a child table that has a foreign key checked at the commit."""

    def connect() -> Any:
        connection = sqlite3.connect(Path(database), timeout=20)
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    if database.startswith("postgresql:"):
        made = Ledger(request.getfixturevalue("server").connect, "%s")
    else:
        made = Ledger(connect, "?")
    executed(made, "DROP TABLE IF EXISTS children")
    made.create()
    executed(made, CHILDREN)
    request.addfinalizer(lambda: executed(made, "DROP TABLE children"))
    return made


@pytest.mark.parametrize("kind", ["dual write", "outbox"])
def test_dual_write_block_that_violates_a_deferred_constraint_raises_the_database_error(
    bootstrap: str, strict: Ledger, topic: str, kind: str
) -> None:
    dual = BlockingDualWriter(bootstrap, topic, strict.connect)
    with dual if kind == "dual write" else BlockingOutboxWriter(topic, strict.connect) as writer:
        refused = pytest.raises(Exception, match=r"(?i)foreign key")
        with refused as told, writer.transaction() as work:
            work.execute(ORPHAN)
            work.send(topic, b"1")
        assert not isinstance(told.value, DecisionInDoubt)
        with writer.transaction() as work:
            work.execute(strict.insert, (2, 5))
            work.send(topic, b"2")
    if kind == "dual write":
        assert_equal(bootstrap, topic, strict)
        aborted = "SELECT count(*) FROM oncelog_decisions WHERE outcome = 'aborted'"
        assert strict.rows(f"{aborted} AND writer = '{topic}'") == [0]
    assert strict.rows() == [2]
    assert strict.rows("SELECT count(*) FROM children") == [0]


@pytest.mark.parametrize(
    ("state", "is_certain"), [("40001", True), ("40P01", True), ("40003", False), ("57014", False)]
)
def test_failed_database_commit_is_classified_as_in_doubt_or_refused_by_its_sqlstate(
    server: PostgresServer, topic: str, state: str, is_certain: bool
) -> None:
    ledger = Ledger(server.connect, "%s").create()
    executed(ledger, LATE_REFUSAL.replace("STATE", state))
    with BlockingOutboxWriter(topic, ledger.connect) as writer:
        expected: Any = Exception if is_certain else DecisionInDoubt
        with pytest.raises(expected, match="refused") as told, writer.transaction() as work:
            work.execute(ledger.insert, (1, -5))
        assert isinstance(told.value, DecisionInDoubt) is not is_certain
        with writer.transaction() as work:
            work.execute(ledger.insert, (2, 5))
    assert ledger.rows() == [2]


@pytest.mark.parametrize("other", ["pg8000"], indirect=True)
def test_sqlstate_is_read_from_pg8000(other: Ledger, topic: str) -> None:
    executed(other, LATE_REFUSAL.replace("STATE", "40001"))
    with (
        BlockingOutboxWriter(topic, other.connect) as writer,
        pytest.raises(Exception, match="refused") as told,
        writer.transaction() as work,
    ):
        work.execute(other.insert, (1, -5))
    assert not isinstance(told.value, DecisionInDoubt)
    assert other.rows() == []


async def test_sqlstate_is_read_from_asyncpg(server: PostgresServer, topic: str) -> None:
    pytest.importorskip("asyncpg", reason="asyncpg is missing (extra: test)")
    ledger = Ledger(server.connect, "%s").create()
    executed(ledger, LATE_REFUSAL.replace("STATE", "40001"))
    async with OutboxWriter(topic, adapter.connect(server.url)) as writer:
        with pytest.raises(Exception, match="refused") as told:
            async with writer.transaction() as work:
                await work.execute("INSERT INTO transfers VALUES (1, -5)")
        assert not isinstance(told.value, DecisionInDoubt)
        async with writer.transaction() as work:
            await work.execute("INSERT INTO transfers VALUES (2, 5)")
    assert await asyncio.to_thread(ledger.rows) == [2]


def test_sqlite_commit_of_a_locked_database_raises_the_database_error(
    tmp_path: Path, topic: str
) -> None:
    ledger = Ledger(lambda: sqlite3.connect(tmp_path / "ledger", timeout=0.1), "?").create()
    with BlockingOutboxWriter(topic, ledger.connect) as writer:
        reader = ledger.connect()
        with pytest.raises(sqlite3.OperationalError, match="locked"), writer.transaction() as work:
            work.execute(ledger.insert, (1, 5))
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM transfers").fetchall()
        reader.close()
        with writer.transaction() as work:
            work.execute(ledger.insert, (2, 5))
    assert ledger.rows() == [2]
