"""Spark's daemon of Python workers, with their common imports done before the fork.

Otherwise each worker would import the modules again, for a second of a core;
`spark.python.daemon.module` names this file in the tests' session only. Spark's own daemon imports
nothing, since a process with threads should not fork: OpenBLAS starts none where
OPENBLAS_NUM_THREADS is 1, and Arrow's survives a fork.
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
