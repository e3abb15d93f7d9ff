"""The application of the lesson, which writes one invoice for each order, in one of three ways.

    python -m oncelog.proof.lesson.application '{"bootstrap": ..., "way": ..., ...}'

The ways are at most once, at least once and exactly once. With the way `LEAVES_OPEN` it writes one
order instead, in a transaction that it never ends. The application processes ten orders at a
time with a pause of `pause_s` for each, so that a kill happens within a batch. Each finished step
is reported on stdout, as a line of JSON.
"""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

from ...client.consumer import Consumer
from ...client.fetch.record_reader import ConsumerRecord
from ...client.producer import Producer
from ...wire.errors import InvalidProducerEpoch, KafkaError, ProducerFenced

AT_MOST_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE = "at most once", "at least once", "exactly once"
LEAVES_OPEN = "leaves a transaction open"
AT_A_TIME = 10
SESSION_MS, OPEN_FOR_MS = 1_500, 900_000
FENCED = 4  # exit code


@dataclass(frozen=True, slots=True, kw_only=True)
class LessonSettings:
    """The settings of one application.

    orders, invoices: topics. name: the transactional id and the group. parent: the pid of the
    lesson, with which the application ends.
    """

    bootstrap: str
    way: str
    orders: str
    invoices: str
    name: str
    parent: int
    pause_s: float


class InvoicingApplication:
    """An application that writes one invoice for each order, in the way that the settings name."""

    def __init__(self, settings: LessonSettings) -> None:
        self._settings, self._count = settings, 0
        connection = {"bootstrap.servers": settings.bootstrap}
        own: dict[str, Any] = {}
        if settings.way in (EXACTLY_ONCE, LEAVES_OPEN):
            own = {"transactional.id": settings.name, "transaction.timeout.ms": OPEN_FOR_MS}
        self._producer = Producer({**connection, **own})
        self._consumer = Consumer(
            {
                **connection,
                "group.id": settings.name,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": SESSION_MS // 3,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )

    async def run(self) -> None:
        """Write invoices until the process of the lesson is gone."""
        async with self._producer as producer, self._consumer as consumer:
            if self._settings.way in (EXACTLY_ONCE, LEAVES_OPEN):
                await producer.init_transactions()
            if self._settings.way == LEAVES_OPEN:
                return await self._leave_open()
            consumer.subscribe([self._settings.orders])
            while os.getppid() == self._settings.parent:
                records = await consumer.poll(500, AT_A_TIME)
                if records:
                    await self._batch(records)
                else:
                    _report("idle")

    async def _batch(self, records: list[ConsumerRecord]) -> None:
        if self._settings.way == AT_MOST_ONCE:
            await self._consumer.commit()
            await self._invoice(records)
        elif self._settings.way == AT_LEAST_ONCE:
            await self._invoice(records)
            await self._consumer.commit()
        else:
            await self._producer.begin_transaction()
            await self._invoice(records)
            ends = {(r.topic, r.partition): r.offset + 1 for r in records}
            group = self._consumer.group_metadata()
            await self._producer.send_offsets_to_transaction(ends, group)
            await self._producer.commit_transaction()

    async def _invoice(self, records: list[ConsumerRecord]) -> None:
        for record in records:
            await asyncio.sleep(self._settings.pause_s)
            await self._producer.send(self._settings.invoices, record.value)
            await self._producer.flush()
            self._count += 1
            _report("invoiced", self._count)

    async def _leave_open(self) -> None:
        """Begin a transaction, write an order, and never end it."""
        await self._producer.begin_transaction()
        await self._producer.send(self._settings.orders, b"an order that is never committed")
        await self._producer.flush()
        _report("open")
        while os.getppid() == self._settings.parent:
            await asyncio.sleep(self._settings.pause_s)
        os._exit(0)  # a close would abort it


def _report(event: str, *arguments: object) -> None:
    print(json.dumps([event, *arguments]), flush=True)


async def _main(settings: LessonSettings) -> int:
    try:
        await InvoicingApplication(settings).run()
    except (ProducerFenced, InvalidProducerEpoch) as problem:
        _report("fenced", str(problem))
        return FENCED
    except KafkaError as problem:
        _report("failed", str(problem))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main(LessonSettings(**json.loads(sys.argv[1])))))
