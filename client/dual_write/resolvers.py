"""Resolvers, which are databases or HTTP endpoints that know the outcome of an open transaction.

The answer of a resolver is final. After `aborted`, the transaction's writer can no longer commit in
its database. A database guarantees that by the key of its table, and an HTTP endpoint must
guarantee the same.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Protocol
from urllib.parse import unquote

from ...wire.errors import InvalidConfig, InvalidRequest
from . import decision_table, steps
from .database import Dialect, run
from .flow import Flow, drive_async
from .http_resolver import HttpResolver
from .steps import DecidedOutcome, TransactionKey

logger = logging.getLogger(__name__)
TIMEOUT_S = 10
NO_TABLE = (
    "the database has no table of decisions: is it that of the writers? The first of them makes it"
)
# a writer that stands still in its commit holds its row: the question is repeated
LOCK_TIMEOUT_S = 2


class Resolver(Protocol):
    async def resolve(self, key: TransactionKey) -> DecidedOutcome | None:
        """Return the outcome of a transaction, or None while it is unknown.

        Raises if the resolver cannot be asked.
        """
        ...

    async def check(self) -> str:
        """Send one test question, before a caller depends on the resolver.

        Returns a warning, or an empty string. Raises InvalidConfig if the resolver does not answer.
        """
        ...

    async def close(self) -> None:
        """Close the connection. The next question opens another connection."""
        ...


class DatabaseResolver:
    """A resolver that reads the decision table, and inserts `aborted` for a missing row."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        """Take a function, or a coroutine function, that opens a connection."""
        self._connect, self._connection = connect, None
        self._lock = asyncio.Lock()  # two questions on one connection would share a transaction

    async def resolve(self, key: TransactionKey) -> DecidedOutcome | None:
        """Return the outcome of a transaction from the decision table.

        Raises InvalidRequest for a session of another database, and errors of the database. After
        an error the next call connects again.
        """
        async with self._lock:
            return await drive_async(self._resolve(key))

    async def check(self) -> str:
        """Raise InvalidConfig if the database cannot be asked.

        Returns a warning if the decision table is missing, else an empty string.
        """
        async with self._lock:
            try:
                return await drive_async(self._check())
            except Exception as problem:
                raise InvalidConfig(f"the database cannot answer: {problem}") from problem

    async def close(self) -> None:
        """Close the connection."""
        async with self._lock:
            await drive_async(self._close())

    def _open(self) -> Flow[None]:
        if self._connection is None:
            self._connection = yield self._connect
            dialect = Dialect(self._connection)
            yield from run(dialect.refuse_unsafe(self._connection), self._connection, dialect)

    def _check(self) -> Flow[str]:
        try:
            yield from self._open()
        except BaseException:
            yield from self._close()
            raise
        try:
            script = decision_table.find_table()
            yield from run(script, self._connection, Dialect(self._connection))
        except BaseException as problem:
            yield from self._close()
            if not isinstance(problem, Exception):
                raise
            return f"{NO_TABLE} ({problem})"
        return ""

    def _resolve(self, key: TransactionKey) -> Flow[DecidedOutcome | None]:
        try:
            yield from self._open()
            script = decision_table.script_of(steps.ReadOrAbort(key))
            event = yield from run(script, self._connection, Dialect(self._connection))
        except BaseException:  # cancelled, too: an insert without a commit must not be read again
            yield from self._close()
            raise
        assert isinstance(event, steps.OutcomeRead)
        if event.outcome is None and not event.is_session_over:
            raise InvalidRequest(
                f"the writer of {key} decides in another database than the one that was asked: "
                "give the check-back its database, or the names of its writers (--writer)"
            )
        return event.outcome or DecidedOutcome.ABORTED

    def _close(self) -> Flow[None]:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                yield connection.close
            except Exception as problem:
                logger.debug("check-back: closing the database connection failed: %s", problem)


def resolver_of(url: str) -> Resolver:
    """Return the resolver for a URL of postgresql://, sqlite:///FILE, http:// or https://.

    Raises InvalidConfig for another URL.
    """
    scheme = url.partition(":")[0]
    if scheme in ("http", "https"):
        return HttpResolver(url)
    if scheme in ("postgresql", "postgres"):
        return DatabaseResolver(_postgresql(url))
    if scheme == "sqlite":
        return DatabaseResolver(_sqlite(url))
    raise InvalidConfig(
        "this is no resolver: give postgresql://USER@HOST/DATABASE, sqlite:///FILE, or the "
        "http:// or https:// address of an endpoint"
    )


def _postgresql(url: str) -> Callable[[], Any]:
    try:
        import psycopg
    except ImportError:
        raise InvalidConfig("PostgreSQL needs psycopg: pip install 'psycopg[binary]'") from None

    async def connect() -> Any:
        try:
            return await psycopg.AsyncConnection.connect(
                url, connect_timeout=TIMEOUT_S, options=f"-c lock_timeout={LOCK_TIMEOUT_S}s"
            )
        except psycopg.Error as problem:
            raise ConnectionError(without_password(str(problem), url)) from None

    return connect


def without_password(text: str, url: str) -> str:
    """Return `text` with the password of `url` masked, because messages may repeat the URL."""
    secret = url.partition("://")[2].rpartition("@")[0].partition(":")[2]
    for each in sorted({secret, unquote(secret)} - {""}, key=len, reverse=True):
        text = text.replace(each, "***")
    return text


def _sqlite(url: str) -> Callable[[], Any]:
    import sqlite3
    from urllib.parse import quote

    file = unquote(url.removeprefix("sqlite://"))
    if not file.startswith("/") or "?" in file:
        raise InvalidConfig(f"{url!r}: give sqlite:///FILE with the whole path (three slashes)")
    file = "/" + file.lstrip("/")  # SQLAlchemy writes four slashes; two would begin a host's name
    # mode=rw: a mistyped file must not be created and taken for a database without decisions
    return lambda: sqlite3.connect(f"file:{quote(file)}?mode=rw", uri=True, timeout=LOCK_TIMEOUT_S)
