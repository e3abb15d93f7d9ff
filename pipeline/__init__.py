"""A source and an exactly-once sink for Spark, on any Kafka-compatible cluster.

The folder contains `spark_session` (which finds a Java), the source `format("oncelog")`, the sink
`exactly_once`, and jobs on the flights data. All of them use the Kafka protocol, and therefore also
run against Apache Kafka. The folder needs the extra `spark`. Only the audit on Spark (proof/audit)
imports it, and other programs start it as a separate process. Public names are imported at their
first use, since importing pyspark is slow.

Begin with session.py, then pipeline/source/offsets.py (the ranges of a batch). docs/spark.md is for
users.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .extra import require_spark

if TYPE_CHECKING:
    from .progress.lag import lag_of as lag_of
    from .progress.listener import watch as watch
    from .session import spark_session as spark_session
    from .sink.sink import ExactlyOnceSink as ExactlyOnceSink
    from .sink.sink import exactly_once as exactly_once
    from .sink.stop_words import SinkStopped as SinkStopped

_WHERE = {
    "ExactlyOnceSink": "sink.sink",
    "SinkStopped": "sink.stop_words",
    "exactly_once": "sink.sink",
    "lag_of": "progress.lag",
    "spark_session": "session",
    "watch": "progress.listener",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its file at its first use."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_spark()
    return getattr(import_module(f".{_WHERE[name]}", __name__), name)
