"""An outbox of records in the database's own transaction, which a relay sends to Kafka later.

An outbox is for a Kafka without two-phase commit (see docs/databases.md). table.py has the rows,
writer.py writes them, and relay.py sends them.
"""
