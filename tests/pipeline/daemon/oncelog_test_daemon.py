"""Spark's daemon of Python workers, with their common imports done before the fork.

Otherwise each worker would import the modules again, for a second of a core. Only the tests'
sessions name this file in `spark.python.daemon.module`. Spark's own daemon imports nothing, since a
process with threads should not fork. Here OpenBLAS starts no thread, because OPENBLAS_NUM_THREADS
is 1, and the thread of Arrow survives a fork.
"""

from importlib import import_module

from pyspark.daemon import manager

IMPORTED_BY_WORKERS = (
    "pandas",
    "pyarrow.compute",
    "pyspark.worker",
    "oncelog.pipeline.sink.task",
    "oncelog.pipeline.source.data_source",
)

if __name__ == "__main__":
    for name in IMPORTED_BY_WORKERS:
        import_module(name)
    manager()
