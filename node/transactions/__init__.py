"""The shells of transactions, for the coordinator and for the partitions.

The rules are in coordinator/transactions. Coordinator: service.py, shard_leader.py,
shard_timeouts.py, marker_sender.py. Partitions: marker_writer.py, hanging_transactions.py.
"""
