"""Orders become rows and records, both or neither: positions stand in the rows' database."""

import os
import signal
import sqlite3

from oncelog.client import BlockingConsumer, BlockingDualWriter

servers, orders = os.environ["KAFKA_BOOTSTRAP_SERVERS"], os.environ["ONCELOG_IN"]
over: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: over.append(number))


def connect() -> sqlite3.Connection:
    return sqlite3.connect(os.environ["DATABASE"], timeout=20)


setup = connect()
setup.execute("CREATE TABLE IF NOT EXISTS invoices (order_id TEXT)")  # nothing keeps doubles out
setup.commit()
setup.close()
consumer = BlockingConsumer(
    servers, group_id=os.environ["ONCELOG_GROUP"], isolation_level="read_committed",
    auto_offset_reset="earliest", enable_auto_commit=False,
)  # fmt: skip
consumer.subscribe([orders])
writers: dict[int, BlockingDualWriter] = {}
positions: dict[int, int] = {}
while not over:
    records = consumer.poll(timeout_ms=200)
    assigned = {partition for _, partition in consumer.assignment}
    for partition in writers.keys() - assigned:
        writers.pop(partition).close()
    for partition in assigned - writers.keys():  # its id fences the partition's last owner
        writers[partition] = BlockingDualWriter(servers, f"{orders}-{partition}", connect)
        writers[partition].start()
        positions[partition] = writers[partition].positions().get((orders, partition), 0)
        consumer.seek(orders, partition, positions[partition])
        records = [record for record in records if record.partition != partition]
    for partition, writer in writers.items():
        new = [r for r in records if r.partition == partition and r.offset >= positions[partition]]
        if not new:
            continue
        with writer.transaction() as work:
            for record in new:
                order_id = (record.key or b"").decode()
                work.execute("INSERT INTO invoices VALUES (?)", (order_id,))
            work.consumed(orders, partition, new[-1].offset + 1)
        positions[partition] = new[-1].offset + 1
consumer.close()
for writer in writers.values():
    writer.close()
