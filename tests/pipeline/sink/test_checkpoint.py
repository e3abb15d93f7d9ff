"""Test that a batch is written only if its plan can be read from the checkpoint."""

import hashlib
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from oncelog.pipeline.session import hadoop_path
from oncelog.pipeline.sink.checkpoint import plan_digest
from oncelog.pipeline.sink.stop_words import SinkStopped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_checkpoint_path_of_a_running_query_is_found(
    spark: "SparkSession", checkpoint: str
) -> None:
    found: list[str] = []

    def each_batch(frame: "DataFrame", batch_id: int) -> None:
        session = frame.sparkSession
        query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query_id is not None
        found.append(plan_digest(session, query_id, batch_id, given="/nowhere"))

    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rows.writeStream.foreachBatch(each_batch).option("checkpointLocation", checkpoint)
    assert writer.trigger(availableNow=True).start().awaitTermination(60)
    planned = (Path(checkpoint) / "offsets" / "0").read_bytes()
    assert found[0] == hashlib.sha256(planned).hexdigest()[:16]


def test_checkpoint_path_hidden_by_spark_requires_the_checkpoint_option(
    spark: "SparkSession", tmp_path: Path
) -> None:
    unknown = str(uuid.uuid4())
    with pytest.raises(SinkStopped, match=r"ExactlyOnceSink\(\.\.\., checkpoint=\.\.\.\)"):
        plan_digest(spark, unknown, 0, given=None)
    with pytest.raises(SinkStopped, match=f"offsets/0 of the checkpoint {tmp_path} cannot be"):
        plan_digest(spark, unknown, 0, given=str(tmp_path))
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_bytes(b"plan")
    wanted = hashlib.sha256(b"plan").hexdigest()[:16]
    assert plan_digest(spark, unknown, 0, given=str(tmp_path)) == wanted


def test_checkpoint_file_system_is_configured_from_the_spark_session(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """The keys of an object store may be set by `spark.conf.set`, and Spark itself uses them."""
    spark.conf.set("fs.file.impl.disable.cache", "true")
    spark.conf.set("fs.s3a.access.key", "of this session")
    try:
        files, _ = hadoop_path(spark, str(tmp_path))
        assert files.getConf().get("fs.s3a.access.key") == "of this session"
    finally:
        spark.conf.unset("fs.s3a.access.key")
        spark.conf.unset("fs.file.impl.disable.cache")
