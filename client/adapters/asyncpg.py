"""Connects dual writers and outbox writers to PostgreSQL through asyncpg, with asyncio.

    from oncelog.client.adapters.asyncpg import connect

    async with DualWriter("127.0.0.1:9092", "bank", connect("postgresql://bank@db/bank")) as writer:
        async with writer.transaction() as work:
            await work.connection.raw.execute("INSERT INTO transfers VALUES ($1, $2)", 1, 5)
            await work.send("transfers", b"1")

asyncpg does not implement the DB-API. This module adds the missing methods to asyncpg's connection,
which stays available as `raw`. `raw.transaction()` is a savepoint of the block. The writer commits
the outer transaction.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ..dual_write.stop_words import DualWriteError, UnsafeDatabase
from .needed import needed

CLOSE_S = 5.0
IDLE, IN_TRANSACTION = 0, 2  # psycopg's status values, which a writer reads


def connect(*args: Any, **options: Any) -> Callable[[], Awaitable["AsyncpgConnection"]]:
    """Return a function that opens a connection with the arguments of `asyncpg.connect`."""
    module = needed("asyncpg")

    async def opened() -> AsyncpgConnection:
        return AsyncpgConnection(await module.connect(*args, **options))

    return opened


class AsyncpgConnection:
    """A connection with the methods of the DB-API that a writer needs.

    `raw` is asyncpg's connection.
    """

    paramstyle = "numeric_dollar"

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self._has_begun = False

    @property
    def info(self) -> "AsyncpgConnection":
        return self

    @property
    def transaction_status(self) -> int:
        is_busy = not self.raw.is_closed() and self.raw.is_in_transaction()
        return IN_TRANSACTION if is_busy else IDLE

    def cursor(self) -> "AsyncpgCursor":
        return AsyncpgCursor(self)

    async def begun(self) -> Any:
        """Execute BEGIN unless the block has begun, and return `raw`.

        This method does not use asyncpg's `start()`. A cancelled `start()` leaves an outermost
        transaction that never ends. The next transaction would be a savepoint in it, and its commit
        would commit nothing.
        """
        if not self._has_begun:
            if self.transaction_status != IDLE:  # BEGIN would join it, and only warn
                raise UnsafeDatabase("a transaction that is not the block's is open")
            await self.raw.execute("BEGIN")
            self._has_begun = True
            self._set_outermost(self.raw.transaction())
        return self.raw

    async def commit(self) -> None:
        if self._has_begun:
            self._forget()
            status = await self.raw.execute("COMMIT")
            if status != "COMMIT":
                raise DualWriteError(f"PostgreSQL has answered {status} to COMMIT: nothing counts")

    async def rollback(self) -> None:
        """Roll the transaction back.

        A rollback is also allowed before BEGIN, because BEGIN may have been cancelled, or the
        connection may have been lost.
        """
        self._forget()
        await self.raw.execute("ROLLBACK")

    def _forget(self) -> None:
        if self._has_begun:
            self._has_begun = False
            self._set_outermost(None)

    def _set_outermost(self, transaction: Any) -> None:
        """Let `raw.transaction()` create a savepoint in this transaction.

        With None it creates a transaction again.
        """
        self.raw.transaction()._connection._top_xact = transaction

    async def close(self) -> None:
        await self.raw.close(timeout=CLOSE_S)


class AsyncpgCursor:
    """A cursor that runs one statement and then holds the resulting records of asyncpg."""

    description: Any = None
    rowcount = -1

    def __init__(self, connection: AsyncpgConnection) -> None:
        self._connection = connection
        self._rows: list[Any] = []

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> None:
        raw = await self._connection.begun()
        statement = await raw.prepare(sql, name="")  # without a name there is nothing to clean up
        self._rows = await statement.fetch(*parameters)
        self.description = statement.get_attributes()
        count = statement.get_statusmsg().split()[-1]
        self.rowcount = int(count) if count.isdigit() else -1

    async def fetchone(self) -> Any:
        return self._rows.pop(0) if self._rows else None

    async def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return rows

    async def close(self) -> None:
        self._rows = []
