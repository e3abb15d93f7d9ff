"""The at-least-once writer of `format("oncelog")`, for `df.write` and `df.writeStream`.

The writer writes at least once, like Spark's own Kafka sink. Each task writes as an idempotent
producer and its rows are visible immediately. If a task fails later, or the driver dies before the
end of a batch, the rows are written twice. For rows that count once, use `exactly_once`
(sink/sink.py). Columns are those of sink/columns.py.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ...client.blocking_producer import BlockingProducer
from ...client.security.config import security_config
from ...client.settings import producer_settings
from ..sink.columns import check_columns, rows_by_topic
from .options import OptionError, client_options, named_options
from .spark_versions import DataSourceStreamArrowWriter

TAKEN = ("topic", "includeHeaders", "path", "checkpointLocation", "queryName")
OUR_KEYS = ("transactional.id", "transaction.two.phase.commit.enable")
IN_FLIGHT = 64  # Arrow batches with deliveries that are not checked yet


@dataclass
class Written(WriterCommitMessage):
    """A task's message to the driver, with the number of written records."""

    record_count: int


class _Writing:
    """The base class of the batch writer and the stream writer."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        given = named_options(options)
        self._topic = given.get("topic") or given.get("path")
        for name in given:
            if name not in TAKEN and not name.startswith("kafka."):
                raise OptionError(f"the option {name} means nothing to a writer")
        self._client = client_options(given)
        for name in OUR_KEYS:
            if name in self._client:
                raise OptionError(
                    f"kafka.{name}: this writer has no transactions and writes at least once; "
                    "oncelog.pipeline.exactly_once writes exactly once"
                )
        if not self._client.get("bootstrap.servers"):
            raise OptionError(
                "kafka.bootstrap.servers is missing; it looks like host:port,host:port"
            )
        security_config(producer_settings(self._client, {}))  # raises on wrong settings
        types = {each.name: each.dataType.simpleString() for each in schema.fields}
        check_columns(types, self._topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task. Return when brokers have acknowledged them.

        Raises the errors of a producer.
        """
        count = 0
        with BlockingProducer(self._client) as producer:
            sent = []
            for batch in iterator:
                for topic, columns in rows_by_topic(_with_times_in_ms(batch), self._topic):
                    sent.append(producer.send_many(topic, **columns))
                count += batch.num_rows
                if len(sent) > IN_FLIGHT:
                    while sent and sent[0].done():
                        sent.pop(0).result()
            producer.flush()
            for deliveries in sent:
                deliveries.result()
        return Written(count)


class BatchWriter(_Writing, DataSourceArrowWriter):
    """The writer of `df.write`."""


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """The writer of `df.writeStream`."""


def _with_times_in_ms(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with its timestamp column as wall-clock ms, as in Kafka's records."""
    if "timestamp" not in batch.schema.names:
        return batch
    place = batch.schema.get_field_index("timestamp")
    times = batch.column(place).cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
    return batch.set_column(place, "timestamp", times)
