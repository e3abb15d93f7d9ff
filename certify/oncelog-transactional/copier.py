"""Orders become invoices: outputs and offsets in one transaction, on oncelog's own client."""

import os
import signal

from oncelog.client import BlockingConsumer, BlockingProducer
from oncelog.wire.errors import KafkaError

servers, orders, invoices = (
    os.environ[name] for name in ("KAFKA_BOOTSTRAP_SERVERS", "ONCELOG_IN", "ONCELOG_OUT")
)
group = os.environ["ONCELOG_GROUP"]
over: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: over.append(number))


def commit(producer: BlockingProducer) -> None:
    """Call again while it was not decided in time."""
    while True:
        try:
            return producer.commit_transaction()
        except KafkaError as problem:
            if problem.fatal or problem.abortable:
                raise


with (
    BlockingProducer(
        servers, transactional_id=f"{group}-{os.environ['ONCELOG_INSTANCE']}"
    ) as producer,
    BlockingConsumer(
        servers, group_id=group, isolation_level="read_committed",
        auto_offset_reset="earliest", enable_auto_commit=False,
    ) as consumer,
):  # fmt: skip
    producer.init_transactions()
    consumer.subscribe([orders])
    while not over:
        records = consumer.poll(200)
        if not records:
            continue
        try:
            producer.begin_transaction()
            for record in records:
                producer.send(invoices, record.value, key=record.key)
            ends = {(r.topic, r.partition): r.offset + 1 for r in records}
            producer.send_offsets_to_transaction(ends, consumer.group_metadata())
            commit(producer)
        except KafkaError as problem:
            if problem.fatal:
                raise
            producer.abort_transaction()
            first = {(r.topic, r.partition): r.offset for r in reversed(records)}
            for place, offset in first.items():
                if place in consumer.assignment:
                    consumer.seek(*place, offset)
