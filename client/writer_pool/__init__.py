"""writer_pool: dual writes for many tasks or threads at once.

Who has which writer, and who waits for one, stands in pool_names.py; pool.py and blocking_pool.py
start, lend and close the writers (dual_write).
"""
