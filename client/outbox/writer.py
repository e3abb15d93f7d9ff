"""Writers for a Kafka without two-phase commit, which first store records in the database.

    with BlockingOutboxWriter("billing", connect) as writer:
        with writer.transaction() as work:
            work.execute("UPDATE accounts SET balance = balance - ? WHERE id = ?", (5, 1))
            work.send("transfers", b"...")

At the end of the block the database commits, and then `OutboxRelay` (relay.py) sends the records.
The calls are the same as for `DualWriter`, but `send` returns no delivery, because the record is
sent later.
"""

import contextlib
from collections.abc import AsyncGenerator, Generator
from typing import Any, Self, Unpack

from ...wire.identifiers import TopicPartition
from ..dual_write.flow import drive, drive_async
from ..dual_write.shielded import ShieldedWork
from ..dual_write.work import BlockingDatabaseWork, DatabaseWork, RecordFields
from .outbox_flow import OutboxFlow

CLOSE_S = 30.0


class BlockingOutboxWork(BlockingDatabaseWork):
    """One block of a blocking writer, in which the application writes rows and sends records."""

    _writer: "BlockingOutboxWriter"

    def send(self, topic: str, value: bytes | None = None, **fields: Unpack[RecordFields]) -> None:
        """Insert the record as a row, to be sent if the block commits."""
        self._used()
        drive(self._writer.write_record(topic, value, **fields))


class BlockingOutboxWriter(OutboxFlow):
    """An outbox writer without an event loop."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Take over the writer's name, after which older writers can no longer commit."""
        drive(self._start())

    def close(self) -> None:
        """Close the connection if the writer has opened it."""
        drive(self._close())

    @contextlib.contextmanager
    def transaction(self) -> Generator[BlockingOutboxWork]:
        """Open an atomic block.

        If its end raises DecisionInDoubt, the outcome of the block is unknown.
        """
        with self._taken():
            drive(self._begin_block())
            try:
                with BlockingOutboxWork(self).opened() as work:
                    yield work
            except BaseException:
                drive(self._block_failed())
                raise
            drive(self._block_done())

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions as `DualWriter.positions` does."""
        with self._taken():
            return drive(self._positions())


class OutboxWork(DatabaseWork):
    """One block of an outbox writer, in which the application writes rows and sends records."""

    _writer: "OutboxWriter"

    async def send(
        self, topic: str, value: bytes | None = None, **fields: Unpack[RecordFields]
    ) -> None:
        """Insert the record as a row, to be sent if the block commits."""
        flow = self._writer.write_record(topic, value, **fields)
        await drive_async(flow, self._used)


class OutboxWriter(OutboxFlow):
    """An outbox writer with an event loop."""

    def __init__(self, name: str, connection: Any, *, creates_tables: bool = True) -> None:
        super().__init__(name, connection, creates_tables=creates_tables)
        self._shielded = ShieldedWork(name)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Take over the writer's name, after which older writers can no longer commit."""
        await drive_async(self._start())

    async def close(self) -> None:
        """Wait for running work, then close the connection if the writer has opened it."""
        await self._shielded.stop(CLOSE_S)
        await drive_async(self._close())

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[OutboxWork]:
        """Open an atomic block.

        If its end raises DecisionInDoubt, the outcome of the block is unknown.

        A block that is cancelled at its end may count or not, and ends by itself.
        """
        await self._shielded.ended()
        with self._taken():
            await self._shielded.run(self._begin_block(), undo=lambda _: self._block_failed())
            try:
                with OutboxWork(self).opened() as work:
                    yield work
            except BaseException:
                await self._shielded.run(self._block_failed())
                raise
            await self._shielded.run(self._block_done())

    async def positions(self) -> dict[TopicPartition, int]:
        """Return the positions as `DualWriter.positions` does."""
        await self._shielded.ended()
        with self._taken():
            return await drive_async(self._positions())
