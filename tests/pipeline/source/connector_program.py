"""A program that reads and writes with Spark's own Kafka connector, and prints JSON.

    python connector_program.py BOOTSTRAP JARS FOLDER TOPIC OUT

TOPIC has transactions, some of them aborted. The connector copies the records that it reads to OUT,
once as a batch and once as a stream. Both oncelog's source and the connector then read TOPIC and
OUT.
"""

import json
import sys
from typing import Any

from oncelog.pipeline import spark_session


def main(bootstrap: str, jars: str, folder: str, topic: str, out: str) -> None:
    spark = spark_session("connector", master="local[2]", jars=jars, log_level="ERROR")

    def frame(source: str, name: str) -> Any:
        reader = spark.read.format(source).option("kafka.bootstrap.servers", bootstrap)
        return (
            reader.option("kafka.isolation.level", "read_committed")
            .option("subscribe", name)
            .option("includeHeaders", "true")
            .load()
        )

    def rows(source: str, name: str) -> list[list[object]]:
        order = frame(source, name).orderBy("topic", "partition", "offset")
        return [[plain(value) for value in row] for row in order.collect()]

    before = {source: rows(source, topic) for source in ("kafka", "oncelog")}
    schema = {source: frame(source, topic).schema.simpleString() for source in before}
    copied = frame("kafka", topic).select("key", "value", "headers", "partition")
    copied.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option(
        "topic", out
    ).option("includeHeaders", "true").save()
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "5")
        .load()
        .select("key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", out)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    assert stream.awaitTermination(120)
    after = {source: rows(source, out) for source in before}
    print(json.dumps({"schema": schema, "before": before, "after": after}))
    spark.stop()


def plain(value: Any) -> object:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode()
    if isinstance(value, list):
        return [[header.key, plain(header.value)] for header in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


if __name__ == "__main__":
    main(*sys.argv[1:])
