"""The checks of the Spark version. Spark 4.0 and 4.1 cannot read a stream with this source.

Spark 4.0 cannot write a stream with the source either. In 4.0 and 4.1, a Python source does not
know the current offsets of its query. If a broker has old metadata when the query starts again, a
partition may be missing in the checkpoint from then on, and would later be read again from its
beginning. Therefore reading streams is refused. A Python source of these versions can also not
limit a batch. In 4.0, a stream is written as rows, and not as Arrow batches.
"""

from typing import TYPE_CHECKING

from .options import OptionError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    READS_STREAMS = WRITES_STREAMS = True
else:
    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:  # 4.0
        DataSourceStreamArrowWriter = object
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )
    except ImportError:  # 4.0 and 4.1
        ReadAllAvailable = ReadLimit = ReadMaxRows = SupportsTriggerAvailableNow = object
    READS_STREAMS = ReadLimit is not object
    WRITES_STREAMS = DataSourceStreamArrowWriter is not object

__all__ = [
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]


def check_reads_streams() -> None:
    """Raise OptionError with a workaround if Spark cannot read streams with this source."""
    if not READS_STREAMS:
        raise OptionError(
            'format("oncelog") is read as a stream from Spark 4.2 on: before, Spark does not tell '
            "a Python source where its query stands. Read batches with it (spark.read), or the "
            'stream with Spark\'s own format("kafka") and kafka.isolation.level=read_committed; '
            "exactly_once writes both"
        )


def check_writes_streams() -> None:
    """Raise OptionError with a workaround if Spark cannot write streams with this source."""
    if not WRITES_STREAMS:
        raise OptionError(
            'format("oncelog") is written as a stream from Spark 4.1 on; exactly_once, or '
            "df.write within foreachBatch, writes with Spark 4.0, too"
        )
