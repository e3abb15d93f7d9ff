"""A wrong application with transactions and offsets, but without the group's generation.

Each process assumes that it is the only one (without KIP-447 fencing).
"""

import os
import signal

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

over: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: over.append(number))
bootstrap = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
settings = {
    "bootstrap.servers": bootstrap,
    "group.id": "invoicing",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
}
consumer = Consumer(settings)
outsider = Consumer(settings)  # joins no group: its metadata names no member
producer = Producer({
    "bootstrap.servers": bootstrap,
    "transactional.id": f"invoicing-{os.environ['ONCELOG_INSTANCE']}",
})  # fmt: skip
producer.init_transactions()
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
        producer.send_offsets_to_transaction(positions, outsider.consumer_group_metadata())
        producer.commit_transaction()
    except KafkaException as problem:
        if not problem.args[0].txn_requires_abort():
            raise
        producer.abort_transaction()
        for one in consumer.committed(consumer.assignment(), 10):
            consumer.seek(TopicPartition(one.topic, one.partition, max(one.offset, 0)))
consumer.close()
