"""Test `prove` with a database table as output instead of a topic."""

import sqlite3
import threading
from pathlib import Path

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.proof.prove.outputs.database import DatabaseOutputs


def test_database_rows_are_outputs_keyed_by_their_id(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    outputs = DatabaseOutputs(f"sqlite:///{file}?table=invoices&id=order_id")
    outputs.look()
    assert outputs.records == [] and "invoices cannot be read" in outputs.problem
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE invoices (order_id TEXT, amount INT)")
    connection.executemany("INSERT INTO invoices VALUES (?, 1)", [("b",), ("a",), ("b",)])
    connection.commit()
    connection.close()
    before = outputs.moved_at_s
    outputs.look()
    assert [record.key for record in outputs.records] == [b"a", b"b", b"b"]
    assert outputs.problem == "" and outputs.moved_at_s > before
    again = outputs.moved_at_s
    outputs.look()
    assert outputs.moved_at_s == again


def test_database_rows_of_an_earlier_run_are_no_outputs(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE invoices (order_id TEXT)")
    connection.executemany("INSERT INTO invoices VALUES (?)", [("old",), ("old",)])
    connection.commit()
    outputs = DatabaseOutputs(f"sqlite:///{file}?table=invoices&id=order_id")
    outputs.start()
    try:
        connection.executemany("INSERT INTO invoices VALUES (?)", [("old",), ("new",)])
        connection.commit()
        connection.close()
        outputs.look()
        assert [record.key for record in outputs.records] == [b"new", b"old"]
    finally:
        outputs.close()


def test_database_table_that_exists_and_cannot_be_read_raises(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE invoices (order_id TEXT)")
    connection.close()
    outputs = DatabaseOutputs(f"sqlite:///{file}?table=invoices&id=no_such_column")
    with pytest.raises(Failure, match="invoices cannot be read: no such column") as refused:
        outputs.start()
    assert refused.value.exit_code == 2


def test_database_reading_that_began_earlier_does_not_replace_a_newer_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = DatabaseOutputs(f"sqlite:///{tmp_path}/shop.db?table=invoices&id=order_id")
    asked, answered = threading.Event(), threading.Event()
    is_first = iter([True])

    def query() -> list[str]:
        if next(is_first, False):  # the query sees the earlier rows, and is slow
            asked.set()
            answered.wait(0.5)
            return ["a"]
        return ["a", "b"]

    monkeypatch.setattr(outputs, "_query", query)
    slow = threading.Thread(target=outputs.look)
    slow.start()
    assert asked.wait(10)
    outputs.look()
    answered.set()
    slow.join(10)
    assert [record.key for record in outputs.records] == [b"a", b"b"]


@pytest.mark.parametrize(
    "url",
    ["mysql://h/d?table=t&id=i", "sqlite:///f?table=t", "sqlite:///f?table=t;drop&id=i", "f"],
)
def test_database_sink_with_a_malformed_address_is_refused(url: str) -> None:
    with pytest.raises(Failure, match="--sink") as refused:
        DatabaseOutputs(url)
    assert refused.value.exit_code == 2
