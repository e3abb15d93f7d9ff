"""Orders become invoices: outputs and offsets in one transaction, an id for each instance."""

import asyncio
import os
import signal

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

SERVERS, GROUP = os.environ["KAFKA_BOOTSTRAP_SERVERS"], os.environ["ONCELOG_GROUP"]


async def main() -> None:
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    consumer = AIOKafkaConsumer(
        os.environ["ONCELOG_IN"], bootstrap_servers=SERVERS, group_id=GROUP,
        auto_offset_reset="earliest", enable_auto_commit=False, isolation_level="read_committed",
    )  # fmt: skip
    producer = AIOKafkaProducer(
        bootstrap_servers=SERVERS, transactional_id=f"{GROUP}-{os.environ['ONCELOG_INSTANCE']}"
    )
    await consumer.start()
    await producer.start()
    try:
        while not over.is_set():
            taken = await consumer.getmany(timeout_ms=200)
            if not taken:
                continue
            async with producer.transaction():
                ends = {}
                for partition, messages in taken.items():
                    for message in messages:
                        await producer.send(
                            os.environ["ONCELOG_OUT"], key=message.key, value=message.value
                        )
                    ends[partition] = messages[-1].offset + 1
                await producer.send_offsets_to_transaction(ends, GROUP)
    finally:
        await consumer.stop()
        await producer.stop()


asyncio.run(main())
