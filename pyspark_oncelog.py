"""Spark looks for top-level modules named pyspark_*, and takes their `DefaultSource`.

So `format("oncelog")` is known wherever oncelog is installed, without a word in the program.
"""

from oncelog.pipeline.source.data_source import OncelogSource as DefaultSource

__all__ = ["DefaultSource"]
