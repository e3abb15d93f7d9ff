"""Test that the sink refuses DataFrames of Spark Connect with a sentence, without a server."""

import pytest

from oncelog.pipeline import ExactlyOnceSink, exactly_once

REFUSED = "is of Spark Connect, which runs foreachBatch elsewhere. Run the program by spark-submit"
Frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})


def test_spark_connect_streaming_frame_is_refused_at_the_start_of_the_query() -> None:
    with pytest.raises(RuntimeError, match=REFUSED):
        exactly_once(
            Frame(),  # type: ignore[arg-type]
            sink_id="connect",
            bootstrap="127.0.0.1:9092",
            topic="out",
            checkpoint="/nowhere",
        )


def test_spark_connect_batch_frame_is_refused() -> None:
    sink = ExactlyOnceSink("connect", "127.0.0.1:9092", "out")
    with pytest.raises(RuntimeError, match=REFUSED):
        sink(Frame(), 0)  # type: ignore[arg-type]
