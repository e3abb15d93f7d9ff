"""One transaction over Kafka and a database, for programs without an event loop.

    with BlockingDualWriter("127.0.0.1:9092", "billing", connect) as writer:
        with writer.transaction() as work:
            work.execute("UPDATE accounts SET balance = balance - ? WHERE id = ?", (5, 1))
            work.send("transfers", b"...")

These classes are those of writer.py without `await`. The caller's thread uses the connection.
"""

import contextlib
import time
from collections.abc import Generator
from typing import Any, Self, Unpack

from ...wire.identifiers import TopicPartition
from ..blocking_producer import BlockingProducer, HandedDelivery
from ..produce.delivery import Deliveries
from ..producer import Producer
from . import kafka_side, steps
from .flow import drive
from .work import BlockingDatabaseWork, RecordFields
from .writer_flow import WriterFlow


class BlockingDualWork(BlockingDatabaseWork):
    """One block of a blocking writer, in which the application writes rows and sends records."""

    def __init__(self, writer: "BlockingDualWriter", producer: BlockingProducer) -> None:
        super().__init__(writer)
        self._producer, self._within = producer, producer.transaction

    def send(
        self, topic: str, value: bytes | None = None, **fields: Unpack[RecordFields]
    ) -> HandedDelivery:
        """Send as `BlockingProducer.send` does.

        A record's error is raised at the end of the block.
        """
        self._used()
        return self._producer.send(topic, value, **fields, within=self._within)

    def send_many(self, topic: str, values: Any, **columns: Any) -> Deliveries:
        """Send as `BlockingProducer.send_many` does."""
        self._used()
        return self._producer.send_many(topic, values, within=self._within, **columns)


class BlockingDualWriter(WriterFlow):
    """A blocking dual writer, for one thread at a time."""

    _producer: BlockingProducer | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Fence older writers and end their transactions, as `DualWriter.start` does."""
        try:
            drive(self._start())
        except BaseException:
            with contextlib.suppress(Exception):  # the first error counts
                self.close()
            raise

    def close(self) -> None:
        """Close as `DualWriter.close` does."""
        self._is_closed = True
        try:
            if not self._is_taken:  # a block of another thread may be ending
                drive(self._settle_at_close())
        finally:
            try:
                if self._producer is not None:
                    self._producer.close()
                    self._producer = None  # only now, for a close after an interrupted one
            finally:
                drive(self._close_connection())

    @contextlib.contextmanager
    def transaction(self) -> Generator[BlockingDualWork]:
        """Open a block as `DualWriter.transaction` does."""
        with self._taken():
            drive(self._begin_block())
            assert self._producer is not None
            try:
                with BlockingDualWork(self, self._producer).opened() as work:
                    yield work
            except BaseException as problem:
                drive(self._block_failed(problem))
                raise
            drive(self._block_done())

    def positions(self) -> dict[TopicPartition, int]:
        """Return the positions as `DualWriter.positions` does."""
        with self._taken():
            return drive(self._positions())

    def _new_producer(self, transactional_id: str) -> None:
        if self._producer is not None:
            self._producer.close()
        self._producer = BlockingProducer(self._source, **self._producer_options(transactional_id))

    def _for_others(self, effect: steps.Effect, producer: BlockingProducer) -> steps.Event:
        return producer.run(lambda own: kafka_side.perform(effect, own))

    def _lost_answers(self, producer: BlockingProducer) -> int:
        return producer.run(_lost_answers)

    def _pause(self, pause_s: float) -> None:
        time.sleep(pause_s)


async def _lost_answers(producer: Producer) -> int:
    return producer.lost_answers
