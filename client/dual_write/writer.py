"""One transaction over Kafka and a database, for programs with an event loop.

    async with DualWriter("127.0.0.1:9092", "billing", connect) as writer:
        async with writer.transaction() as work:
            await work.execute("UPDATE accounts SET balance = balance - %s WHERE id = %s", (5, 1))
            await work.send("transfers", b"...")

A block is atomic. Consumers with read_committed see its records if and only if the database has
committed its rows. The writer commits, and an exception that leaves the block rolls the block back.
`connect` is a function or coroutine function that opens a connection of the DB-API, or an open
connection. A synchronous connection blocks the event loop. With a function the writer survives
restarts of the database.

Only one writer of a name works at a time. The writer that starts last supersedes the others, and
their blocks raise WriterSuperseded. Decided transactions of a killed writer are completed by the
next start, or by a check-back (`oncelog txn check-back`). Brokers need two-phase commit (KIP-939).
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Self, Unpack

from ...wire.identifiers import TopicPartition
from ..produce.delivery import Deliveries, Delivery
from ..producer import Producer
from ..view_source import Source
from . import kafka_side, steps
from .flow import drive_async
from .shielded import ShieldedWork
from .work import DatabaseWork, RecordFields
from .writer_flow import WriterFlow


class DualWork(DatabaseWork):
    """One block of a writer, in which the application writes rows and sends records."""

    def __init__(self, writer: "DualWriter", producer: Producer) -> None:
        super().__init__(writer)
        self._producer = producer

    async def send(
        self, topic: str, value: bytes | None = None, **fields: Unpack[RecordFields]
    ) -> Delivery:
        """Send as `Producer.send` does."""
        self._used()
        return await self._producer.send(topic, value, **fields)

    async def send_many(self, topic: str, values: Any, **columns: Any) -> Deliveries:
        """Send as `Producer.send_many` does."""
        self._used()
        return await self._producer.send_many(topic, values, **columns)


class DualWriter(WriterFlow):
    """A dual writer, for one task at a time."""

    _producer: Producer | None = None

    def __init__(self, source: Source, name: str, connection: Any, /, **options: Any) -> None:
        """Create a writer. Further keywords are the options of `WriterFlow`."""
        super().__init__(source, name, connection, **options)
        self._shielded = ShieldedWork(name)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Fence older writers of this name, and end their transactions in Kafka.

        Those that are committed in the database are committed, and all others are aborted. A start
        that fails closes the writer.
        """
        try:
            await drive_async(self._start())
        except BaseException:
            with contextlib.suppress(Exception):  # the first error counts
                await self.close()
            raise

    async def close(self) -> None:
        """Close the producer, and the connection if the writer has opened the connection.

        First the close finishes running work and the work of a cancelled block, for at most
        resolve_timeout_ms.
        """
        self._is_closed = True
        try:
            if await self._shielded.stop(self._resolve_timeout_ms / 1000):
                await drive_async(self._settle_at_close())
        finally:
            producer, self._producer = self._producer, None
            try:
                if producer is not None:
                    await producer.close()
            finally:
                await drive_async(self._close_connection())

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncGenerator[DualWork]:
        """Open an atomic block. Its end commits, or raises the reason why nothing was committed.

        DecisionInDoubt means that the outcome is unknown, until the next start or a check-back
        resolves it, and DecisionOverruled that only the database has committed. If the task is
        cancelled at the end of the block, the block may commit or not. The next block waits until
        the cancelled one has ended.
        """
        await self._shielded.ended()
        with self._taken():
            await self._shielded.run(self._begin_block(), undo=self._block_failed)
            assert self._producer is not None
            try:
                with DualWork(self, self._producer).opened() as work:
                    yield work
            except BaseException as problem:
                await self._shielded.run(self._block_failed(problem))
                raise
            await self._shielded.run(self._block_done())

    async def positions(self) -> dict[TopicPartition, int]:
        """Return the next offsets by partition, as committed blocks stored them with `consumed`."""
        await self._shielded.ended()
        with self._taken():
            return await drive_async(self._positions())

    async def _new_producer(self, transactional_id: str) -> None:
        if self._producer is not None:
            await self._producer.close()
        self._producer = Producer(self._source, **self._producer_options(transactional_id))

    async def _for_others(self, effect: steps.Effect, producer: Producer) -> steps.Event:
        return await kafka_side.perform(effect, producer)

    def _lost_answers(self, producer: Producer) -> int:
        return producer.lost_answers

    async def _pause(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
