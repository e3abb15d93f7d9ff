"""Test that the demo leaves other sessions of its database alone."""

import os

import pytest

from oncelog.proof.demo.transfers.database import database_at

from ....client.dual_write.postgresql import postgresql


def test_demo_database_cleanup_ends_only_sessions_of_the_demo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGAPPNAME", "somebody else")
    psycopg = pytest.importorskip("psycopg")
    with postgresql() as server, psycopg.connect(server.url) as stranger:
        database = database_at(server.url)
        assert os.environ["PGAPPNAME"] != "somebody else"
        ours = database.connect()
        assert database.cut_off() == 1
        with pytest.raises(psycopg.OperationalError):
            ours.execute("SELECT 1")
        assert stranger.execute("SELECT 1").fetchone() == (1,)
