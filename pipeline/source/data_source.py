"""`format("oncelog")`, with which Spark reads committed records of any Kafka-compatible cluster.

    df = (spark.readStream.format("oncelog")
          .option("kafka.bootstrap.servers", "127.0.0.1:9092")
          .option("subscribe", "flights").load())

Options and columns are those of Spark's own Kafka source (docs/spark.md lists them). offsets.py
decides which offsets a query reads. This file only sends requests to the cluster and passes results
on. Spark plans in a process that lives as long as the query, and reads in other processes. The
processes share only pickled objects.
"""

import inspect
import logging
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from ...client.fetch.record_columns import RecordColumns, read_columns
from ...wire.identifiers import TopicPartition
from . import offsets as rules
from .arrow_rows import ArrowRows
from .cluster_lookup import ClusterLookup
from .columns import refuse_other, schema_of
from .log_folders import SegmentFile, read_segment, segments_of
from .offsets import DataLost, Known, OffsetRange, Position
from .options import AtTime, OptionError, Place, SourceOptions, read_options
from .range_reader import RangeReader
from .spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    check_reads_streams,
    check_writes_streams,
)
from .writer import BatchWriter, StreamWriter

METADATA_TIMEOUT_S = (
    30.0  # within moments brokers have new metadata, and a new leader the high watermark
)
REUSE_S = 10.0  # answers from the planning of a micro-batch are reused so long
log = logging.getLogger(__name__)


