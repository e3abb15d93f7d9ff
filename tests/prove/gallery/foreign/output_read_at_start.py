# type: ignore
"""A wrong application that skips an input if it found the output of that input at its start.

Outputs that other instances write later are not found.
"""

import asyncio
import os

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener

BOOTSTRAP = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
OUT = os.environ["ONCELOG_OUT"]


class FinishFirst(ConsumerRebalanceListener):
    """A rebalance listener that waits until the current batch is written and committed."""

    def __init__(self):
        self.busy = asyncio.Lock()

    async def on_partitions_revoked(self, revoked):
        async with self.busy:
            return

    async def on_partitions_assigned(self, assigned): ...


async def read_done():
    done = set()
    consumer = AIOKafkaConsumer(OUT, bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest")
    async with consumer:
        for at, end in (await consumer.end_offsets(consumer.assignment())).items():
            while await consumer.position(at) < end:
                records = await consumer.getmany(at, timeout_ms=1000)
                done.update(record.key for record in records.get(at, []))
    return done


async def main():
    done = await read_done()
    consumer = AIOKafkaConsumer(
        bootstrap_servers=BOOTSTRAP,
        group_id="invoicing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(bootstrap_servers=BOOTSTRAP, enable_idempotence=True)
    listener = FinishFirst()
    consumer.subscribe([os.environ["ONCELOG_IN"]], listener=listener)
    async with producer, consumer:
        while True:
            batches = await consumer.getmany(timeout_ms=1000, max_records=200)
            async with listener.busy:
                for at, records in batches.items():
                    for record in records:
                        if record.key not in done:
                            await producer.send(OUT, record.value.upper(), record.key)
                    await producer.flush()
                    done.update(record.key for record in records)
                    await consumer.commit({at: records[-1].offset + 1})


asyncio.run(main())
