"""A DB-API connection, with the peculiarities of its database and module.

Connections may be synchronous, or have coroutines as methods (psycopg.AsyncConnection). flow.py
handles both kinds.
"""

import sys
from functools import partial
from typing import Any, TypeVar, cast

from . import decision_table
from .decision_table import Script, SqlEnding, SqlResult, Statement
from .flow import Flow
from .stop_words import DualWriteError, UnsafeDatabase

REFUSING_CLASSES, COMPLETION_UNKNOWN = ("23", "40"), "40003"  # of SQLSTATE
T = TypeVar("T")
PARAMETER_STYLES = {"qmark": "?", "format": "%s", "pyformat": "%s"}
NUMBERED = {"numeric": ":", "named": ":", "numeric_dollar": "$"}  # the last is PostgreSQL's own
SQLITE_FULL = 2
OF_SQLITE = ("in_transaction", "isolation_level", "create_collation")


class Dialect:
    """The peculiarities of one connection's database and DB-API module."""

    def __init__(self, connection: Any) -> None:
        module, style = _module_of(connection)
        self._is_postgresql = module.startswith("psycopg") or style == "numeric_dollar"
        # Other modules of the same library count, too: in them RELEASE of a savepoint may be a
        # COMMIT.
        self._is_sqlite = all(hasattr(connection, each) for each in OF_SQLITE)
        self._number_mark = NUMBERED.get(style)
        self._mark = PARAMETER_STYLES.get(style, "")

    def text_of(self, statement: Statement) -> str:
        """Return the SQL text of a statement, with the parameter marks of this DB-API module."""
        if self._number_mark is None:
            return statement.text.replace("?", self._mark)
        parts = statement.text.split("?")
        numbered = (
            f"{self._number_mark}{number}{part}" for number, part in enumerate(parts[1:], 1)
        )
        return parts[0] + "".join(numbered)

    def is_busy(self, connection: Any) -> bool | None:
        """Return whether a transaction is open on the connection, or None if unknown."""
        if self._is_sqlite:
            return None if self._is_always_open(connection) else connection.in_transaction
        status = getattr(getattr(connection, "info", None), "transaction_status", None)
        # 4: a lost connection, which the first statement reports
        return None if status is None else status not in (0, 4)

    def is_refused(self, connection: Any, problem: BaseException) -> bool:
        """Return whether a COMMIT that raised this error has certainly committed nothing."""
        if isinstance(problem, DualWriteError) or decision_table.is_integrity_error(problem):
            return True
        if self._is_sqlite:  # SQLite keeps the transaction open
            return self.is_busy(connection) is True
        state = _sqlstate_of(problem)
        return state[:2] in REFUSING_CLASSES and state != COMPLETION_UNKNOWN

    def begin(self, connection: Any) -> Script[None]:
        if not self._is_sqlite or self._is_always_open(connection):
            return decision_table.begin_block(())
        # Lock now, not at the first write: an upgrade from read to write may be refused.
        return decision_table.begin_block(("BEGIN IMMEDIATE",))

    def _is_always_open(self, connection: Any) -> bool:
        return getattr(connection, "autocommit", -1) is False  # sqlite3 from Python 3.12 on

    def refuse_unsafe(self, connection: Any) -> Script[None]:
        """Raise UnsafeDatabase in autocommit, and where the database could lose a committed row."""
        if _is_autocommit(connection, is_sqlite=self._is_sqlite):
            raise UnsafeDatabase(
                "the connection is in autocommit: each statement would be a transaction of its "
                "own. Open it without (sqlite3: isolation_level=''; psycopg: autocommit=False)"
            )
        if self._is_sqlite:
            yield from _refuse_unsafe_sqlite()
            return
        try:
            yield from refuse_unsafe_postgresql()
        except UnsafeDatabase:
            raise
        except Exception:
            if self._is_postgresql:
                raise
            # another module may have another database, which does not know the settings
        yield SqlEnding.ROLLBACK

    def before_commit(self) -> Script[None]:
        """Release the savepoint of the block, and check that settings keep commits durable."""
        yield from decision_table.end_block()
        if self._is_sqlite:
            yield from _refuse_unsynced_sqlite()
        elif self._is_postgresql:
            yield from refuse_unsafe_postgresql()


