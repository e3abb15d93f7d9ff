"""A correct application with outputs and offsets in one transaction, with group metadata.

The metadata is read at the assignment. librdkafka forgets the metadata when its session is lost,
and metadata without a member is not fenced. After an abort the application seeks to the committed
offsets.
"""

import os
import signal

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

over: list[int] = []
membership = None
signal.signal(signal.SIGTERM, lambda number, _: over.append(number))
settings = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
if "ONCELOG_CLIENT_CONFIG" in os.environ:  # on a secured cluster
    with open(os.environ["ONCELOG_CLIENT_CONFIG"]) as file:
        settings = dict(line.rstrip("\n").split("=", 1) for line in file)
consumer = Consumer({
    **settings,
    "group.id": "invoicing",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
})  # fmt: skip
producer = Producer({
    **settings,
    "transactional.id": f"invoicing-{os.environ['ONCELOG_INSTANCE']}",
})  # fmt: skip


def insist(call, *arguments):
    """Repeat the call while the library reports that a retry may help."""
    while True:
        try:
            return call(*arguments)
        except KafkaException as problem:
            if not problem.args[0].retriable():
                raise


def go_back():
    for one in insist(consumer.committed, consumer.assignment(), 10):
        consumer.seek(TopicPartition(one.topic, one.partition, max(one.offset, 0)))


def assigned(consumer, partitions):
    global membership
    membership = consumer.consumer_group_metadata()


insist(producer.init_transactions)
consumer.subscribe([os.environ["ONCELOG_IN"]], on_assign=assigned)
while not over:
    messages = [m for m in consumer.consume(50, 0.2) if m.error() is None]
    if not messages:
        continue
    try:
        producer.begin_transaction()
        for message in messages:
            producer.produce(os.environ["ONCELOG_OUT"], message.value(), message.key())
        positions = consumer.position(consumer.assignment())
        insist(producer.send_offsets_to_transaction, positions, membership)
        insist(producer.commit_transaction)
    except KafkaException as problem:
        if not problem.args[0].txn_requires_abort():
            raise
        insist(producer.abort_transaction)
        go_back()
consumer.close()
