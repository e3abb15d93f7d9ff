# type: ignore
"""A wrong application with four workers, each with its own transactions.

They commit the offset of the furthest finished record, while earlier records are unfinished.
"""

import os
import queue
import sys
import threading

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

BOOTSTRAP = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
queues = [queue.Queue(maxsize=1000) for _ in range(4)]
finished = {}  # (topic, partition) -> the offset after the furthest record that is done
committing = threading.Lock()  # the offset never goes backwards
group = None


def work(number, orders):
    name = f"invoicing-{os.environ['ONCELOG_INSTANCE']}-{number}"
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": name})
    producer.init_transactions()
    while True:
        batch = [orders.get()]
        while len(batch) < 50 and not orders.empty():  # only this thread takes from it
            batch.append(orders.get())
        producer.begin_transaction()
        for order in batch:
            producer.produce(os.environ["ONCELOG_OUT"], order.value().upper(), order.key())
        producer.flush()
        with committing:
            for order in batch:
                at = order.topic(), order.partition()
                finished[at] = max(finished.get(at, 0), order.offset() + 1)
            offsets = [TopicPartition(*at, offset) for at, offset in finished.items()]
            producer.send_offsets_to_transaction(offsets, group)
            producer.commit_transaction()
        for _ in batch:
            orders.task_done()


def on_assign(consumer, _partitions):
    global group
    group = consumer.consumer_group_metadata()


def on_revoke(_consumer, _partitions):
    for orders in queues:
        orders.join()
    finished.clear()


threading.excepthook = lambda failed: (sys.excepthook(*failed[:3]), os._exit(1))
for started in enumerate(queues):
    threading.Thread(target=work, args=started, daemon=True).start()
settings = {"group.id": "invoicing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
consumer = Consumer(settings | {"bootstrap.servers": BOOTSTRAP})
consumer.subscribe([os.environ["ONCELOG_IN"]], on_assign=on_assign, on_revoke=on_revoke)
try:
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        queues[sum(message.key()) % len(queues)].put(message)
finally:
    consumer.close()