def _module_of(connection: Any) -> tuple[str, str]:
    """Return the DB-API module of a connection, and its parameter style (PEP 249's `paramstyle`).

    The connection's class may be derived from a class of the module. An adapter of
    `client/adapters` may have a `paramstyle` attribute of its own.
    """
    for each in type(connection).__mro__:
        name = each.__module__.split(".")[0]
        style = vars(each).get("paramstyle") or getattr(sys.modules.get(name), "paramstyle", None)
        if style is not None:
            return name, str(style)
    raise UnsafeDatabase(
        f"{type(connection).__qualname__} is no connection of a module of the DB-API 2, so it is "
        "not known how it takes parameters, nor what it must not be set to. Give the connection "
        "itself instead of a pool's or a framework's"
    )


def _sqlstate_of(problem: BaseException) -> str:
    """Return the SQLSTATE of an error, or an empty string.

    pg8000 has the SQLSTATE among the fields of its error.
    """
    said = getattr(problem, "sqlstate", None) or getattr(problem, "pgcode", None)
    fields = problem.args[0] if problem.args else None
    if said is None and isinstance(fields, dict):
        said = cast(dict[str, Any], fields).get("C")
    return str(said or "")


def _is_autocommit(connection: Any, *, is_sqlite: bool) -> bool:
    autocommit = getattr(connection, "autocommit", None)
    if is_sqlite:
        is_legacy = autocommit is None or autocommit not in (True, False)
        return autocommit is True or (is_legacy and connection.isolation_level is None)
    return autocommit is True


def _refuse_unsafe_sqlite() -> Script[None]:
    files = (yield Statement("PRAGMA database_list")).rows
    if not any(row[1] == "main" and row[2] for row in files):
        raise UnsafeDatabase(
            "the sqlite database is in memory, or temporary: its decisions would be gone with "
            "the process. Give it a file"
        )
    yield from _refuse_unsynced_sqlite()
    journal = str((yield Statement("PRAGMA journal_mode")).rows[0][0]).lower()
    if journal in ("off", "memory"):
        raise UnsafeDatabase(
            f"sqlite's journal_mode is {journal}: a crash in a commit would leave half of it. "
            "Say PRAGMA journal_mode=WAL (or DELETE)"
        )


def _refuse_unsynced_sqlite() -> Script[None]:
    synchronous = (yield Statement("PRAGMA synchronous")).rows[0][0]
    if int(synchronous) < SQLITE_FULL:
        raise UnsafeDatabase(
            "sqlite's synchronous is below FULL: a power cut could take a decision back that "
            "Kafka has carried out. Say PRAGMA synchronous=FULL on this connection"
        )


def refuse_unsafe_postgresql() -> Script[None]:
    answer = yield Statement(
        "SELECT current_setting('synchronous_commit'), current_setting('fsync')"
    )
    synchronous_commit, fsync = answer.rows[0]
    if synchronous_commit == "off" or fsync == "off":
        name = "synchronous_commit" if synchronous_commit == "off" else "fsync"
        raise UnsafeDatabase(
            f"PostgreSQL's {name} is off: a crash of the server could take a decision back that "
            f"Kafka has carried out. SET {name}=on (synchronous_commit: for this session or role)"
        )


def run(script: Script[T], connection: Any, dialect: Dialect) -> Flow[T]:
    """Run a script on a connection, and return the script's result.

    An error of a statement is raised inside the script, which may catch it.
    """
    answer: SqlResult | None = None
    problem: Exception | None = None
    while True:
        try:
            asked = script.throw(problem) if problem else script.send(cast(SqlResult, answer))
        except StopIteration as end:
            return cast(T, end.value)
        answer, problem = SqlResult(), None
        try:
            if isinstance(asked, SqlEnding):
                yield connection.commit if asked is SqlEnding.COMMIT else connection.rollback
                continue
            cursor = connection.cursor()
            try:
                yield partial(cursor.execute, dialect.text_of(asked), asked.parameters)
                rows = (yield cursor.fetchall) if cursor.description else ()
                answer = SqlResult(rows, cursor.rowcount)
            finally:
                yield cursor.close
        except Exception as caught:
            problem = caught
