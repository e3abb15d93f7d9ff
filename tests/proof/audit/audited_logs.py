"""Many logs, each with a topic of its own, audited together so that Spark runs only once."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from oncelog.pipeline.source.columns import RAW
from oncelog.proof.audit import readers
from oncelog.proof.audit.audit import AuditInput
from oncelog.proof.audit.pieces import BOUNDS

from ..judge.edit import Edit
from .model_log import TIME_MS, ModelLog

LATER = datetime(2100, 1, 1)
SCHEMA = pa.schema([
    ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
    ("leader_epoch", pa.int32()), ("timestamp", pa.timestamp("us", "UTC")),
    ("timestamp_type", pa.int32()), ("producer_id", pa.int64()), ("producer_epoch", pa.int32()),
    ("sequence", pa.int32()), ("is_transactional", pa.bool_()), ("is_control", pa.bool_()),
    ("control_type", pa.string()), ("coordinator_epoch", pa.int32()), ("batch_crc", pa.int64()),
    ("key", pa.binary()), ("value", pa.binary()),
    ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ("replica", pa.int32()),
])  # fmt: skip
KNOWN = set(SCHEMA.names) - {"timestamp", "timestamp_type", "headers"}


@contextmanager
def lightly(spark) -> Iterator[None]:
    """Set Spark's configuration for many small queries, which compile longer than they run."""
    light = {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.constraintPropagation.enabled": "false",
    }
    before = {name: spark.conf.get(name) for name in light}
    for name, value in light.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@dataclass(slots=True)
class AuditedLogs:
    """The rows of all logs and histories for one audit.

    A topic of a history is named PREFIX|TOPIC.
    """

    rows: list[dict[str, object]] = field(default_factory=list)
    shown: list[tuple[str, int, int]] = field(default_factory=list)
    spans: list[tuple[str, int, int, int]] = field(default_factory=list)
    bounds: list[tuple[str, int, int, int]] = field(default_factory=list)
    compacted: set[str] = field(default_factory=set)
    planted: dict[str, str] = field(default_factory=dict)  # topic or prefix -> the planted anomaly
    spots: dict[str, tuple[int, int]] = field(default_factory=dict)  # topic -> partition, offset

    def add_log(
        self, log_model: ModelLog, planted: str = "", spot: tuple[int, int] | None = None
    ) -> None:
        """Add a log's rows, the records that its read_committed reader got, and its offset range.

        `planted` names the anomaly in the log, and `spot` is its partition and offset.
        """
        self.planted[log_model.topic] = planted
        if spot is not None:
            self.spots[log_model.topic] = spot
        if log_model.edge == "compacted":
            self.compacted.add(log_model.topic)
        self.shown += log_model.shown
        for row in log_model.rows:
            named = {name: getattr(row, name) for name in row.__slots__ if name != "outcome"}
            self.rows.append(named)
        for partition, (start, end) in log_model.ends.items():
            self.spans.append((log_model.topic, partition, start, end))
            if log_model.replicas:
                self.bounds.append((log_model.topic, partition, start, end))

    def add_history(self, history: Edit, prefix: str, planted: str) -> None:
        """Add the batches of a history of the judge's model cluster as rows."""
        first_id = len(self.planted) * 1_000_000
        self.planted[prefix] = planted
        ends: dict[tuple[str, int], int] = {}
        for one in history["batches"]:
            name, _, partition = history.names[one["partition"]].partition("/")
            topic, sequence = f"{prefix}|{name}", int(one["base_sequence"])
            is_marker = one["marker"] >= 0
            for step, offset in enumerate(range(one["base_offset"], one["last_offset"] + 1)):
                ends[topic, int(partition)] = max(ends.get((topic, int(partition)), 0), offset + 1)
                self.rows.append({
                    "topic": topic,
                    "partition": int(partition),
                    "offset": int(offset),
                    "leader_epoch": int(one["leader_epoch"]),
                    "producer_id": int(one["producer_id"]) + first_id,
                    "producer_epoch": int(one["producer_epoch"]),
                    "sequence": sequence + step if sequence >= 0 else -1,
                    "is_transactional": bool(one["attributes"] & 0x10),
                    "is_control": bool(one["attributes"] & 0x20),
                    "control_type": {0: "abort", 1: "commit"}.get(int(one["marker"])),
                    "coordinator_epoch": int(one["coordinator_epoch"]) if is_marker else None,
                    "batch_crc": int(one["crc"]),
                    "key": None,
                    "value": None,
                    "replica": int(one["replica"]) if one["replica"] >= 0 else None,
                })  # fmt: skip
        self.bounds += [(*key, 0, int(end)) for key, end in ends.items()]

    def audit_input(self, spark, folder: Path) -> AuditInput:
        """Write the rows to files in `folder`, and return the audit's input.

        To pass single rows to Spark takes longer than the audit.
        """
        columns = {name: [row[name] for row in self.rows] for name in SCHEMA.names if name in KNOWN}
        count = len(self.rows)
        columns["timestamp"] = [TIME_MS * 1000] * count
        columns["timestamp_type"] = [0] * count
        columns["headers"] = [None] * count
        shown = list(zip(*self.shown, strict=True))
        tables = {
            "rows": pa.table(columns, SCHEMA),
            "shown": pa.table([*map(pa.array, shown)], names=["topic", "partition", "offset"]),
        }
        for name, table in tables.items():
            parquet.write_table(table, folder / f"{name}.parquet")
        return AuditInput(
            rows=spark.read.schema(RAW).parquet(str(folder / "rows.parquet")),
            compacted=self.compacted,
            shown=readers.shown(spark.read.parquet(str(folder / "shown.parquet"))),
            spans=spark.createDataFrame(self.spans, readers.SPANS),
            bounds=spark.createDataFrame(self.bounds, BOUNDS),
            open_older_than=LATER,
        )
