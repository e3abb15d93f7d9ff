"""Orders become invoices, one at a time, with auto-commit.

acks="all": the page promises nothing of a leader that dies with what it alone had.
"""

import asyncio
import os
import signal

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

SERVERS = os.environ["KAFKA_BOOTSTRAP_SERVERS"]


async def main() -> None:
    consumer = AIOKafkaConsumer(
        os.environ["ONCELOG_IN"], bootstrap_servers=SERVERS, group_id=os.environ["ONCELOG_GROUP"],
        auto_offset_reset="earliest",
    )  # fmt: skip
    producer = AIOKafkaProducer(bootstrap_servers=SERVERS, acks="all")
    await consumer.start()
    await producer.start()
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        async for message in consumer:
            await producer.send_and_wait(
                os.environ["ONCELOG_OUT"], key=message.key, value=message.value
            )
    except asyncio.CancelledError:
        return
    finally:
        await consumer.stop()
        await producer.stop()


asyncio.run(main())
