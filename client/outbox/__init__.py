"""outbox: records as rows of the database's own transaction, sent to Kafka afterwards by a relay.

For a Kafka without two-phase commit; see docs/databases.md. table.py has the rows, writer.py
writes them, relay.py sends them.
"""
