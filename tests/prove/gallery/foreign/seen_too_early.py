# type: ignore
"""A wrong application that skips orders which it has read before, since the input repeats some.

An id counts as seen when it is read, although its output may still be dropped.
"""

import os
import time

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, OffsetAndMetadata

BOOTSTRAP = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
pending, offsets, seen = [], {}, set()

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
    group = None

    def on_partitions_revoked(self, revoked):
        """Drop unwritten records, which are not committed, so the next owner reads them again."""
        pending.clear()
        offsets.clear()

    def on_partitions_assigned(self, assigned):
        self.group = consumer.group_metadata()


def collect():
    until = time.monotonic() + 1
    while len(pending) < 200 and time.monotonic() < until:
        for partition, records in consumer.poll(timeout_ms=100, max_records=100).items():
            for record in records:
                if record.key not in seen:
                    seen.add(record.key)
                    pending.append(record)
            offsets[partition] = OffsetAndMetadata(records[-1].offset + 1, "", -1)


membership = Membership()
producer.init_transactions()
consumer.subscribe([os.environ["ONCELOG_IN"]], listener=membership)
while True:
    collect()
    if offsets:
        producer.begin_transaction()
        for record in pending:
            producer.send(os.environ["ONCELOG_OUT"], key=record.key, value=record.value.upper())
        producer.send_offsets_to_transaction(offsets, membership.group)
        producer.commit_transaction()
        pending.clear()
        offsets.clear()
