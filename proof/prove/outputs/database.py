"""A database in place of a topic of outputs, for `--sink`.

The sink is `sqlite:///F?table=T&id=COLUMN`, or `postgresql://USER@HOST/DB?table=T&id=COLUMN`. The
column has the id of the input, and a row is an output.
"""

import re
import sqlite3
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from ....deploy.cluster.ends.flag import Flag
from ....deploy.cluster.failure import Failure
from ..relation import LogRecord

LOOK_EACH_S, QUERY_TIMEOUT_S = 0.3, 20.0
UNDEFINED_TABLE = "42P01"  # of PostgreSQL
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
USAGE = "sqlite:///FILE?table=T&id=COLUMN or postgresql://USER@HOST/DB?table=T&id=COLUMN"


class DatabaseOutputs(threading.Thread):
    """A thread that reads the rows added after `start`, until `close`.

    Each row becomes a record with the id in the row as its key.
    """

    def __init__(self, url: str) -> None:
        super().__init__(name="prove-sink", daemon=True)
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query))
        self._table, self._column = options.pop("table", ""), options.pop("id", "")
        if not NAME.fullmatch(self._table) or not NAME.fullmatch(self._column):
            raise Failure(f"--sink {url} names no table and id column. It is {USAGE}.", exit_code=2)
        if parts.scheme == "sqlite":
            self._file = Path(unquote(parts.path.removeprefix("/")))
            self._query = self._query_sqlite
        elif parts.scheme in ("postgresql", "postgres"):
            try:
                import psycopg  # type: ignore[import-not-found]  # pyright: ignore
            except ImportError:
                raise Failure(
                    "A sink in PostgreSQL needs: pip install 'psycopg[binary]'", exit_code=2
                ) from None
            self._connect: Any = psycopg.connect
            self._url = urlunsplit(parts._replace(query=urlencode(options)))
            self._query = self._query_postgres
        else:
            raise Failure(f"--sink {url}: a sink is {USAGE}.", exit_code=2)
        self._over = Flag()
        self._looking = threading.Lock()  # looks must not overtake each other
        self._ids: list[str] = []
        self._before = Counter[str]()  # rows of others, e.g. of a run before
        self._problem = ""
        self.moved_at_s = time.monotonic()

    def start(self) -> None:
        try:
            self._before = Counter(self._query())
        except Exception as problem:
            if not self._is_missing(problem):  # else rows of others would be taken for outputs
                told = f"--sink: {self._table} cannot be read: {problem}"
                raise Failure(told, exit_code=2) from problem
        super().start()

    def _is_missing(self, problem: Exception) -> bool:
        """Return whether an error means that the table does not exist yet."""
        if isinstance(problem, sqlite3.OperationalError):
            return not self._file.exists() or "no such table" in str(problem)
        return getattr(problem, "sqlstate", None) == UNDEFINED_TABLE

    @property
    def records(self) -> list[LogRecord]:
        return [LogRecord(self._table, 0, n, each.encode()) for n, each in enumerate(self._ids)]

    def close(self) -> None:
        self._over.set()
        if self.is_alive():
            self.join(10)

    def check(self) -> None:
        """Accept the table in any state, since the application may still create or unlock it."""

    @property
    def problem(self) -> str:
        return self._problem

    def look(self) -> bool:
        """Read all rows now. Return whether they could be read."""
        with self._looking:
            self._look()
            return not self._problem

    def _look(self) -> None:
        try:
            found = sorted((Counter(self._query()) - self._before).elements())
        except Exception as problem:
            self._problem = f"{self._table} cannot be read: {problem}"
            return
        self._problem = ""
        if found != self._ids:
            self._ids, self.moved_at_s = found, time.monotonic()

    def run(self) -> None:
        while not self._over.wait(LOOK_EACH_S):
            self.look()

    def _query_sqlite(self) -> list[str]:
        connection = sqlite3.connect(f"file:{self._file}?mode=ro", uri=True, timeout=5)
        try:
            sql = f"SELECT {self._column} FROM {self._table}"
            return [str(row[0]) for row in connection.execute(sql)]
        finally:
            connection.close()

    def _query_postgres(self) -> list[str]:
        with self._connect(self._url, connect_timeout=5) as connection:
            # A paused instance may have locked the table.
            connection.execute(f"SET statement_timeout = {int(QUERY_TIMEOUT_S * 1000)}")
            sql = f"SELECT {self._column} FROM {self._table}"
            return [str(row[0]) for row in connection.execute(sql).fetchall()]
