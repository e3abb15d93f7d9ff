"""Copiers without transactions, and applications that write to a database."""

# A message of a topic without errors has its key, value and place.
# pyright: reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalOperand=false

import json
import os
import sqlite3
import sys
from collections import Counter

import surroundings as s
from confluent_kafka import KafkaException


def commit_before_send() -> None:
    """Commit the offsets first, "so that nothing is sent twice"."""
    reader, writer = s.consumer(), s.producer(enable_idempotence=True)
    for batch in s.batches(reader):
        reader.commit(offsets=s.next_offsets(batch), asynchronous=False)
        for message in batch:
            writer.produce(s.OUT, key=message.key(), value=message.value())
        writer.flush(30)


def plain_defaults() -> None:
    """Commit offsets after the output, without idempotence, which is at least once."""
    reader, writer = s.consumer(), s.producer()
    for batch in s.batches(reader):
        for message in batch:
            writer.produce(s.OUT, key=message.key(), value=message.value())
        writer.flush(30)
        reader.commit(offsets=s.next_offsets(batch), asynchronous=False)


def fresh_producer() -> None:
    """Write records that are not acknowledged within 1 s again with a new producer."""
    reader = s.consumer()
    writer = s.producer(enable_idempotence=True, message_timeout_ms=1_000)
    for batch in s.batches(reader):
        left = list(batch)
        while left:
            failed = []

            def done(error, message, failed=failed) -> None:
                if error is not None:
                    failed.append(message)

            for message in left:
                writer.produce(s.OUT, key=message.key(), value=message.value(), on_delivery=done)
            if writer.flush(30) or failed:
                writer = s.producer(enable_idempotence=True, message_timeout_ms=1_000)
            left = failed
        reader.commit(offsets=s.next_offsets(batch), asynchronous=False)


def counts_in_memory() -> None:
    """Count the orders of each customer by partition, with counts in memory only.

    A count restarts when its partition comes from another instance. It continues from an old number
    when the partition comes back.
    """
    reader, writer = s.consumer(), s.transactional(f"count-{s.INSTANCE}")
    counts = Counter[str]()
    for batch in s.batches(reader):
        try:
            writer.begin_transaction()
            for message in batch:
                key = f"{json.loads(message.value())['customer']}/{message.partition()}"
                counts[key] += 1
                writer.produce(s.OUT, key=key, value=str(counts[key]))
            metadata = reader.consumer_group_metadata()
            writer.send_offsets_to_transaction(s.next_offsets(batch), metadata, 30)
            writer.commit_transaction(30)
        except KafkaException as problem:
            s.fail(problem)


def _database() -> sqlite3.Connection:
    database = sqlite3.connect(os.environ["ONCELOG_SINK"], timeout=30, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY)")
    return database


def sink_with_upsert() -> None:
    """Write rows with the input's id as their key, which is correct."""
    database, reader = _database(), s.consumer()
    database.execute("CREATE TABLE IF NOT EXISTS invoices (id TEXT PRIMARY KEY, value TEXT)")
    for batch in s.batches(reader):
        database.execute("BEGIN IMMEDIATE")
        rows = [(message.key().decode(), message.value().decode()) for message in batch]
        database.executemany("INSERT OR REPLACE INTO invoices VALUES (?, ?)", rows)
        database.execute("COMMIT")
        reader.commit(offsets=s.next_offsets(batch), asynchronous=False)


def postgresql_with_upsert() -> None:
    """Write rows with the input's id as their key to PostgreSQL, which is correct."""
    import psycopg

    database = psycopg.connect(os.environ["ONCELOG_SINK"], autocommit=True)
    with database.transaction():
        database.execute("SELECT pg_advisory_xact_lock(1)")  # only one may create
        database.execute("CREATE TABLE IF NOT EXISTS invoices (id TEXT PRIMARY KEY, value TEXT)")
    upsert = "INSERT INTO invoices VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET value = %s"
    reader = s.consumer()
    for batch in s.batches(reader):
        rows = [(message.key().decode(), *[message.value().decode()] * 2) for message in batch]
        with database.transaction(), database.cursor() as cursor:
            cursor.executemany(upsert, rows)
        reader.commit(offsets=s.next_offsets(batch), asynchronous=False)


def sink_with_notes_apart() -> None:
    """Store each written id in another database transaction than its row."""
    database, reader = _database(), s.consumer()
    database.execute("CREATE TABLE IF NOT EXISTS invoices (id TEXT, value TEXT)")
    for batch in s.batches(reader):
        for message in batch:
            name = message.key().decode()
            if database.execute("SELECT 1 FROM seen WHERE id = ?", (name,)).fetchone():
                continue
            row = (name, message.value().decode())
            database.execute("INSERT INTO invoices VALUES (?, ?)", row)
            database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (name,))
        reader.commit(offsets=s.next_offsets(batch), asynchronous=False)


APPLICATIONS = {
    each.__name__: each
    for each in (
        commit_before_send, plain_defaults, fresh_producer, counts_in_memory, sink_with_upsert,
        postgresql_with_upsert, sink_with_notes_apart,
    )
}  # fmt: skip

if __name__ == "__main__":
    APPLICATIONS[sys.argv[1]]()
