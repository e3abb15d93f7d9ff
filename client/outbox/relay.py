"""The relay of an outbox, which sends its rows as records, each once, in Kafka transactions.

    await OutboxRelay("127.0.0.1:9092", "billing", connect).run()

To send a batch, the relay stores the number of the batch in rows of the database. A transaction
sends the records of these rows, and the number to the compacted topic oncelog.outbox.NAME. Then the
rows are deleted. A start calls InitProducerId, which ends an older relay's transaction, and reads
the number of the last sent batch from that topic. Rows of batches up to that number are deleted.
Rows of later batches were not sent, and lose their number. Therefore a relay may be killed at any
point. An older relay that resumes cannot commit in Kafka (its epoch is old), nor number rows (its
generation is old).
"""

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

from ...wire.errors import KafkaError, TopicAlreadyExists
from ..admin import Admin
from ..consumer import Consumer
from ..dual_write.connection_flow import ConnectionFlow
from ..dual_write.flow import drive_async
from ..producer import Producer
from ..view_source import Source
from . import records, table
from .table import OtherDatabase, RelaySuperseded, Row

logger = logging.getLogger(__name__)
PREFIX = "oncelog.outbox."
KEY, START = b"batch", b"start"
BATCH_ROWS_MAX, ROWS_FIRST, EVERY_MS = 500, 16, 100
AGAIN_FIRST_S, AGAIN_LAST_S = 0.1, 10.0
READ_TIMEOUT_S = 60.0
TAIL_OFFSETS = 1_000  # the first range of offsets that a start reads


