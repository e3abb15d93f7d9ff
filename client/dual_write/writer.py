"""One transaction over Kafka and a database, for programs with an event loop.

    async with DualWriter("127.0.0.1:9092", "billing", connect) as writer:
        async with writer.transaction() as work:
            await work.execute("UPDATE accounts SET balance = balance - %s WHERE id = %s", (5, 1))
            await work.send("transfers", b"...")

All of a block counts, or nothing: its records are seen by readers of committed data if and only if
the database has committed its rows. The writer commits; a block that is left by an exception is
rolled back. connect: a function or coroutine function that opens a connection of the DB-API
(psycopg.AsyncConnection, or a synchronous one, for which the event loop then waits), or an open
connection. With a function the writer lives through restarts of the database.

One writer of a name at a time: the one that starts last supersedes the others, whose blocks raise
WriterSuperseded. What a writer that was killed has decided is completed by the next start, and by
a check-back (`oncelog txn check-back`). Needs two-phase commit (KIP-939) on the brokers.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from typing import Any, Self

from ...wire.batch_builder import Headers
from ...wire.errors import KafkaError
from ...wire.identifiers import TopicPartition
from ..failures import ClientClosed
from ..produce.delivery import Deliveries, Delivery
from ..producer import Producer
from ..view_source import Source
from . import kafka_side, steps
from .connection_flow import CLOSED
from .flow import drive_async
from .shielded import ShieldedWork
from .work import DatabaseWork
from .writer_flow import WriterFlow


class DualWork(DatabaseWork):
    """What a block may do."""

    def __init__(self, writer: "DualWriter", producer: Producer) -> None:
        super().__init__(writer)
        self._producer = producer

    async def send(
        self,
        topic: str,
        value: bytes | None = None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """As `Producer.send`."""
        self._used()
        return await self._producer.send(
            topic,
            value,
            key=key,
            partition=partition,
            timestamp_ms=timestamp_ms,
            headers=headers,
        )

    async def send_many(self, topic: str, values: Any, **columns: Any) -> Deliveries:
        """As `Producer.send_many`."""
        self._used()
        return await self._producer.send_many(topic, values, **columns)


class DualWriter(WriterFlow):
    """See the top of the file. For one task at a time."""

    _producer: Producer | None = None

    def __init__(self, source: Source, name: str, connection: Any, /, **options: Any) -> None:
        """As `WriterFlow`."""
        super().__init__(source, name, connection, **options)
        self._shielded = ShieldedWork(name)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Take the name over, and end what older writers have left: as decided, or aborted."""
        try:
            await drive_async(self._start())
        except BaseException:
            with contextlib.suppress(Exception):  # what came first counts
                await self.close()
            raise

    async def close(self) -> None:
        """Close the producer, and the connection where the writer has opened it.

        Before, what is under way is ended, and so is what a cancelled block has left, for
        resolve_timeout_ms at most.
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
        """A block of which all counts, or nothing; then it raises why.

        DecisionInDoubt: nobody knows yet; the next start, or a check-back, finds out. Cancelled at
        its end it may count or not; it comes to its end by itself, which the next block waits for.
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
        """The next offset to read of each partition that blocks have `consumed` from."""
        await self._shielded.ended()
        with self._taken():
            return await drive_async(self._positions())

    async def _new_producer(self, transactional_id: str) -> None:
        if self._producer is not None:
            await self._producer.close()
        self._producer = Producer(self._source, **self._producer_options(transactional_id))

    async def _in_kafka(self, effect: steps.Effect) -> steps.Event:
        producer = self._producer
        if producer is None:  # closed meanwhile
            raise ClientClosed(CLOSED)
        call = kafka_side.own_call(effect, self._protocol.transactional_id)
        if call is None:
            return await kafka_side.perform(effect, producer)
        known = kafka_side.known_event(effect, producer.state)
        if known is not None:
            return known
        try:
            result = await getattr(producer, call)()
        except KafkaError as problem:
            known = kafka_side.known_event(effect, producer.state)  # by a call that was interrupted
            return known or kafka_side.event_after_error(effect, problem)
        return kafka_side.event_after(effect, result, lost_answers=producer.lost_answers)

    async def _pause(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
