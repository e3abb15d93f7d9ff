"""A wrong application that flushes its outputs and then commits the offsets.

If it crashes between the two, the outputs are written again.
"""

import os
import signal

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer


def delivered(error: KafkaError | None, message: Message) -> None:
    if error is not None:
        raise KafkaException(error)  # from `flush`


over: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: over.append(number))
bootstrap = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
consumer = Consumer({
    "bootstrap.servers": bootstrap,
    "group.id": "invoicing",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
})  # fmt: skip
producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
out = os.environ["ONCELOG_OUT"]
consumer.subscribe([os.environ["ONCELOG_IN"]])
while not over:
    messages = [m for m in consumer.consume(50, 0.2) if m.error() is None]
    for message in messages:
        producer.produce(out, message.value(), message.key(), on_delivery=delivered)
    if messages:
        producer.flush()
        consumer.commit(asynchronous=False)
consumer.close()
