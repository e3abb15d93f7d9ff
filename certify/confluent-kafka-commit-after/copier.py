"""Orders become invoices: produce, flush, then commit the offsets."""

import os
import signal

from confluent_kafka import Consumer, KafkaException, Producer

over: list[int] = []
failed: list[object] = []
signal.signal(signal.SIGTERM, lambda number, _: over.append(number))
servers = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
consumer = Consumer({
    "bootstrap.servers": servers,
    "group.id": os.environ["ONCELOG_GROUP"],
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
})  # fmt: skip
producer = Producer({"bootstrap.servers": servers, "acks": "all"})


def delivered(error, message):
    """Remember what was not delivered: its offset must not be committed."""
    if error is not None:
        failed.append(error)


consumer.subscribe([os.environ["ONCELOG_IN"]])
while not over:
    messages = consumer.consume(50, 0.2)
    for message in messages:
        if message.error():
            raise KafkaException(message.error())
        producer.produce(
            os.environ["ONCELOG_OUT"], message.value(), message.key(), on_delivery=delivered
        )
    if messages:
        producer.flush()
        if failed:
            raise KafkaException(failed[0])
        consumer.commit(asynchronous=False)
consumer.close()
