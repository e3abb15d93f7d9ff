"""inspect: the current state of a cluster, a node or a log, in sentences.

It changes nothing, except for `abort_transactions`, on request.
"""
