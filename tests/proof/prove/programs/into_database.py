"""An application that writes rows to a table instead of records to a topic.

The program is correct with a unique key (KEYED=1), and wrong without one. DATABASE is the path of a
SQLite database, or a URL of PostgreSQL.
"""

import os
import signal
import sqlite3

import psycopg
from confluent_kafka import Consumer

over: list[int] = []
signal.signal(signal.SIGTERM, lambda number, _: over.append(number))
where = os.environ["DATABASE"]
is_postgresql = where.startswith("postgresql:")
database = psycopg.connect(where) if is_postgresql else sqlite3.connect(where, timeout=20)
unique = " PRIMARY KEY" if os.environ.get("KEYED") else ""
insert = f"INSERT INTO invoices VALUES ({'%s' if is_postgresql else '?'}) ON CONFLICT DO NOTHING"
if is_postgresql:  # two instances cannot create the table at once
    database.execute("SELECT pg_advisory_lock(1)")
database.execute(f"CREATE TABLE IF NOT EXISTS invoices (order_id TEXT{unique})")
database.commit()
if is_postgresql:
    database.execute("SELECT pg_advisory_unlock(1)")
    database.commit()
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
    database.cursor().executemany(insert, rows)
    database.commit()
    if messages:
        consumer.commit(asynchronous=False)
consumer.close()
