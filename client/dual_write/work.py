"""The database side of a block, which is the same for dual writes and outboxes."""

import contextlib
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Self, TypedDict

from ...wire.batch_builder import Headers
from ..failures import IllegalProducerState
from .connection_flow import ConnectionFlow
from .flow import drive, drive_async


class RecordFields(TypedDict, total=False):
    """The keyword arguments of `send` for one record."""

    key: bytes | None
    partition: int | None
    timestamp_ms: int | None
    headers: Headers


class WorkOfWriter:
    """One block of a writer.

    A use after its end is refused, because it would join the next block.
    """

    def __init__(self, writer: ConnectionFlow) -> None:
        self._writer, self._connection = writer, writer.connection
        self._open: set[str] = set()
        self._is_over = False

    @contextlib.contextmanager
    def opened(self) -> Generator[Self]:
        """Yield this block. At the end of the context the block is over and refuses further use."""
        try:
            yield self
        finally:
            self._is_over = True
            self._writer.on_use()

    @property
    def connection(self) -> Any:
        """The database connection, which only the writer commits."""
        self._used()
        return self._connection

    def _used(self) -> None:
        """Raise IllegalProducerState after the end of the block.

        Raise ClientClosed in a forked child.
        """
        self._writer.refuse_forked()
        if self._is_over:
            raise IllegalProducerState("the block is over: this came after its end")
        self._writer.on_use()

    def kept(self, name: str, make: Callable[[Any], Any]) -> Any:
        """Return the object that is stored under `name` for the connection.

        A missing object is created by `make(connection)`.
        """
        self._used()
        return self._writer.kept(name, make)

    @contextlib.contextmanager
    def alone(self, what: str) -> Generator[None]:
        """Reserve `what` (a session, for example) until the context ends.

        Raises IllegalProducerState if the block already has an open `what`.
        """
        if what in self._open:
            raise IllegalProducerState(f"the block has a {what} open: one at a time, pass it on")
        self._open.add(what)
        try:
            yield
        finally:
            self._open.remove(what)


class BlockingDatabaseWork(WorkOfWriter):
    """The database side of one block, for programs without an event loop."""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Run a statement on the connection, and return the statement's cursor."""
        cursor = self.connection.cursor()
        cursor.execute(sql, parameters) if parameters else cursor.execute(sql)
        return cursor

    def consumed(self, topic: str, partition: int, next_offset: int) -> None:
        """Store the next offset of a partition in the database, as a part of the block."""
        self._used()
        drive(self._writer.write_position(topic, partition, next_offset))


class DatabaseWork(WorkOfWriter):
    """The database side of one block, for programs with an event loop."""

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Run a statement on the connection, and return the statement's cursor."""
        cursor = self.connection.cursor()
        result = cursor.execute(sql, parameters) if parameters else cursor.execute(sql)
        if isinstance(result, Awaitable):
            await result
        return cursor

    async def consumed(self, topic: str, partition: int, next_offset: int) -> None:
        """Store the next offset of a partition in the database, as a part of the block."""
        flow = self._writer.write_position(topic, partition, next_offset)
        await drive_async(flow, self._used)
