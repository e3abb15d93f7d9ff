"""Test blocks of a blocking outbox writer with an interruption at each of their points."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from oncelog.client import BlockingOutboxWriter
from oncelog.client.dual_write import connection_flow, database, flow, work
from oncelog.client.dual_write.stop_words import BlockNotWhole, UnsafeDatabase
from oncelog.client.outbox import outbox_flow, writer

from ...interruptions import interrupted
from ..dual_write.ledger import Ledger, sqlite_ledger

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
MODULES = contextlib, connection_flow, database, flow, outbox_flow, work, writer
FILES = [str(each.__file__) for each in MODULES]


@pytest.fixture
def rows(tmp_path: Path) -> Ledger:
    return sqlite_ledger(tmp_path / "ledger").create()


def transfer(outbox: BlockingOutboxWriter, rows: Ledger, number: int) -> None:
    with outbox.transaction() as block:
        block.execute(rows.insert, (number, 5))
        block.send("transfers", b"%d" % number)


@pytest.mark.parametrize("is_given", [False, True], ids=["own", "given"])
def test_outbox_writer_continues_after_a_block_that_was_interrupted_anywhere(
    rows: Ledger, *, is_given: bool
) -> None:
    number, is_whole = 0, False
    connection = rows.connect() if is_given else rows.connect
    with BlockingOutboxWriter("outbox", connection) as outbox:
        while not is_whole:
            number += 1
            is_whole = not interrupted(lambda: transfer(outbox, rows, -number), number, FILES)  # noqa: B023
            transfer(outbox, rows, number)
    assert number > 10
    assert [each for each in rows.rows() if each > 0] == list(range(1, number + 1))
    assert len(rows.rows()) == rows.rows("SELECT count(*) FROM oncelog_outbox")[0]


def test_outbox_close_after_an_interrupted_block_ends_the_transaction_of_a_given_connection(
    rows: Ledger,
) -> None:
    number, is_whole = 0, False
    connection: sqlite3.Connection = rows.connect()
    while not is_whole:
        number += 1
        with BlockingOutboxWriter("outbox", connection) as outbox:
            is_whole = not interrupted(lambda: transfer(outbox, rows, number), number, FILES)  # noqa: B023
        assert not connection.in_transaction, number
    connection.close()


def test_outbox_block_after_a_failed_block_leaves_statements_of_the_application(
    rows: Ledger,
) -> None:
    connection: sqlite3.Connection = rows.connect()
    with BlockingOutboxWriter("outbox", connection) as outbox:
        with pytest.raises(ZeroDivisionError), outbox.transaction() as block:
            block.execute(rows.insert, (1, 5))
            raise ZeroDivisionError
        with pytest.raises(BlockNotWhole), outbox.transaction() as block:
            block.execute(rows.insert, (2, 5))
            connection.rollback()
        connection.execute(rows.insert, (3, 5))
        with pytest.raises(UnsafeDatabase), outbox.transaction():
            pass
        connection.commit()
    connection.close()
    assert rows.rows() == [3]
