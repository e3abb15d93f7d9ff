"""Orders become invoices, with Spark's own Kafka source and sink."""

import os
from pathlib import Path

from pyspark.sql import SparkSession

servers = os.environ["KAFKA_BOOTSTRAP_SERVERS"]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", ",".join(map(str, Path(os.environ["JARS"]).glob("*.jar"))))
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
orders = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", os.environ["ONCELOG_IN"])
    .option("startingOffsets", "earliest")
    .load()
)
invoices = (
    orders.selectExpr("key", "value")
    .writeStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("topic", os.environ["ONCELOG_OUT"])
    .option("checkpointLocation", f"{os.environ['STATE']}/checkpoint")
    .start()
)
invoices.awaitTermination()