class OutboxRelay(ConnectionFlow):
    """A relay of one outbox. If two relays have one name, only the one that started later works."""

    def __init__(
        self,
        source: Source,
        name: str,
        connection: Callable[[], Any],
        *,
        batch_rows_max: int = BATCH_ROWS_MAX,
        replication_factor: int = -1,
        **options: Any,
    ) -> None:
        """Create a relay. `connection` is a function that opens a database connection.

        `options` are settings of the producer.
        """
        super().__init__(name, connection)
        self._source, self._options = source, options
        self._rows_max, self._replication_factor = batch_rows_max, replication_factor
        self.topic = f"{PREFIX}{self.name}"
        self._producer: Producer | None = None
        self._generation = self._sent = 0
        self._rows_next = min(batch_rows_max, ROWS_FIRST)
        self._origin = ""
        self.is_idle = False  # the last batch was empty

    async def run(self, *, every_ms: int = EVERY_MS) -> None:
        """Send batches until cancelled. After an error, start again and continue.

        Raises RelaySuperseded, OtherDatabase.
        """
        pause_s, self._generation = AGAIN_FIRST_S, 0
        try:
            while True:
                try:
                    await self._start(self._generation or None)
                    while True:
                        if not await self.send_batch():
                            await asyncio.sleep(every_ms / 1000)
                        pause_s = AGAIN_FIRST_S
                except (RelaySuperseded, OtherDatabase):
                    raise
                except Exception as problem:
                    logger.warning(
                        "outbox %s: the relay starts again after an error: %s", self.name, problem
                    )
                    await self.close()
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, AGAIN_LAST_S)
        finally:
            await self.close()

    async def start(self) -> None:
        """Abort open transactions of older relays, and find the last sent batch.

        The relay claims its generation before it calls InitProducerId. If two relays start at once,
        only the one with the newest generation can give batch numbers to rows. Therefore a relay
        that can send records, but has an old generation, has no rows to send.
        """
        await self._start(None)

    async def _start(self, latest: int | None) -> None:
        """Start the relay. If the database has a generation above `latest`, raise RelaySuperseded.

        latest: the highest generation of this relay.
        """
        await self.close()
        await drive_async(self._open())
        await drive_async(self._run(table.create_tables()))
        await self._create_topic()
        claim = table.claim(self.name, latest)
        try:
            self._generation, self._origin = await drive_async(self._run(claim))
        except table.ClaimInDoubt:
            self._generation += bool(latest)  # the next generation may be its own
            raise
        self._producer = Producer(self._source, **{**self._options, "transactional_id": self.topic})
        await self._producer.init_transactions()
        self._sent = await self._last_sent()
        await drive_async(self._run(table.take_back(self.name, self._generation, self._sent)))
        await drive_async(self._run(table.delete_sent(self.name, self._sent)))

    async def send_batch(self) -> int:
        """Send the next batch and return its number of records.

        After an error call `start` again.
        """
        batch = self._sent + 1
        script = table.next_batch(self.name, self._generation, batch, self._rows_next)
        rows: list[Row] = await drive_async(self._run(script))
        self.is_idle = not rows
        # Batches of large rows are small: reading hundreds of lengths more would be wasted.
        self._rows_next = min(self._rows_max, max(2 * len(rows), ROWS_FIRST))
        if not rows:
            return 0
        try:
            await self._send(rows, batch)
        except KafkaError as problem:
            await self._raise_if_superseded(problem)
            raise
        self._sent = batch
        await drive_async(self._run(table.delete_batch(self.name, batch, rows)))
        return len(rows)

    async def close(self) -> None:
        """Close the producer and the database connection."""
        producer, self._producer = self._producer, None
        try:
            if producer is not None:
                await producer.close()
        except KafkaError as problem:  # the next start ends its transaction
            logger.debug("outbox %s: closing the producer failed: %s", self.name, problem)
        finally:
            await drive_async(self._close_connection())

    async def _send(self, rows: list[Row], batch: int) -> None:
        producer = self._producer
        assert producer is not None
        await producer.begin_transaction()
        for row in rows:
            await producer.send(row.topic, **records.of_text(row.record))
        number = json.dumps({"batch": batch, "origin": self._origin})
        await producer.send(self.topic, number.encode(), key=KEY)
        await producer.commit_transaction()

    async def _raise_if_superseded(self, problem: KafkaError) -> None:
        """Raise RelaySuperseded if the generation in the database shows that another relay has
        started.

        Kafka's error alone does not show that, because a timeout or an expired id fences a producer
        too. If this relay started anew without the check, it would fence its successor.
        """
        if await drive_async(self._run(table.read_generation(self.name))) > self._generation:
            raise RelaySuperseded(
                f"another relay of outbox {self.name!r} has started: {problem}"
            ) from problem

    async def _create_topic(self) -> None:
        async with Admin(self._source) as admin:
            try:
                await admin.create_topic(
                    self.topic,
                    partitions=1,
                    replication_factor=self._replication_factor,
                    configs={"cleanup.policy": "compact"},
                )
            except TopicAlreadyExists:
                return

    async def _mark_start(self) -> int:
        """Write a marker record to the topic, and return the offset after the marker.

        All sent batches come before the marker. The end offset of a deposed leader that has not yet
        noticed its deposition would be too low, but the marker shows whether the leader is current.
        The marker is aborted, since older relays take every visible record for the number of a
        batch.
        """
        producer = self._producer
        assert producer is not None
        await producer.begin_transaction()
        delivery = await producer.send(self.topic, b"", key=START)
        await producer.flush()
        offset = (await delivery).offset
        await producer.abort_transaction()
        if offset < 0:  # the broker knew it as a duplicate, and did not return its offset
            raise KafkaError(f"it is not known where the mark of a start stands in {self.topic}")
        return offset + 1

    async def _last_sent(self) -> int:
        """Return the number of the last sent batch, or 0 without one.

        The caller has ended the transactions of older relays. The search begins near the end,
        because the newest segment, of up to a gigabyte or a week, is not compacted.
        """
        key = (self.topic, 0)
        async with asyncio.timeout(READ_TIMEOUT_S):
            end = await self._mark_start()
            settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
            async with Consumer(self._source, **settings) as consumer:
                last, start, length = 0, end, TAIL_OFFSETS
                found: dict[str, Any] = {}
                while not last and start > 0:  # all records there were aborted: read more
                    start, length = max(0, end - length), 10 * length
                    consumer.assign({key: start})
                    while consumer.position(*key) < end:
                        for record in await consumer.poll(100):
                            if record.key == KEY:  # no marker: some releases committed theirs
                                found = json.loads(record.value or b"{}")
                                last = int(found["batch"])
        if found.get("origin", self._origin) != self._origin:
            raise OtherDatabase(
                f"batch {last} of outbox {self.name!r} was sent from another database: its numbers "
                "say nothing about the rows of this one. Give the outboxes of two databases two "
                "names. If this database has replaced the other one, whose relay is stopped and "
                f"whose rows are sent, delete the topic {self.topic}"
            )
        return last
