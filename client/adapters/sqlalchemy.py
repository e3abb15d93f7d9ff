"""SQLAlchemy 2.x in the block of a dual write or an outbox, for Core and ORM, also with asyncio.

    from oncelog.client.adapters.sqlalchemy import async_session

    async with writer.transaction() as work, async_session(work) as session:
        session.add(Transfer(number=1, amount=5))
        await work.send("transfers", b"1")

A session runs on the connection of the block, inside a savepoint. The session's commit releases the
savepoint. The session's rollback, or an exception that leaves the session, undoes all changes since
the savepoint. The end of a session flushes its objects. Only one session may be open at a time,
because two savepoints would nest, and the rollback of one would undo writes of the other. The
writer begins and ends the database transaction, and SQLAlchemy does neither.
"""

import contextlib
from collections.abc import AsyncGenerator, Generator
from typing import Any

from ...wire.errors import InvalidConfig
from ..dual_write.decision_table import is_without_savepoint
from ..dual_write.stop_words import not_whole
from ..dual_write.work import BlockingDatabaseWork, DatabaseWork
from .needed import needed

URLS = {
    "psycopg": "postgresql+psycopg://",
    "sqlite3": "sqlite://",
    "pg8000": "postgresql+pg8000://",
}
PACKAGE = "sqlalchemy[asyncio]"
SAVEPOINT = "oncelog_sqlalchemy"
ALONE = "session or connection of SQLAlchemy"
IN_BLOCK = {"join_transaction_mode": "create_savepoint"}


@contextlib.contextmanager
def session(work: BlockingDatabaseWork, **options: Any) -> Generator[Any]:
    """Yield a `sqlalchemy.orm.Session` of the block. `options` are the arguments of the session."""
    orm = needed("sqlalchemy.orm")
    with connection(work) as bound, orm.Session(bind=bound, **IN_BLOCK, **options) as opened:
        yield opened
        opened.commit()


@contextlib.contextmanager
def connection(work: BlockingDatabaseWork) -> Generator[Any]:
    """Yield a `sqlalchemy.Connection` that uses the block's connection.

    Only one such connection or session of a block may be open at a time.
    """
    engine = work.kept("sqlalchemy", _engine)
    with work.alone(ALONE), engine.connect() as bound, bound.begin():
        yield bound


@contextlib.asynccontextmanager
async def async_session(work: DatabaseWork, **options: Any) -> AsyncGenerator[Any]:
    """Yield a `sqlalchemy.ext.asyncio.AsyncSession` of the block, created with `options`."""
    ext = needed("sqlalchemy.ext.asyncio", PACKAGE)
    async with (
        async_connection(work) as bound,
        ext.AsyncSession(bind=bound, **IN_BLOCK, **options) as opened,
    ):
        yield opened
        await opened.commit()


@contextlib.asynccontextmanager
async def async_connection(work: DatabaseWork) -> AsyncGenerator[Any]:
    """Yield a `sqlalchemy.ext.asyncio.AsyncConnection` that uses the block's connection.

    Only one such connection or session of a block may be open at a time.
    """
    engine = work.kept("sqlalchemy", _async_engine)
    with work.alone(ALONE):
        async with engine.connect() as bound, bound.begin():
            yield bound


def _engine(raw: Any) -> Any:
    core = needed("sqlalchemy")
    return _tamed(core.create_engine(_url(raw), creator=lambda: raw, **_pool()))


def _async_engine(raw: Any) -> Any:
    async def give(*_: Any, **__: Any) -> Any:
        return raw

    ext = needed("sqlalchemy.ext.asyncio", PACKAGE)
    engine = ext.create_async_engine(_url(raw), async_creator=give, **_pool())
    _tamed(engine.sync_engine)
    return engine


def _url(raw: Any) -> str:
    for each in type(raw).__mro__:
        url = URLS.get(each.__module__.split(".")[0])
        if url is not None:
            return url
    raise InvalidConfig(
        f"SQLAlchemy's adapter knows connections of {', '.join(URLS)}, and this one is of "
        f"{type(raw).__module__}"
    )


def _pool() -> dict[str, Any]:
    return {"poolclass": needed("sqlalchemy.pool").StaticPool, "pool_reset_on_return": None}


def _tamed(engine: Any) -> Any:
    """Make the engine begin and end savepoints instead of database transactions, and return it.

    The writer begins and ends the database transaction.
    """
    inner, dialect = _Inner(), engine.dialect
    dialect.do_begin, dialect.do_commit = inner.begin, inner.commit
    dialect.do_rollback, dialect.do_close = inner.rollback, inner.close
    return engine


class _Inner:
    """The savepoint that SQLAlchemy treats as the transaction of a connection."""

    _is_open = False  # a new engine asks for a rollback before it begins

    def begin(self, raw: Any) -> None:
        _execute(raw, f"SAVEPOINT {SAVEPOINT}")
        self._is_open = True

    def commit(self, raw: Any) -> None:
        self._end(raw, f"RELEASE SAVEPOINT {SAVEPOINT}")

    def rollback(self, raw: Any) -> None:
        self._end(raw, f"ROLLBACK TO SAVEPOINT {SAVEPOINT}", f"RELEASE SAVEPOINT {SAVEPOINT}")

    def close(self, raw: Any) -> None:
        """Leave the database connection open, because the writer closes it."""

    def _end(self, raw: Any, *statements: str) -> None:
        is_open, self._is_open = self._is_open, False
        try:
            for sql in statements * is_open:
                _execute(raw, sql)
        except Exception as problem:
            if not is_without_savepoint(problem):
                raise
            raise not_whole(problem) from problem


def _execute(raw: Any, sql: str) -> None:
    cursor = raw.cursor()
    try:
        cursor.execute(sql)
    finally:
        cursor.close()
