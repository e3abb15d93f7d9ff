"""A correct application with two inputs and two outputs, which ends on any failure.

Large orders and payments go to one topic, free ones to no topic, and the rest to the other topic.
The application is restarted when it ends.
"""

import json
import os
import signal

from confluent_kafka import Consumer, Producer

over: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: over.append(number))
bootstrap = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
consumer = Consumer({
    "bootstrap.servers": bootstrap,
    "group.id": "routing",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
})  # fmt: skip
name = f"routing-{os.environ['ONCELOG_INSTANCE']}"
producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
large, small = os.environ["ONCELOG_OUT"].split(",")
membership = None


def assigned(consumer, partitions):
    global membership
    membership = consumer.consumer_group_metadata()


producer.init_transactions(30)
consumer.subscribe(os.environ["ONCELOG_IN"].split(","), on_assign=assigned)
while not over:
    messages = [m for m in consumer.consume(50, 0.2) if m.error() is None]
    if not messages:
        continue
    producer.begin_transaction()
    for message in messages:
        amount = json.loads(message.value() or b"")["amount"]
        if amount:
            producer.produce(large if amount >= 50 else small, message.value(), message.key())
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, membership, 30)
    producer.commit_transaction(30)
consumer.close()
