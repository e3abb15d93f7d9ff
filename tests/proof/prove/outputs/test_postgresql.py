"""Test that a real run of `prove` judges the rows of a PostgreSQL table."""

import sys
import threading
from pathlib import Path

import pytest

import oncelog
from oncelog.proof.prove.outputs import database

from ....client.dual_write.postgresql import postgresql

psycopg = pytest.importorskip("psycopg")
PROGRAM = Path(__file__).parent.parent / "programs" / "into_database.py"


@pytest.mark.cluster
@pytest.mark.in_turn
def test_postgresql_table_is_judged_as_output(oncelog_cluster: oncelog.Cluster) -> None:
    with postgresql() as server:
        outcome = oncelog.prove(
            [sys.executable, str(PROGRAM)], inputs="rows-in", outputs=(), instances=1,
            bootstrap=oncelog_cluster.bootstrap, faults="kill@before-commit",
            sink=f"{server.url}?table=invoices&id=order_id", environment={"DATABASE": server.url},
        )  # fmt: skip
    assert outcome.verdict.name == "AT LEAST ONCE", outcome
    assert [found.kind.name for found in outcome.findings] == ["sink-not-atomic"]


def test_postgresql_table_that_stays_locked_is_waited_for_only_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The open transaction of a paused instance may lock the table."""
    monkeypatch.setattr(database, "QUERY_TIMEOUT_S", 0.3)
    with postgresql() as server:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE invoices (order_id TEXT)")
        outputs = database.DatabaseOutputs(f"{server.url}?table=invoices&id=order_id")
        with psycopg.connect(server.url) as connection:
            connection.execute("LOCK TABLE invoices")
            looking = threading.Thread(target=outputs.look, daemon=True)
            looking.start()
            looking.join(5)
            assert not looking.is_alive() and "timeout" in outputs.problem
        assert outputs.look()
