"""A dual write of orders from Kafka into a table and a topic, exactly once.

Positions are stored in the table's database. The owner of a partition writes under the partition's
name, so its last owner is the only writer.
"""

import os
import signal
import sqlite3
import sys

from oncelog.client import BlockingConsumer, BlockingDualWriter

bootstrap, orders = os.environ["KAFKA_BOOTSTRAP_SERVERS"], os.environ["ONCELOG_IN"]
invoices = os.environ["ONCELOG_OUT"] or None
over: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: over.append(number))


def connect() -> sqlite3.Connection:
    return sqlite3.connect(os.environ["DATABASE"], timeout=20)


setup = connect()
setup.execute("CREATE TABLE IF NOT EXISTS invoices (order_id TEXT)")  # nothing prevents double rows
setup.commit()
setup.close()
writers: dict[int, BlockingDualWriter] = {}
positions: dict[int, int] = {}
settings = {"group_id": "invoicing", "enable_auto_commit": False, "auto_offset_reset": "earliest"}
consumer = BlockingConsumer(bootstrap, isolation_level="read_committed", **settings)
consumer.subscribe([orders])
while not over:
    records = consumer.poll(timeout_ms=200)
    assigned = {partition for _, partition in consumer.assignment}
    for partition in writers.keys() - assigned:
        writers.pop(partition).close()
    for partition in assigned - writers.keys():
        writers[partition] = BlockingDualWriter(bootstrap, f"{orders}-{partition}", connect)
        writers[partition].start()
        positions[partition] = writers[partition].positions().get((orders, partition), 0)
        consumer.seek(orders, partition, positions[partition])
        records = [record for record in records if record.partition != partition]
    for partition, writer in writers.items():
        done = positions[partition]  # a partition that was lost may come back, from its beginning
        new = [r for r in records if r.partition == partition and r.offset >= done]
        if not new:
            continue
        with writer.transaction() as work:  # an exception in this block ends the program
            for record in new:
                order_id = (record.key or b"").decode()
                work.execute("INSERT INTO invoices VALUES (?)", (order_id,))
                if invoices is not None:
                    work.send(invoices, record.value, key=record.key)
            work.consumed(orders, partition, new[-1].offset + 1)
        positions[partition] = new[-1].offset + 1
consumer.close()
for writer in writers.values():
    writer.close()
sys.exit(0)
