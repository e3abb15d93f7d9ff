"""A table of PostgreSQL, judged in a real run."""

import sys
from pathlib import Path

import pytest

import oncelog

from ....client.dual_write.postgresql import postgresql

PROGRAM = Path(__file__).parent.parent / "programs" / "into_database.py"


@pytest.mark.cluster
def test_a_table_of_postgresql_is_judged(oncelog_cluster: oncelog.Cluster) -> None:
    with postgresql() as server:
        outcome = oncelog.prove(
            [sys.executable, str(PROGRAM)], inputs="rows-in", outputs=(), instances=1,
            bootstrap=oncelog_cluster.bootstrap, faults="kill@before-commit",
            sink=f"{server.url}?table=invoices&id=order_id", environment={"DATABASE": server.url},
        )  # fmt: skip
    assert outcome.verdict.name == "AT LEAST ONCE", outcome
    assert [found.kind.name for found in outcome.findings] == ["sink-not-atomic"]
