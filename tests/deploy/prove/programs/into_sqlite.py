"""Rows of a table in place of a topic: right with a key that cannot be there twice (KEYED=1), wrong
without."""

import os
import signal
import sqlite3

from confluent_kafka import Consumer

over: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: over.append(number))
database = sqlite3.connect(os.environ["DATABASE"], timeout=20)
unique = " PRIMARY KEY" if os.environ.get("KEYED") else ""
database.execute(f"CREATE TABLE IF NOT EXISTS invoices (order_id TEXT{unique})")
consumer = Consumer({
    "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
    "group.id": "invoicing",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
})  # fmt: skip
consumer.subscribe([os.environ["ONCELOG_IN"]])
while not over:
    messages = [m for m in consumer.consume(50, 0.2) if m.error() is None]
    rows = [((message.key() or b"").decode(),) for message in messages]
    with database:
        database.executemany("INSERT OR IGNORE INTO invoices VALUES (?)", rows)
    if messages:
        consumer.commit(asynchronous=False)
consumer.close()
