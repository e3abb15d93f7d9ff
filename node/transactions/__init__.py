"""The transaction coordinator, and the partitions' part in transactions.

These files execute the rules in coordinator/transactions with the broker's logs, links and timers.
Coordinator: service.py, shard_leader.py, shard_timeouts.py, marker_sender.py. Partitions:
marker_writer.py, hanging_transactions.py.
"""
