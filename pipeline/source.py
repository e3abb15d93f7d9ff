"""`format("oncelog")`: Spark reads any Kafka-compatible cluster, committed records only.

    df = (spark.readStream.format("oncelog")
          .option("kafka.bootstrap.servers", "127.0.0.1:9092")
          .option("subscribe", "flights").load())

Options and columns are those of Spark's own Kafka source (docs/spark.md lists them).
"""

from pyspark.sql.datasource import DataSource

from .columns import schema_of


class OncelogSource(DataSource):
    """What Spark asks for a schema, readers and writers; see the top of the file."""

    @classmethod
    def name(cls) -> str:
        """As in `format("oncelog")`."""
        return "oncelog"

    def schema(self) -> str:
        """The plain columns, or with `raw` those for audits."""
        raw = self.options.get("raw", "false").lower() == "true"
        headers = self.options.get("includeHeaders", "false").lower() == "true"
        return schema_of(raw=raw, headers=headers)
