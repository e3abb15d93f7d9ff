# type: ignore
"""A wrong application that sends a record again after 10 s without an answer.

The author of this program assumes that an idempotent producer drops the repetition.
"""

import logging
import os

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata
from kafka.errors import KafkaTimeoutError

BOOTSTRAP = os.environ["KAFKA_BOOTSTRAP_SERVERS"]

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


def send(record):
    return producer.send(os.environ["ONCELOG_OUT"], key=record.key, value=record.value.upper())


def await_answer(record, future):
    while True:
        try:
            return future.get(timeout=10)
        except KafkaTimeoutError:
            logging.warning("no answer for %r, sending it again", record.key)
            future = send(record)


membership = Membership()
producer.init_transactions()
consumer.subscribe([os.environ["ONCELOG_IN"]], listener=membership)
while True:
    for partition, records in consumer.poll(timeout_ms=1000, max_records=100).items():
        producer.begin_transaction()
        futures = [(record, send(record)) for record in records]
        for record, future in futures:
            await_answer(record, future)
        offsets = {partition: OffsetAndMetadata(records[-1].offset + 1, "", -1)}
        producer.send_offsets_to_transaction(offsets, membership.group)
        producer.commit_transaction()
