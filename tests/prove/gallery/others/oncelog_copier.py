"""A correct copier with oncelog's own client."""

import os
import signal
import sys
from pathlib import Path

from oncelog.client import BlockingConsumer, BlockingProducer
from oncelog.wire.errors import KafkaError

CLUSTER = {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]}
if (file := os.environ.get("ONCELOG_CLIENT_CONFIG")) is not None:  # on a secured cluster
    CLUSTER = dict(line.split("=", 1) for line in Path(file).read_text().splitlines())
IN, OUT = os.environ["ONCELOG_IN"], os.environ["ONCELOG_OUT"]
INSTANCE = os.environ["ONCELOG_INSTANCE"]
PROTOCOL = sys.argv[1] if len(sys.argv) > 1 else "classic"
over: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: over.append(number))


def main() -> None:
    with (
        BlockingProducer(CLUSTER, transactional_id=f"copy-{INSTANCE}") as producer,
        BlockingConsumer(
            CLUSTER, group_id="gallery", group_protocol=PROTOCOL, isolation_level="read_committed",
            auto_offset_reset="earliest", enable_auto_commit=False,
        ) as consumer,
    ):  # fmt: skip
        producer.init_transactions()
        consumer.subscribe([IN])
        while not over:
            records = consumer.poll(200)
            if not records:
                continue
            try:
                producer.begin_transaction()
                for record in records:
                    producer.send(OUT, record.value, key=record.key)
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


def commit(producer: BlockingProducer) -> None:
    while True:
        try:
            return producer.commit_transaction()
        except KafkaError as problem:
            if problem.fatal or problem.abortable:
                raise


if __name__ == "__main__":
    main()
