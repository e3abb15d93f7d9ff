"""The digest of a batch's entry in Spark's checkpoint.

Spark writes `offsets/N` before it passes batch N to the sink, and never again. If a batch has
another entry than when it was written, then the checkpoint was restored from an older copy. The
batch may then have other rows than the written batch. Therefore no batch is written without its
entry.
"""

import hashlib
from typing import TYPE_CHECKING, Any

from ..session import hadoop_path
from .stop_words import SinkStopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan_digest(spark: "SparkSession", query_id: str, batch_id: int, given: str | None) -> str:
    """Return the digest of offsets/`batch_id` in the checkpoint of a running query.

    given: the user's checkpoint, for a Spark that does not report it. Raises SinkStopped when the
    checkpoint is unknown or cannot be read.
    """
    checkpoint = _of_running_query(spark, query_id) or given
    if checkpoint is None:
        raise SinkStopped(
            "This Spark does not tell the query's checkpoint, and none was given. Without it a "
            "checkpoint that was put back by one batch would go unnoticed, and rows be lost. Give "
            "the sink the query's checkpointLocation: ExactlyOnceSink(..., checkpoint=...)."
        )
    try:
        data = _read(spark, f"{checkpoint}/offsets/{batch_id}")
    except _problems() as problem:
        raise SinkStopped(
            f"offsets/{batch_id} of the checkpoint {checkpoint} cannot be read, and without it "
            "it is unknown whether this batch is the one that was written under its number "
            f"({problem}). Nothing was written. Can the driver read there, and is it the query's "
            "checkpointLocation? Then start the query again."
        ) from None
    return hashlib.sha256(data).hexdigest()[:16]


def _of_running_query(spark: "SparkSession", query_id: str) -> str | None:
    """Return the checkpoint of a running query, or None if this Spark stores it in another place.

    The query is searched in the list that all sessions share, because the session of a batch has no
    queries.
    """
    session: Any = spark._jsparkSession
    jvm: Any = spark._jvm
    try:
        key = jvm.java.util.UUID.fromString(query_id)
        running = session.sharedState().activeStreamingQueries().get(key)
        return None if running is None else str(running.resolvedCheckpointRoot())
    except _problems():
        return None


def _read(spark: "SparkSession", name: str) -> bytes:
    files, path = hadoop_path(spark, name)
    stream = files.open(path)
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def _problems() -> type[Exception]:
    from py4j.protocol import Py4JError

    return Py4JError
