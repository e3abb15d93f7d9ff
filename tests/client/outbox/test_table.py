"""Test the SQL by which a relay claims an outbox, and reads and deletes its batches."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.client.dual_write.database import Dialect, run
from oncelog.client.dual_write.flow import drive
from oncelog.client.outbox import table

SESSION = "ab" * 8


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(tmp_path / "outbox")
    run_script(opened, table.create_tables())
    yield opened
    opened.close()


def run_script(connection: sqlite3.Connection, script: Any) -> Any:
    return drive(run(script, connection, Dialect(connection)))


def write(connection: sqlite3.Connection, count: int) -> None:
    for number in range(1, count + 1):
        row = table.Row(SESSION, number, number // 3, "topic", "{}")
        run_script(connection, table.insert("bank", row))
    connection.commit()


def test_outbox_batch_is_read_and_deleted_by_the_key_of_the_table(
    connection: sqlite3.Connection,
) -> None:
    """Without the key each batch would scan and sort the waiting rows of every outbox."""
    write(connection, 20)
    generation, _ = run_script(connection, table.claim("bank"))
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    rows = run_script(connection, table.next_batch("bank", generation, 1, 5))
    run_script(connection, table.delete_batch("bank", 1, rows))
    connection.set_trace_callback(None)
    plans = [
        f"{step[3]}: {text}"
        for text in asked
        if f"{table.TABLE} " in text
        for step in connection.execute(f"EXPLAIN QUERY PLAN {text}")
    ]
    assert len(plans) == 8
    assert [each for each in plans if "SCAN" in each or "TEMP B-TREE" in each] == []
    assert [each for each in plans if "created_ms" not in each.partition(":")[0]] == plans[:1]


def test_outbox_delete_batch_deletes_only_rows_of_that_batch(
    connection: sqlite3.Connection,
) -> None:
    write(connection, 8)
    generation, _ = run_script(connection, table.claim("bank"))
    first = run_script(connection, table.next_batch("bank", generation, 1, 4))
    assert [each.number for each in first] == [1, 2, 3, 4]
    late = table.Row("cd" * 8, 1, 0, "topic", "{}")  # its transaction commits after the other rows
    run_script(connection, table.insert("bank", late))
    connection.commit()
    run_script(connection, table.delete_batch("bank", 1, first))
    rows = run_script(connection, table.next_batch("bank", generation, 2, 10))
    assert [(each.created_ms, each.number) for each in rows] == [
        (0, 1), (1, 5), (2, 6), (2, 7), (2, 8)
    ]  # fmt: skip


def test_outbox_batch_is_bounded_in_bytes_and_has_at_least_one_row(
    connection: sqlite3.Connection,
) -> None:
    for number, size in enumerate((10, 20, 30, 1000, 5), 1):
        run_script(connection, table.insert("bank", table.Row(SESSION, number, 0, "t", "x" * size)))
    connection.commit()
    generation, _ = run_script(connection, table.claim("bank"))
    batches = [
        run_script(connection, table.next_batch("bank", generation, batch, 10, 60))
        for batch in range(1, 5)
    ]
    assert [[row.number for row in rows] for rows in batches] == [[1, 2, 3], [4], [5], []]


def test_outbox_relay_that_repeats_its_claim_after_a_newer_claim_is_superseded(
    connection: sqlite3.Connection,
) -> None:
    older, _ = run_script(connection, table.claim("bank"))
    again, _ = run_script(connection, table.claim("bank", older))
    newer, _ = run_script(connection, table.claim("bank"))
    with pytest.raises(table.RelaySuperseded):
        run_script(connection, table.claim("bank", again))
    assert run_script(connection, table.read_generation("bank")) == newer
    connection.execute(f"DELETE FROM {table.RELAYS}")  # the table was created again
    connection.commit()
    assert run_script(connection, table.read_generation("bank")) == 0
    assert run_script(connection, table.claim("bank", again))[0] == 1
