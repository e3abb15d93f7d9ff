"""Test that the documented repair of a torn batch works, also for a query with state.

A batch is torn if some of its transactions are committed and others are lost.
"""

import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from oncelog.client import BlockingAdmin
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.pipeline.sink import decision
from oncelog.pipeline.sink.sink import ExactlyOnceSink
from oncelog.pipeline.sink.steps import CommitChildren, Effect, Event

from .job import Job, rows_of, write_input
from .output import assert_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark_slow
PAGE = Path(__file__).parents[3] / "docs" / "spark-reference.md"


class TornSink(ExactlyOnceSink):
    """A sink that loses one transaction of batch 1 and commits the others."""

    def perform(self, effect: Effect, rows: Any) -> Event:
        decided = self.protocol.decision
        if (
            isinstance(effect, CommitChildren)
            and decided is not None
            and decided.batch_id == 1
            and not decided.is_done
        ):
            name = effect.children[0].transactional_id
            self._run(lambda cluster: cluster.admin.transactions.end(name))
        return super().perform(effect, rows)


def recipe() -> str:
    """Return the first Python block in the section about a torn batch of Spark's page in docs/."""
    section = PAGE.read_text(encoding="utf-8").split("## A torn batch", 1)[1]
    return textwrap.dedent(section.split("```python\n", 1)[1].split("```", 1)[0])


def run(job: Job, frame: Any, sink: ExactlyOnceSink) -> None:
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", job.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        sink.close()


def frame_of(spark: "SparkSession", job: Job, *, is_stateful: bool) -> Any:
    rows = rows_of(spark, job)
    if is_stateful:
        rows = rows.dropDuplicates(["value"])
    return rows.selectExpr("CAST(NULL AS BINARY) AS key", "value")


@pytest.mark.parametrize("is_stateful", [False, True])
def test_torn_batch_is_completed_by_the_documented_recipe(
    spark: "SparkSession",
    cluster: Cluster,
    admin: BlockingAdmin,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_stateful: bool,
) -> None:
    from pyspark.errors import StreamingQueryException

    monkeypatch.setattr(decision, "CHUNK_BYTES_MAX", 1)  # as if there were thousands of tasks

    topic = f"torn-{is_stateful}".lower()
    admin.create_topic(topic, partitions=3)
    job = Job(cluster.bootstrap, topic, str(tmp_path), sink_id=topic)
    values = write_input(job, batches=3)
    frame = frame_of(spark, job, is_stateful=is_stateful)
    if is_stateful:
        first, second = (job.input / f"{batch:03}.txt" for batch in range(2))
        second.write_text(second.read_text() + first.read_text())
    sink = TornSink(topic, cluster.bootstrap, topic, mode="transactional")
    with pytest.raises(StreamingQueryException, match="BATCH 1 IS TORN"):
        run(job, frame, sink)

    copy = str(tmp_path / "copy")
    shutil.copytree(job.checkpoint, copy)
    code = recipe().replace("127.0.0.1:9092", cluster.bootstrap)
    first_line = 'batch, sink_id, topic = 7, "enriched", "flights.enriched"'
    assert first_line in code
    code = code.replace(first_line, f"batch, sink_id, topic = 1, {topic!r}, {topic!r}")
    names = {
        "spark": spark, "ExactlyOnceSink": ExactlyOnceSink,
        "rows": frame, "copy_of_checkpoint": copy,
    }  # fmt: skip
    for _ in range(2):  # the program may be run again
        exec(compile(code, str(PAGE), "exec"), names)
    going_on = ExactlyOnceSink(topic, cluster.bootstrap, topic, mode="transactional", first_batch=2)
    run(job, frame, going_on)
    assert_once(cluster.bootstrap, topic, values)
