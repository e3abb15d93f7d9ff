"""Orders become invoices: outputs and offsets in one transaction of librdkafka."""

import os
import signal

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

over: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: over.append(number))
servers, group = os.environ["KAFKA_BOOTSTRAP_SERVERS"], os.environ["ONCELOG_GROUP"]
consumer = Consumer({
    "bootstrap.servers": servers,
    "group.id": group,
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
})  # fmt: skip
producer = Producer({
    "bootstrap.servers": servers,
    "transactional.id": f"{group}-{os.environ['ONCELOG_INSTANCE']}",
})  # fmt: skip


def insist(call, *arguments):
    """Call again while the error says that this may help."""
    while True:
        try:
            return call(*arguments)
        except KafkaException as problem:
            if not problem.args[0].retriable():
                raise


insist(producer.init_transactions)
consumer.subscribe([os.environ["ONCELOG_IN"]])
while not over:
    messages = [m for m in consumer.consume(50, 0.2) if m.error() is None]
    if not messages:
        continue
    try:
        producer.begin_transaction()
        for message in messages:
            producer.produce(os.environ["ONCELOG_OUT"], message.value(), message.key())
        positions = consumer.position(consumer.assignment())
        membership = consumer.consumer_group_metadata()
        insist(producer.send_offsets_to_transaction, positions, membership)
        insist(producer.commit_transaction)
    except KafkaException as problem:
        if not problem.args[0].txn_requires_abort():
            raise
        insist(producer.abort_transaction)
        for one in insist(consumer.committed, consumer.assignment(), 10):
            consumer.seek(TopicPartition(one.topic, one.partition, max(one.offset, 0)))
consumer.close()
