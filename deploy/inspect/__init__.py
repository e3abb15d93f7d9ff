"""inspect: the current state of a cluster, a node or a log, in words.

It changes nothing, but for `abort_transactions`, on request.
"""
