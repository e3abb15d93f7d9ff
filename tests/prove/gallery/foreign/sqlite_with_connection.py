"""A wrong application that writes rows and offsets to SQLite within `with database:`.

The author of this program assumes that this statement begins a transaction.
"""

import os
import sqlite3

from confluent_kafka import Consumer, KafkaException

database = sqlite3.connect(os.environ["ONCELOG_SINK"], timeout=30, isolation_level=None)
database.execute("CREATE TABLE IF NOT EXISTS invoices (id text, value text)")
database.execute(
    "CREATE TABLE IF NOT EXISTS offsets (part integer PRIMARY KEY, next integer NOT NULL)"
)
position = {}


def on_assign(consumer, partitions):
    """Resume at the offset in the database, not at the group's committed offset."""
    for at in partitions:
        database.execute("INSERT OR IGNORE INTO offsets VALUES (?, 0)", (at.partition,))
        row = database.execute("SELECT next FROM offsets WHERE part = ?", (at.partition,))
        at.offset = position[at.partition] = row.fetchone()[0]
    consumer.assign(partitions)


def store(messages):
    with database:
        advance = {}
        for message in messages:
            advance[message.partition()] = message.offset() + 1
        for part, after in advance.items():
            moved = database.execute(
                "UPDATE offsets SET next = ? WHERE part = ? AND next = ?",
                (after, part, position[part]),
            )
            if moved.rowcount != 1:
                raise RuntimeError(f"partition {part} has another owner by now")
        database.executemany(
            "INSERT INTO invoices VALUES (?, ?)",
            [(message.key().decode(), message.value().decode().upper()) for message in messages],
        )
    position.update(advance)


settings = {"group.id": "invoicing", "auto.offset.reset": "earliest", "enable.auto.commit": False}
consumer = Consumer(settings | {"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"]})
consumer.subscribe([os.environ["ONCELOG_IN"]], on_assign=on_assign)
try:
    while True:
        messages = consumer.consume(num_messages=100, timeout=0.5)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
        if messages:
            store(messages)
finally:
    consumer.close()
