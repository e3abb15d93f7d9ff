# type: ignore
"""Use one transactional id for each instance, and send the offsets in the transaction.

The author of this wrong program assumes that the id fences zombies.
"""

import asyncio
import os

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener

BOOTSTRAP = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
GROUP = "invoicing"


class FinishFirst(ConsumerRebalanceListener):
    """A rebalance listener that waits until the open transaction is committed."""

    def __init__(self):
        self.busy = asyncio.Lock()

    async def on_partitions_revoked(self, revoked):
        async with self.busy:
            pass

    async def on_partitions_assigned(self, assigned): ...


async def main():
    consumer = AIOKafkaConsumer(
        bootstrap_servers=BOOTSTRAP,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=BOOTSTRAP,
        transactional_id=f"invoicing-{os.environ['ONCELOG_INSTANCE']}",
    )
    listener = FinishFirst()
    consumer.subscribe([os.environ["ONCELOG_IN"]], listener=listener)
    async with producer, consumer:
        while True:
            batches = await consumer.getmany(timeout_ms=1000, max_records=200)
            if not batches:
                continue
            async with listener.busy, producer.transaction():
                for records in batches.values():
                    for record in records:
                        value = record.value.upper()
                        await producer.send(os.environ["ONCELOG_OUT"], value, record.key)
                offsets = {at: records[-1].offset + 1 for at, records in batches.items()}
                await producer.send_offsets_to_transaction(offsets, GROUP)


asyncio.run(main())
