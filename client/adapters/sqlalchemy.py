"""SQLAlchemy 2.x in the block of a dual write or an outbox: Core and ORM, with asyncio and without.

    from oncelog.client.adapters.sqlalchemy import async_session

    async with writer.transaction() as work, async_session(work) as session:
        session.add(Transfer(number=1, amount=5))
        await work.send("transfers", b"1")

The session runs on the block's own connection, inside a savepoint: its commit is a part of the
block, and its rollback undoes what came since. What it has added is flushed when it is left. The
transaction of the database is the writer's: SQLAlchemy never commits it, nor rolls it back.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

from ...wire.errors import InvalidConfig
from ..dual_write.work import BlockingDatabaseWork, DatabaseWork
from .needed import needed

URLS = {
    "psycopg": "postgresql+psycopg://",
    "sqlite3": "sqlite://",
    "pg8000": "postgresql+pg8000://",
}
PACKAGE = "sqlalchemy[asyncio]"
IN_BLOCK = {"join_transaction_mode": "create_savepoint"}


@contextlib.contextmanager
def session(work: BlockingDatabaseWork, **options: Any) -> Generator[Any]:
    """Give a `sqlalchemy.orm.Session` of the block. options: the session's."""
    orm = needed("sqlalchemy.orm")
    with connection(work) as bound, orm.Session(bind=bound, **IN_BLOCK, **options) as opened:
        yield opened
        opened.commit()


@contextlib.contextmanager
def connection(work: BlockingDatabaseWork) -> Generator[Any]:
    """Give a `sqlalchemy.Connection` of the block."""
    with work.kept("sqlalchemy", _engine).connect() as bound, bound.begin():
        yield bound


@contextlib.asynccontextmanager
async def async_session(work: DatabaseWork, **options: Any) -> AsyncGenerator[Any]:
    """Give a `sqlalchemy.ext.asyncio.AsyncSession` of the block. options: the session's."""
    ext = needed("sqlalchemy.ext.asyncio", PACKAGE)
    async with (
        async_connection(work) as bound,
        ext.AsyncSession(bind=bound, **IN_BLOCK, **options) as opened,
    ):
        yield opened
        await opened.commit()


@contextlib.asynccontextmanager
async def async_connection(work: DatabaseWork) -> AsyncGenerator[Any]:
    """Give a `sqlalchemy.ext.asyncio.AsyncConnection` of the block."""
    async with work.kept("sqlalchemy", _async_engine).connect() as bound, bound.begin():
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
    """Return the engine, which ends no transaction by itself: the writer does."""
    nothing: Callable[[Any], None] = lambda _: None  # noqa: E731
    dialect = engine.dialect
    dialect.do_commit = dialect.do_rollback = dialect.do_begin = dialect.do_close = nothing
    return engine
