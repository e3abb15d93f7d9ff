"""The demo's database, with accounts and transfers, in sqlite or PostgreSQL."""

import contextlib
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from ....client.dual_write.decision_table import POSITIONS, TABLE
from ....deploy.cluster.failure import Failure
from .transfer import ACCOUNTS, BALANCE, AccountTransfer, Contents

TRANSFERS_TABLE, ACCOUNTS_TABLE = "oncelog_demo_transfers", "oncelog_demo_accounts"
SQLITE = "sqlite://"
TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class TransferDatabase:
    """The demo's database. `url` is sqlite:///FILE or postgresql://..."""

    url: str

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith(SQLITE)

    @property
    def file(self) -> Path:
        """Return the file of the sqlite database."""
        return Path(self.url.removeprefix(SQLITE))

    @property
    def mark(self) -> str:
        """Return the placeholder of a statement's parameter, ? for sqlite and %s for PostgreSQL."""
        return "?" if self.is_sqlite else "%s"

    def connect(self) -> Any:
        """Open and return a new connection."""
        if self.is_sqlite:
            return sqlite3.connect(self.file, timeout=TIMEOUT_S)
        import psycopg

        return psycopg.connect(self.url, connect_timeout=TIMEOUT_S)

    def sql(self, text: str) -> str:
        """Return a statement for this database. In `text` each parameter is a ?."""
        return text.replace("?", self.mark)

    def create(self) -> None:
        """Create the tables anew, with accounts and without transfers."""
        self.remove()
        self._execute(
            *(["PRAGMA journal_mode=WAL"] if self.is_sqlite else []),  # so that judges may read
            f"CREATE TABLE {ACCOUNTS_TABLE} (account INTEGER PRIMARY KEY, balance BIGINT NOT NULL)",
            f"CREATE TABLE {TRANSFERS_TABLE} (number BIGINT PRIMARY KEY, source INTEGER NOT NULL, "
            "target INTEGER NOT NULL, amount INTEGER NOT NULL)",
            *(f"INSERT INTO {ACCOUNTS_TABLE} VALUES ({n}, {BALANCE})" for n in range(ACCOUNTS)),
        )

    def remove(self) -> None:
        """Drop the demo's tables, and delete its rows from the tables of the dual writer."""
        tables = (TRANSFERS_TABLE, ACCOUNTS_TABLE)
        self._execute(*(f"DROP TABLE IF EXISTS {table}" for table in tables))
        with contextlib.suppress(Exception):  # the tables of decisions may not exist
            for table in (TABLE, POSITIONS):
                self._execute(f"DELETE FROM {table} WHERE writer LIKE 'demo.%'")

    def write(self, execute: Any, transfer: AccountTransfer) -> None:
        """Write a transfer by calls of `execute(statement, parameters)`.

        Accounts are always locked in one order, so transfers cannot deadlock.
        """
        change = self.sql(f"UPDATE {ACCOUNTS_TABLE} SET balance = balance + ? WHERE account = ?")
        changes = ((transfer.source, -transfer.amount), (transfer.target, transfer.amount))
        for account, amount in sorted(changes):
            execute(change, (amount, account))
        execute(self.sql(f"INSERT INTO {TRANSFERS_TABLE} VALUES (?, ?, ?, ?)"), tuple(transfer))

    def read(self) -> Contents:
        """Return the committed accounts and transfers."""
        with contextlib.closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SELECT number, source, target, amount FROM {TRANSFERS_TABLE}")
            transfers = [AccountTransfer(*map(int, row)) for row in cursor.fetchall()]
            cursor.execute(f"SELECT account, balance FROM {ACCOUNTS_TABLE}")
            return Contents(transfers, {int(a): int(b) for a, b in cursor.fetchall()})

    def cut_off(self) -> int:
        """End the other sessions of this demo at a PostgreSQL server, and return their number."""
        with contextlib.closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = "
                "current_database() AND usename = current_user AND pid <> pg_backend_pid() "
                "AND application_name = current_setting('application_name')"
            )
            return int(cursor.fetchone()[0])

    def _execute(self, *statements: str) -> None:
        with contextlib.closing(self.connect()) as connection:
            for statement in statements:
                connection.cursor().execute(statement)
            connection.commit()


def database_at(url: str) -> TransferDatabase:
    """Return the database of an address, or raise Failure if it is malformed or does not answer.

    A password in the address is moved to the environment, where libpq reads it, because arguments
    of processes are visible to all users. The environment also has a name, by which the sessions of
    this run are recognised.
    """
    parts = urlsplit(url)
    os.environ["PGAPPNAME"] = f"oncelog-demo-{os.getpid()}"
    if parts.password:
        os.environ["PGPASSWORD"] = unquote(parts.password)
        host = parts.netloc.rpartition("@")[2]
        url = parts._replace(netloc=f"{parts.username or ''}@{host}").geturl()
    found = TransferDatabase(url)
    if not url.startswith(("postgresql://", "postgres://", f"{SQLITE}/")):
        raise Failure(
            "--database: give postgresql://USER@HOST/DATABASE, postgresql:// (for a server of the "
            "demo's own, which it kills), or sqlite:///FILE",
            exit_code=2,
        )
    try:
        found.connect().close()
    except ImportError:
        raise Failure("PostgreSQL needs psycopg: pip install 'psycopg[binary]'") from None
    except Exception as problem:
        name = type(problem).__name__  # its text may contain the address, and the password in it
        raise Failure(f"The database of --database cannot be reached ({name}).") from None
    return found
