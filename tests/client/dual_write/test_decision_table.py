"""Test the decision table in a real database, and when a resolver may answer `aborted`."""

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from oncelog.client import DatabaseResolver
from oncelog.client.dual_write import decision_table, steps
from oncelog.client.dual_write.database import Dialect, run
from oncelog.client.dual_write.decision_table import TABLE, Script
from oncelog.client.dual_write.flow import drive
from oncelog.client.dual_write.names import session_id
from oncelog.client.dual_write.steps import DecidedOutcome, TransactionKey
from oncelog.client.dual_write.stop_words import WriterSuperseded

from .ledger import Ledger, sqlite_ledger

KEY = TransactionKey(session_id("bank", "0badcafe", b"\0" * 8), 7, 3)
ABORTED = f"SELECT count(*) FROM {TABLE} WHERE outcome = 'aborted'"


def done(ledger: Ledger, script: Script[Any], *, commits: bool = False) -> Any:
    connection = ledger.connect()
    found = drive(run(script, connection, Dialect(connection)))
    if commits:
        connection.commit()
    connection.close()
    return found


def claimed(ledger: Ledger, key: TransactionKey = KEY) -> steps.Claimed:
    return done(ledger, decision_table.claim(steps.Claim("bank", key.transactional_id)))


@pytest.fixture
def table(tmp_path: Path) -> Ledger:
    found = sqlite_ledger(tmp_path / "ledger")
    done(found, decision_table.create_tables())
    assert done(found, decision_table.database_id("0badcafe")) == "0badcafe"
    assert done(found, decision_table.database_id("1badcafe")) == "0badcafe"
    return found


def asked(ledger: Ledger, key: TransactionKey = KEY) -> steps.OutcomeRead:
    return done(ledger, decision_table.read_or_abort(key))


def test_decision_table_asked_about_a_session_of_another_database_aborts_no_transaction(
    table: Ledger,
) -> None:
    """A writer with the same name may use another database, where `aborted` cannot stop it."""
    claimed(table)
    other = TransactionKey(session_id("bank", "1badcafe", b"\0" * 8), 7, 3)
    assert asked(table, other) == steps.OutcomeRead(None)
    assert table.rows(ABORTED) == [0]
    assert asked(table) == steps.OutcomeRead(DecidedOutcome.ABORTED)
    assert table.rows(ABORTED) == [1]


async def test_database_resolver_asked_about_a_transaction_of_an_ended_session_answers_aborted(
    table: Ledger,
) -> None:
    """The writer was slow before InitProducerId, and died after it prepared the transaction.

    Only a check-back can end this transaction.
    """
    claimed(table)
    claimed(table, TransactionKey(session_id("bank", "0badcafe", b"\1" * 8), 0, 0))
    done(table, decision_table.delete_session(KEY.transactional_id))
    assert asked(table) == steps.OutcomeRead(None, is_session_over=True)
    resolver = DatabaseResolver(table.connect)
    assert await resolver.resolve(KEY) is DecidedOutcome.ABORTED
    await resolver.close()
    with pytest.raises(WriterSuperseded):
        done(table, decision_table.decide(steps.Decide("bank", KEY, 1)))
    assert table.rows(ABORTED) == [0], "rows of sessions that are over would stay for ever"


def test_decision_table_asked_about_a_completed_transaction_does_not_abort_it(
    table: Ledger,
) -> None:
    """The owner lost the answer to COMMIT and was slow, but the transaction is committed."""
    generation = claimed(table).generation
    done(table, decision_table.decide(steps.Decide("bank", KEY, generation)), commits=True)
    assert asked(table) == steps.OutcomeRead(DecidedOutcome.COMMITTED)
    claimed(table, TransactionKey(session_id("bank", "0badcafe", b"\1" * 8), 0, 0))
    done(table, decision_table.delete_session(KEY.transactional_id))
    assert asked(table) == steps.OutcomeRead(None, is_session_over=True)


def test_read_decisions_returns_committed_keys_with_records_in_order(table: Ledger) -> None:
    generation = claimed(table).generation
    keys = [TransactionKey(KEY.transactional_id, 7, epoch) for epoch in (10, 9, 2)]
    empty = TransactionKey(KEY.transactional_id, steps.EMPTY, 1)
    for key in (*keys, empty):
        decide = steps.Decide("bank", key, generation)
        done(table, decision_table.decide(decide), commits=True)
    assert asked(table) == steps.OutcomeRead(DecidedOutcome.ABORTED)
    found = done(table, decision_table.script_of(steps.ReadDecisions(KEY.transactional_id)))
    assert found == steps.DecisionsRead(tuple(sorted(keys)))


class Slow(sqlite3.Connection):
    """A SQLite connection with a commit that is a coroutine and waits for the test."""

    begun: asyncio.Event
    may_go: asyncio.Event

    async def commit(self) -> None:  # type: ignore[override]
        self.begun.set()
        await self.may_go.wait()
        super().commit()


def slow_resolver(ledger: Ledger) -> tuple[DatabaseResolver, asyncio.Event, asyncio.Event]:
    begun, may_go = asyncio.Event(), asyncio.Event()
    (file,) = ledger.rows("SELECT file FROM pragma_database_list")

    def connect() -> Slow:
        connection = sqlite3.connect(file, timeout=5, factory=Slow)
        connection.begun, connection.may_go = begun, may_go
        return connection

    return DatabaseResolver(connect), begun, may_go


async def test_database_resolver_with_a_cancelled_insert_inserts_at_the_next_question(
    table: Ledger,
) -> None:
    claimed(table)
    resolver, begun, may_go = slow_resolver(table)
    asking = asyncio.create_task(resolver.resolve(KEY))
    await begun.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    may_go.set()
    assert await resolver.resolve(KEY) is DecidedOutcome.ABORTED
    assert table.rows(ABORTED) == [1], "an answer that the table does not keep"
    await resolver.close()


async def test_database_resolver_asked_twice_concurrently_answers_sequentially(
    table: Ledger,
) -> None:
    claimed(table)
    resolver, begun, may_go = slow_resolver(table)
    first = asyncio.create_task(resolver.resolve(KEY))
    await begun.wait()
    second = asyncio.create_task(resolver.resolve(KEY))
    for _ in range(20):
        await asyncio.sleep(0)
    may_go.set()
    assert await asyncio.gather(first, second) == [DecidedOutcome.ABORTED] * 2
    assert table.rows(ABORTED) == [1], "an answer that the table does not keep"
    await resolver.close()
