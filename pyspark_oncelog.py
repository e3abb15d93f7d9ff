"""The module by which Spark finds `format("oncelog")`, without registration by the program.

Spark imports top-level modules named pyspark_*, and registers their `DefaultSource`.
"""

from oncelog.pipeline.source.data_source import OncelogSource as DefaultSource

__all__ = ["DefaultSource"]
