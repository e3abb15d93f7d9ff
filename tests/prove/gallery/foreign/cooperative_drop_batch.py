# type: ignore
"""A wrong application that drops its batch at a rebalance or an abort, without a seek back.

The author of this program assumes that Kafka delivers all uncommitted records again.
"""

import os
import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

BOOTSTRAP = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
batch = []

consumer = Consumer(
    {
        "bootstrap.servers": BOOTSTRAP,
        "group.id": "invoicing",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        # Only the partitions that move stand still during a rebalance.
        "partition.assignment.strategy": "cooperative-sticky",
    }
)
name = f"invoicing-{os.environ['ONCELOG_INSTANCE']}"
producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": name})


def on_revoke(_consumer, _partitions):
    """Drop the batch. The author assumes that the next owner reads all of its records again."""
    batch.clear()


def fill_batch():
    until = time.monotonic() + 0.5
    while len(batch) < 100 and time.monotonic() < until:
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        batch.append(message)


producer.init_transactions()
consumer.subscribe([os.environ["ONCELOG_IN"]], on_revoke=on_revoke)
try:
    while True:
        fill_batch()
        if not batch:
            continue
        group = consumer.consumer_group_metadata()
        producer.begin_transaction()
        offsets = {}
        for message in batch:
            producer.produce(os.environ["ONCELOG_OUT"], message.value().upper(), message.key())
            offsets[message.topic(), message.partition()] = message.offset() + 1
        positions = [TopicPartition(*at, offset) for at, offset in offsets.items()]
        try:
            producer.send_offsets_to_transaction(positions, group)
            producer.commit_transaction()
        except KafkaException as failed:
            if not failed.args[0].txn_requires_abort():
                raise
            producer.abort_transaction()
        batch.clear()
finally:
    consumer.close()
