"""Orders become invoices, with FastStream on confluent-kafka.

enable_idempotence: the page speaks of consuming, so retries of the producer must not count.
"""

import asyncio
import os

from faststream import FastStream
from faststream.confluent import KafkaBroker
from faststream.confluent.annotations import KafkaMessage

broker = KafkaBroker(os.environ["KAFKA_BOOTSTRAP_SERVERS"], enable_idempotence=True)
app = FastStream(broker)


@broker.subscriber(
    os.environ["ONCELOG_IN"],
    group_id=os.environ["ONCELOG_GROUP"],
    auto_offset_reset="earliest",
)
async def invoicing(body: dict, message: KafkaMessage) -> None:
    """Write an invoice for each order."""
    await broker.publish(body, os.environ["ONCELOG_OUT"], key=message.raw_message.key())


if __name__ == "__main__":
    asyncio.run(app.run())
