"""outbox: records as rows of the database's own transaction, sent to Kafka afterwards by a relay.

For a Kafka without two-phase commit; docs/databases.md. The rows are table.py's, writer.py writes
them, relay.py sends them.
"""
