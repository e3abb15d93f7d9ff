"""A table in place of a topic of outputs."""

import sqlite3
from pathlib import Path

import pytest

from oncelog.deploy.cluster.failure import Failure
from oncelog.deploy.prove.outputs.database import DatabaseOutputs


def test_rows_are_outputs_whose_key_is_the_id(tmp_path: Path) -> None:
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


def test_rows_of_a_run_before_are_no_outputs(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    "url",
    ["mysql://h/d?table=t&id=i", "sqlite:///f?table=t", "sqlite:///f?table=t;drop&id=i", "f"],
)
def test_what_is_no_sink_is_refused(url: str) -> None:
    with pytest.raises(Failure, match="--sink") as refused:
        DatabaseOutputs(url)
    assert refused.value.exit_code == 2
