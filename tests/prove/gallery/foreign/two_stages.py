# type: ignore
"""A wrong application of two transactional stages, which are connected by a topic.

The second stage also reads uncommitted records of this topic.
"""

import logging
import os
import threading

from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import OffsetAndMetadata as Offset
from kafka.errors import TopicAlreadyExistsError

BOOTSTRAP = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
SOURCE, SINK = os.environ["ONCELOG_IN"], os.environ["ONCELOG_OUT"]
CLEANED = f"{SOURCE}-cleaned"


class Stage(ConsumerRebalanceListener):
    def __init__(self, name, change, source, sink, **options):
        self.change, self.source, self.sink, self.group = change, source, sink, None
        self.consumer = KafkaConsumer(
            bootstrap_servers=BOOTSTRAP,
            group_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **options,
        )
        self.producer = KafkaProducer(
            bootstrap_servers=BOOTSTRAP,
            transactional_id=f"{name}-{os.environ['ONCELOG_INSTANCE']}",
        )

    def on_partitions_revoked(self, revoked): ...

    def on_partitions_assigned(self, assigned):
        self.group = self.consumer.group_metadata()

    def run(self):
        try:
            self.producer.init_transactions()
            self.consumer.subscribe([self.source], listener=self)
            while True:
                for at, records in self.consumer.poll(timeout_ms=1000).items():
                    self.producer.begin_transaction()
                    for record in records:
                        self.producer.send(self.sink, self.change(record.value), record.key)
                    self.producer.flush()
                    offsets = {at: Offset(records[-1].offset + 1, "", -1)}
                    self.producer.send_offsets_to_transaction(offsets, self.group)
                    self.producer.commit_transaction()
        except Exception:
            logging.exception("stage %s", self.source)
            os._exit(1)


try:
    KafkaAdminClient(bootstrap_servers=BOOTSTRAP).create_topics({CLEANED: {"num_partitions": 4}})
except TopicAlreadyExistsError:
    logging.info("%s is there already", CLEANED)
# Orders come from others and may be of transactions that fail; CLEANED is ours.
clean = Stage("cleaning", bytes.strip, SOURCE, CLEANED, isolation_level="read_committed")
threading.Thread(target=clean.run, daemon=True).start()
Stage("invoicing", bytes.upper, CLEANED, SINK).run()
