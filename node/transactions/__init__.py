"""node/transactions: both shells of transactions: the coordinator's, and the partitions' side.

The rules stand in coordinator/transactions. Coordinator: service.py, shard_leader.py,
shard_timeouts.py, marker_sender.py. Partitions: marker_writer.py, hanging_transactions.py.
"""
