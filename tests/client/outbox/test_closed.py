"""Test that the close of a blocking outbox writer spares a block of another thread."""

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oncelog.client import BlockingOutboxWriter
from oncelog.client.failures import ClientClosed

from ..dual_write.ledger import Ledger, sqlite_ledger


class Connection(sqlite3.Connection):
    """A connection that any thread may use, with a step before its next COMMIT."""

    before_commit: Callable[[], object] | None = None

    def commit(self) -> None:
        step, self.before_commit = self.before_commit, None
        if step is not None:
            step()
        super().commit()


@pytest.fixture
def rows(tmp_path: Path) -> Ledger:
    return sqlite_ledger(tmp_path / "ledger").create()


@pytest.fixture
def connection(rows: Ledger, tmp_path: Path) -> Connection:
    return sqlite3.connect(tmp_path / "ledger", factory=Connection, check_same_thread=False)


def close_elsewhere(outbox: BlockingOutboxWriter) -> None:
    closing = threading.Thread(target=outbox.close)
    closing.start()
    closing.join()


def test_outbox_block_that_is_committing_at_a_close_of_another_thread_commits_its_rows(
    rows: Ledger, connection: Connection
) -> None:
    with BlockingOutboxWriter("outbox", connection) as outbox:
        with outbox.transaction() as block:
            block.execute(rows.insert, (1, 5))
            block.send("transfers", b"1")
            connection.before_commit = lambda: close_elsewhere(outbox)
        assert rows.rows() == [1]
        assert rows.rows("SELECT count(*) FROM oncelog_outbox") == [1]
    connection.close()


def test_outbox_block_whose_writer_was_closed_meanwhile_is_rolled_back(
    rows: Ledger, connection: Connection
) -> None:
    outbox = BlockingOutboxWriter("outbox", connection)
    outbox.start()
    with pytest.raises(ClientClosed), outbox.transaction() as block:
        block.execute(rows.insert, (1, 5))
        close_elsewhere(outbox)
        block.execute(rows.insert, (2, 5))
    assert not connection.in_transaction
    connection.close()
    assert rows.rows() == []


def test_outbox_block_whose_writer_was_closed_meanwhile_holds_no_lock_of_its_own_connection(
    rows: Ledger,
) -> None:
    outbox = BlockingOutboxWriter("outbox", rows.connect)
    outbox.start()
    with pytest.raises(ClientClosed), outbox.transaction() as block:
        block.execute(rows.insert, (1, 5))
        close_elsewhere(outbox)
    with BlockingOutboxWriter("outbox", rows.connect) as other, other.transaction() as block:
        block.execute(rows.insert, (2, 5))
    assert rows.rows() == [2]


def test_outbox_writer_closed_during_a_block_starts_again_in_another_thread(rows: Ledger) -> None:
    outbox = BlockingOutboxWriter("outbox", rows.connect)
    outbox.start()
    with pytest.raises(ClientClosed), outbox.transaction():
        close_elsewhere(outbox)
    assert outbox.connection is None
    with ThreadPoolExecutor() as another:
        another.submit(outbox.start).result()
        another.submit(outbox.close).result()