class OncelogSource(DataSource):
    """The data source, which provides schema, readers and writers (see the top of the file)."""

    @classmethod
    def name(cls) -> str:
        return "oncelog"

    def schema(self) -> str:
        """Return the columns of Spark's own Kafka source, or with `raw` the columns for audits."""
        raw = self.options.get("raw", "false").lower() == "true"
        headers = self.options.get("includeHeaders", "false").lower() == "true"
        return schema_of(raw=raw, headers=headers)

    def reader(self, schema: StructType) -> "BatchReader":
        refuse_other(schema, self.schema())
        return BatchReader(read_options(self.options, is_streaming=False), schema)

    def streamReader(self, schema: StructType) -> "StreamReader":
        check_reads_streams()
        refuse_other(schema, self.schema())
        return StreamReader(read_options(self.options, is_streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Return the writer of `df.write`, which appends to the topic at least once."""
        if overwrite:
            raise OptionError('a topic cannot be overwritten: say .mode("append")')
        return BatchWriter(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """Return the writer of `df.writeStream`, which writes at least once."""
        check_writes_streams()
        if overwrite:
            raise OptionError('a topic cannot be overwritten: say .outputMode("append") or update')
        return StreamWriter(self.options, schema)


class Piece(InputPartition):
    def __init__(self, what: OffsetRange | SegmentFile) -> None:
        self.what = what


class _Reading:
    """The base class of the batch reader and the stream reader."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._lookup = ClusterLookup(
            options.client, options.topics, is_committed=options.is_committed
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task's range of offsets or segment file. Runs in the task."""
        what: Any = getattr(partition, "what", None)  # Spark gives None where there is no piece
        batches: Iterator[RecordColumns] = iter(())
        replica: int | None = None
        if isinstance(what, SegmentFile):
            batches, replica = read_segment(what), what.replica
        elif isinstance(what, OffsetRange):
            batches = self._read_range(what)
        rows = ArrowRows(_arrow_schema(self._schema), is_raw=self._options.is_raw)
        for columns in batches:
            if rows.add(columns, replica) and (batch := rows.take()) is not None:
                yield batch
        if (batch := rows.take()) is not None:
            yield batch

    def _read_range(self, wanted: OffsetRange) -> Iterator[RecordColumns]:
        options = self._options
        with RangeReader(
            options.client, wanted, is_committed=options.is_committed, report=self._report
        ) as reader:
            for found in reader:
                for raw in found:
                    if not options.is_raw and (
                        raw.header.is_control or (options.is_committed and raw.is_aborted)
                    ):
                        continue
                    columns = read_columns(raw.topic, raw.partition, raw.data, 0, raw.header)
                    yield columns.between(wanted.start, wanted.end)

    def _report(self, loss: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLost(f"{loss}. With failOnDataLoss=false the query goes on without them")
        log.warning("data was lost: %s", loss)

    def _resolve(self, place: Place, known: Known, side: str) -> Position:
        """Return the position where a query begins or ends, by its option.

        side: "starting" or "ending".
        """
        by_time: Mapping[TopicPartition, int] = {}
        name = f"{side}Offsets"
        if isinstance(place, AtTime):
            times = place.times_ms
            name = f"{side}Timestamp" if isinstance(times, int) else f"{side}OffsetsByTimestamp"
            if isinstance(times, int):
                times = dict.fromkeys(known.bounds, times)
            if missing := sorted(known.bounds.keys() ^ times.keys()):
                raise OptionError(f"{name} and what is read differ in {missing[0]}")
            by_time = self._lookup.offsets_at(times)
        return rules.resolve(
            place,
            known,
            by_time,
            name=name,
            is_strict_about_times=side == "starting" and self._options.is_strict_about_times,
            report=self._report,
        )

    def _pieces(self, start: Position, end: Position, known: Known) -> list[Piece]:
        ranges = rules.ranges_between(start, end, known, self._report)
        options = self._options
        cut = rules.split(
            ranges,
            partitions_min=options.partitions_min,
            records_max=options.records_per_partition_max,
        )
        return [Piece(each) for each in cut]


class BatchReader(_Reading, DataSourceReader):
    """A query with a fixed begin and end, which are determined when the query is planned."""

    def partitions(self) -> list[InputPartition]:
        if self._options.logs:
            return [Piece(each) for each in segments_of(self._options)]
        try:
            known = self._lookup.known()
            start = self._resolve(self._options.starting, known, "starting")
            end = self._resolve(self._options.ending, known, "ending")
            for key, begin in start.offsets.items():
                if end.offsets[key] < begin:
                    raise OptionError(
                        f"{key[0]}/{key[1]} ends at {end.offsets[key]} before it begins at {begin}"
                    )
            return [*self._pieces(start, end, known)]
        finally:
            self._lookup.close()


class _Asked:
    """The cluster's last answer, which the stream reader keeps for Spark's next question.

    end: the end of the micro-batch that was planned by it, or None at the start of the query.
    """

    def __init__(self, known: Known, end: dict[str, Any] | None = None) -> None:
        self.known, self.end, self._at_s = known, end, time.monotonic()

    @property
    def is_recent(self) -> bool:
        return time.monotonic() - self._at_s < REUSE_S


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A query without an end, which reads in micro-batches."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._initial: Position | None = None  # Spark asks for it more than once
        self._until: Position | None = None
        self._newest: Position | None = None
        self._missed: set[TopicPartition] = set()  # reported, and not awaited again
        self._asked: _Asked | None = None  # for the trigger that is being planned

    def initialOffset(self) -> dict[str, Any]:
        """Return the position where a new query begins. Each call returns the same position."""
        if self._initial is None:
            known = self._lookup.known()
            self._asked = _Asked(known)
            found = self._resolve(self._options.starting, known, "starting")
            self._initial = Position(found.offsets, found.topic_ids, is_initial=True)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        count = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if count is None else ReadMaxRows(count)

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the query end at the partitions' present ends, for the trigger AvailableNow."""
        known = self._lookup.known(must_exist=False)
        self._until = known.at({key: bounds.end for key, bounds in known.bounds.items()})

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch.

        It is at most the last stable offset of each partition, or the high watermark for a reader
        of uncommitted records.
        """
        begin = Position.from_json(start)
        asked, self._asked = self._asked, None
        known = self._known_with(begin, asked if asked is not None and asked.end is None else None)
        self._newest = known.at({key: bounds.end for key, bounds in known.bounds.items()})
        if self._until is not None:
            self._until = rules.not_before(self._until, begin, known)
        count = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = rules.latest(begin, known, offsets_max=count, until=self._until).to_json()
        self._asked = _Asked(known, end)
        return end

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._newest is None else self._newest.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the ranges of a batch, one for each task. Each call returns the same offsets."""
        stop = Position.from_json(end)
        begin = Position.from_json(start).before(stop)
        new = dict.fromkeys(stop.offsets, 0)
        asked = self._asked if self._asked is not None and self._asked.end == end else None
        known = self._known_with(Position({**new, **begin.offsets}, begin.topic_ids), asked)
        rules.check_identity(stop, known)
        return [*self._pieces(begin, stop, known)]

    def stop(self) -> None:
        self._lookup.close()

    def _known_with(self, begin: Position, asked: "_Asked | None") -> Known:
        """Return the cluster's state, once it includes all offsets that were already read.

        Offsets that stay missing for METADATA_TIMEOUT_S are reported once. If the query continues,
        later batches do not wait for them. asked: an earlier answer, which is used if it is recent.
        """
        deadline_s = time.monotonic() + METADATA_TIMEOUT_S
        recent = asked.known if asked is not None and asked.is_recent else None
        while True:
            known, recent = recent or self._lookup.known(must_exist=False), None
            rules.check_identity(begin, known)
            losses = rules.losses(begin, known)
            self._missed &= losses.keys()
            new = [key for key in losses if key not in self._missed]
            if new and time.monotonic() <= deadline_s:
                time.sleep(0.2)
                continue
            for key in new:
                self._report(losses[key])
            self._missed |= set(new)
            return known


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema that Spark expects, with times in UTC."""
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # Spark 4.2 has UTC by default
