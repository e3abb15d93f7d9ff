"""The current state of a cluster, a node or a log, in sentences.

Only `abort_transactions` changes anything, on request.
"""
