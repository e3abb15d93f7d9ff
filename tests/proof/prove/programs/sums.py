"""An application that writes running sums by customer, in a transaction with the offsets.

With REBUILDS=1 it reads its state back from its own output when it gets partitions. Without that it
is wrong.
"""

import json
import os
import signal
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

over: list[int] = []
membership = None
signal.signal(signal.SIGTERM, lambda number, _: over.append(number))
bootstrap = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
reads: dict[str, Any] = {
    **bootstrap,
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
}
consumer = Consumer({**reads, "group.id": "sums"})
producer = Producer(
    {**bootstrap, "transactional.id": f"sums-{os.environ['ONCELOG_INSTANCE']}"}
)  # fmt: skip
source, target = os.environ["ONCELOG_IN"], os.environ["ONCELOG_OUT"]
sums: dict[str, int] = {}


def insist(call, *arguments):
    while True:
        try:
            return call(*arguments)
        except KafkaException as problem:
            if not problem.args[0].retriable():
                raise


def rebuild():
    """Clear `sums`. With REBUILDS=1, fill it with the last committed sums of the output."""
    sums.clear()
    if not os.environ.get("REBUILDS"):
        return
    reader = Consumer({**reads, "group.id": "unused", "enable.partition.eof": True})
    ends = set(reader.list_topics(target, 10).topics[target].partitions)
    reader.assign([TopicPartition(target, p, 0) for p in ends])
    while ends:
        message: Any = reader.poll(5)
        if message is not None and message.error():
            ends.discard(message.partition())
        elif message is not None:
            sums[message.key().decode()] = json.loads(message.value())
    reader.close()


def assigned(consumer, partitions):
    global membership
    membership = consumer.consumer_group_metadata()
    found = insist(consumer.committed, partitions, 10)
    rebuild()
    consumer.assign([TopicPartition(p.topic, p.partition, max(p.offset, 0)) for p in found])


insist(producer.init_transactions)
consumer.subscribe([source], on_assign=assigned)
while not over:
    messages = [m for m in consumer.consume(50, 0.2) if m.error() is None]
    if not messages:
        continue
    try:
        producer.begin_transaction()
        each: Any
        for each in messages:
            order, customer = json.loads(each.value()), each.key().decode()
            sums[customer] = sums.get(customer, 0) + order["amount"]
            producer.produce(target, json.dumps(sums[customer]), customer)
        positions = consumer.position(consumer.assignment())
        insist(producer.send_offsets_to_transaction, positions, membership)
        insist(producer.commit_transaction)
    except KafkaException as problem:
        if not problem.args[0].txn_requires_abort():
            raise
        insist(producer.abort_transaction)
        assigned(consumer, consumer.assignment())
consumer.close()
