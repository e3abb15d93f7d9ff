"""Transfers in a database and their events in a topic, for tests of dual writes.

A transfer has a number, a row and an event. Either both exist or neither.
"""

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncelog.client import Admin
from oncelog.client.dual_write.names import PREFIX

from ...interop.client_peers import read_to_end

CREATE = "CREATE TABLE transfers (number INTEGER PRIMARY KEY, amount INTEGER NOT NULL)"


@dataclass(frozen=True)
class Ledger:
    """A table of transfers in a database.

    `connect` opens a new connection. `mark` is the placeholder of a parameter in SQL.
    """

    connect: Callable[[], Any]
    mark: str

    @property
    def insert(self) -> str:
        return f"INSERT INTO transfers (number, amount) VALUES ({self.mark}, {self.mark})"

    def create(self) -> "Ledger":
        connection = self.connect()
        connection.cursor().execute("DROP TABLE IF EXISTS transfers")
        connection.cursor().execute(CREATE)
        connection.commit()
        connection.close()
        return self

    def rows(self, sql: str = "SELECT number FROM transfers ORDER BY number") -> list[Any]:
        connection = self.connect()
        cursor = connection.cursor()
        cursor.execute(sql)
        found = [row[0] for row in cursor.fetchall()]
        connection.rollback()
        connection.close()
        return found


def sqlite_ledger(file: Path) -> Ledger:
    return Ledger(lambda: sqlite3.connect(file, timeout=20), "?")


async def open_transactions(bootstrap: str) -> list[str]:
    async with Admin(bootstrap) as admin:
        found = await admin.transactions.list_transactions(prefix=PREFIX, states=["Ongoing"])
    return [each.transactional_id for each in found]


def events(bootstrap: str, topic: str) -> list[int]:
    """Assert that no transaction is open, and return the committed events of a topic, sorted."""
    assert asyncio.run(open_transactions(bootstrap)) == []
    return sorted(int(r.value or b"") for r in asyncio.run(read_to_end(bootstrap, topic)))


def assert_equal(bootstrap: str, topic: str, ledger: Ledger) -> None:
    rows, found = ledger.rows(), Counter(events(bootstrap, topic))
    assert Counter(rows) == found, (
        f"rows without events: {sorted(set(rows) - found.keys())[:5]}, events without rows: "
        f"{sorted(found.keys() - set(rows))[:5]}, doubled: {[e for e in found if found[e] > 1][:5]}"
    )
