"""What a block may do with its database, whatever becomes of its records."""

import contextlib
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Self

from ..failures import IllegalProducerState
from .connection_flow import ConnectionFlow
from .flow import drive, drive_async


class WorkOfWriter:
    """Of one block: what is asked of it later would be done in the block that is open then."""

    def __init__(self, writer: ConnectionFlow) -> None:
        self._writer, self._connection = writer, writer.connection
        self._open: set[str] = set()
        self._is_over = False

    @contextlib.contextmanager
    def opened(self) -> Generator[Self]:
        """Its block is over when this is left, by whom has the writer until it has ended."""
        try:
            yield self
        finally:
            self._is_over = True
            self._writer.on_use()

    @property
    def connection(self) -> Any:
        """The database's, whose commit is the writer's."""
        self._used()
        return self._connection

    def _used(self) -> None:
        """Before each use. Raises IllegalProducerState after the block, ClientClosed in a fork."""
        self._writer.refuse_forked()
        if self._is_over:
            raise IllegalProducerState("the block is over: this came after its end")
        self._writer.on_use()

    def kept(self, name: str, make: Callable[[Any], Any]) -> Any:
        """What was made of the connection, once, for as long as the writer has it."""
        self._used()
        return self._writer.kept(name, make)

    @contextlib.contextmanager
    def alone(self, what: str) -> Generator[None]:
        """Raises IllegalProducerState where the block has one of these open already."""
        if what in self._open:
            raise IllegalProducerState(f"the block has a {what} open: one at a time, pass it on")
        self._open.add(what)
        try:
            yield
        finally:
            self._open.remove(what)


class BlockingDatabaseWork(WorkOfWriter):
    """What a block may do without an event loop."""

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Run a statement on the connection; its cursor."""
        cursor = self.connection.cursor()
        cursor.execute(sql, parameters) if parameters else cursor.execute(sql)
        return cursor

    def consumed(self, topic: str, partition: int, next_offset: int) -> None:
        """Records up to here are done with: the position counts when the block does."""
        self._used()
        drive(self._writer.write_position(topic, partition, next_offset))


class DatabaseWork(WorkOfWriter):
    """As `BlockingDatabaseWork`, awaited."""

    async def execute(self, sql: str, parameters: Sequence[Any] = ()) -> Any:
        """Run a statement on the connection; its cursor."""
        cursor = self.connection.cursor()
        result = cursor.execute(sql, parameters) if parameters else cursor.execute(sql)
        if isinstance(result, Awaitable):
            await result
        return cursor

    async def consumed(self, topic: str, partition: int, next_offset: int) -> None:
        """Records up to here are done with: the position counts when the block does."""
        flow = self._writer.write_position(topic, partition, next_offset)
        await drive_async(flow, self._used)
