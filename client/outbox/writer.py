"""A dual write's block for a Kafka without two-phase commit: records go into the database.

    with BlockingOutboxWriter("billing", connect) as writer:
        with writer.transaction() as work:
            work.execute("UPDATE accounts SET balance = balance - ? WHERE id = ?", (5, 1))
            work.send("transfers", b"...")

The block counts when the database commits; `OutboxRelay` (relay.py) sends what it has sent. The
calls are those of `DualWriter`, but for what a record became, which nobody knows yet.
"""

import contextlib
from collections.abc import AsyncGenerator, Generator
from typing import Self

from ...wire.batch_builder import Headers
from ...wire.identifiers import TopicPartition
from ..dual_write.flow import drive, drive_async
from ..dual_write.work import BlockingDatabaseWork, DatabaseWork
from .outbox_flow import OutboxFlow


class BlockingOutboxWork(BlockingDatabaseWork):
    """What a block may do; `connection` is the database's, whose commit is the writer's."""

    _writer: "BlockingOutboxWriter"

    def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        """The record is a row; it is sent when the block counts."""
        drive(self._writer.write_record(topic, value, key, partition, timestamp_ms, headers))


class BlockingOutboxWriter(OutboxFlow):
    """See the top of the file."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Take the name over: older writers commit nothing any more."""
        drive(self._start())

    def close(self) -> None:
        """Close the connection where the writer has opened it."""
        drive(self._close_connection())

    @contextlib.contextmanager
    def transaction(self) -> Generator[BlockingOutboxWork]:
        """A block of which all counts, or nothing. DecisionInDoubt: nobody knows."""
        drive(self._begin_block())
        try:
            yield BlockingOutboxWork(self)
        except BaseException:
            drive(self._block_failed())
            raise
        drive(self._block_done())

    def positions(self) -> dict[TopicPartition, int]:
        """As `DualWriter.positions`."""
        return drive(self._positions())


class OutboxWork(DatabaseWork):
    """As `BlockingOutboxWork`, awaited."""

    _writer: "OutboxWriter"

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> None:
        """The record is a row; it is sent when the block counts."""
        await drive_async(
            self._writer.write_record(topic, value, key, partition, timestamp_ms, headers)
        )


class OutboxWriter(OutboxFlow):
    """As `BlockingOutboxWriter`, awaited."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Take the name over: older writers commit nothing any more."""
        await drive_async(self._start())

    async def close(self) -> None:
        """Close the connection where the writer has opened it."""
        await drive_async(self._close_connection())

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[OutboxWork]:
        """A block of which all counts, or nothing. DecisionInDoubt: nobody knows."""
        await drive_async(self._begin_block())
        try:
            yield OutboxWork(self)
        except BaseException:
            await drive_async(self._block_failed())
            raise
        await drive_async(self._block_done())

    async def positions(self) -> dict[TopicPartition, int]:
        """As `DualWriter.positions`."""
        return await drive_async(self._positions())
