"""A correct Spark query with outputs and positions in one transaction (`exactly_once`).

Its argument is the checkpoint directory, which outlives the driver as on a shared file system.
"""

import os
import sys

from pyspark.errors import StreamingQueryException

from oncelog.pipeline import SinkStopped, exactly_once, spark_session

QUERIES_MAX = 20  # one that fails goes on from its checkpoint: a driver takes longer to start
# It is killed again and again: a JVM that compiles much works for less time than it takes to start.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

cluster = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
spark = spark_session(
    "gallery", master="local[2]", sql_shuffle_partitions=2, driver_extraJavaOptions=SHORT_LIVED
)
source = (
    spark.readStream.format("oncelog")
    .option("kafka.bootstrap.servers", cluster)
    .options(subscribe=os.environ["ONCELOG_IN"], startingOffsets="earliest")
    .load()
)
for _ in range(QUERIES_MAX):
    query = exactly_once(
        source.select("key", "value"), sink_id="gallery", bootstrap=cluster,
        topic=os.environ["ONCELOG_OUT"], checkpoint=sys.argv[1],
        mode=None,  # what the cluster can do: Apache Kafka does not offer prepared transactions
    )  # fmt: skip
    try:
        query.awaitTermination()
    except StreamingQueryException as problem:
        if SinkStopped.__name__ in str(problem):
            raise
        print("started again after", problem, file=sys.stderr)
