# type: ignore
"""A wrong application that writes ten records in each transaction, and commits its position.

The position is the end of the whole poll, which may have more records.
"""

import os

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata

BOOTSTRAP = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
CHUNK = 10

consumer = KafkaConsumer(
    bootstrap_servers=BOOTSTRAP,
    group_id="invoicing",
    auto_offset_reset="earliest",
    enable_auto_commit=False,
    isolation_level="read_committed",
)
producer = KafkaProducer(
    bootstrap_servers=BOOTSTRAP,
    transactional_id=f"invoicing-{os.environ['ONCELOG_INSTANCE']}",
)


class Membership(ConsumerRebalanceListener):
    """The group metadata at the time when the records were read.

    A later generation must not commit these records.
    """

    group = None

    def on_partitions_revoked(self, revoked): ...

    def on_partitions_assigned(self, assigned):
        self.group = consumer.group_metadata()


def invoice(partition, chunk):
    producer.begin_transaction()
    for record in chunk:
        producer.send(os.environ["ONCELOG_OUT"], key=record.key, value=record.value.upper())
    offsets = {partition: OffsetAndMetadata(consumer.position(partition), "", -1)}
    producer.send_offsets_to_transaction(offsets, membership.group)
    producer.commit_transaction()


membership = Membership()
producer.init_transactions()
consumer.subscribe([os.environ["ONCELOG_IN"]], listener=membership)
while True:
    for partition, records in consumer.poll(timeout_ms=1000).items():
        for start in range(0, len(records), CHUNK):
            invoice(partition, records[start : start + CHUNK])
