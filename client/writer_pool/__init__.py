"""Pools of dual writers for many tasks or threads at once.

pool_names.py has the holders and the queue of waiting tasks. pool.py and blocking_pool.py start,
lend and close the writers (dual_write).
"""
