# type: ignore
"""A wrong application that repeats its batch with a new producer after a fence.

It uses a transactional id for each partition, and the new owner has the same id.
"""

import asyncio
import logging
import os

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener
from aiokafka.errors import ProducerFenced

BOOTSTRAP = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
OUT = os.environ["ONCELOG_OUT"]
GROUP = "invoicing"
READ = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}


class Invoicing(ConsumerRebalanceListener):
    def __init__(self):
        self.busy, self.producers = asyncio.Lock(), {}

    async def on_partitions_revoked(self, revoked):
        async with self.busy:
            while self.producers:
                await self.producers.popitem()[1].stop()

    async def on_partitions_assigned(self, assigned): ...

    async def open_producer(self, at):
        name = f"{GROUP}-{at.topic}-{at.partition}"
        producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, transactional_id=name)
        await producer.start()
        self.producers[at] = producer

    async def invoice(self, at, records):
        producer = self.producers[at]
        try:
            async with producer.transaction():
                for record in records:
                    await producer.send(OUT, record.value.upper(), record.key)
                await producer.send_offsets_to_transaction({at: records[-1].offset + 1}, GROUP)
        except ProducerFenced:
            logging.warning("the producer of %s is of no use any more", at)
            await producer.stop()
            await self.open_producer(at)
            await self.invoice(at, records)

    async def run(self):
        consumer = AIOKafkaConsumer(
            bootstrap_servers=BOOTSTRAP, group_id=GROUP, enable_auto_commit=False, **READ
        )
        consumer.subscribe([os.environ["ONCELOG_IN"]], listener=self)
        async with consumer:
            while True:
                batches = await consumer.getmany(timeout_ms=1000, max_records=200)
                async with self.busy:
                    for at, records in batches.items():
                        if at in self.producers:
                            await self.invoice(at, records)
                        else:  # fence the owner before, then read on from what it committed
                            await self.open_producer(at)
                            committed = await consumer.committed(at)
                            consumer.seek(at, committed or records[0].offset)


asyncio.run(Invoicing().run())
