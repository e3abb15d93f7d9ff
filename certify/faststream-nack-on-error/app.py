"""Orders become invoices, with FastStream on confluent-kafka.

acks="all": the page promises nothing of a leader that dies with what it alone had.
"""

import asyncio
import os

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker
from faststream.confluent.annotations import KafkaMessage

broker = KafkaBroker(os.environ["KAFKA_BOOTSTRAP_SERVERS"], acks="all")
app = FastStream(broker)


@broker.subscriber(
    os.environ["ONCELOG_IN"],
    group_id=os.environ["ONCELOG_GROUP"],
    auto_offset_reset="earliest",
    ack_policy=AckPolicy.NACK_ON_ERROR,
)
async def invoicing(body: dict, message: KafkaMessage) -> None:
    """Write an invoice for each order."""
    await broker.publish(body, os.environ["ONCELOG_OUT"], key=message.raw_message.key())


if __name__ == "__main__":
    asyncio.run(app.run())
