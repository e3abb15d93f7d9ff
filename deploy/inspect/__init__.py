"""inspect: what a cluster, a node or a log is like at this moment, in words. Changes nothing,
but for `abort_transactions`, which people ask for.
"""
