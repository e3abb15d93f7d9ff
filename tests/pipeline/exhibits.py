"""Many logs side by side, each a topic of its own, so that Spark is asked only once."""

from dataclasses import dataclass, field
from datetime import datetime

import pandas as pd

from oncelog.pipeline.audit import readers
from oncelog.pipeline.audit.judgement import Evidence
from oncelog.pipeline.audit.pieces import BOUNDS
from oncelog.pipeline.columns import RAW

from ..deploy.judge.edit import Edit
from .raw_world import TIME_MS, RawWorld

LATER = datetime(2100, 1, 1)
COLUMNS = (
    "topic", "partition", "offset", "leader_epoch", "timestamp", "timestamp_type",
    "producer_id", "producer_epoch", "sequence", "is_transactional", "is_control",
    "control_type", "coordinator_epoch", "batch_crc", "key", "value", "headers", "replica",
)  # fmt: skip


@dataclass(slots=True)
class Exhibits:
    """What is shown to the audit. A history's topics are PREFIX|TOPIC."""

    rows: list[dict[str, object]] = field(default_factory=list)
    shown: list[tuple[str, int, int]] = field(default_factory=list)
    spans: list[tuple[str, int, int, int]] = field(default_factory=list)
    bounds: list[tuple[str, int, int, int]] = field(default_factory=list)
    compacted: set[str] = field(default_factory=set)
    planted: dict[str, str] = field(default_factory=dict)  # topic or prefix -> what

    def add_world(self, world: RawWorld, planted: str = "") -> None:
        """Its rows, what its reader was shown, and where its copies are compared."""
        self.planted[world.topic] = planted
        if world.edge == "compacted":
            self.compacted.add(world.topic)
        self.shown += world.shown
        for row in world.rows:
            named = {name: getattr(row, name) for name in row.__slots__ if name != "outcome"}
            self.rows.append(named)
        for partition, (start, end) in world.ends.items():
            self.spans.append((world.topic, partition, start, end))
            if world.replicas:
                self.bounds.append((world.topic, partition, start, end))

    def add_history(self, history: Edit, prefix: str, planted: str) -> None:
        """The batches of the judge's own model, as rows."""
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

    def evidence(self, spark) -> Evidence:
        frame = pd.DataFrame(self.rows)
        frame["timestamp"] = pd.Timestamp(TIME_MS, unit="ms")
        frame["timestamp_type"], frame["headers"] = 0, None
        for name in ("coordinator_epoch", "replica"):
            frame[name] = frame[name].astype("Int32")
        shown = spark.createDataFrame(self.shown, "topic string, partition int, offset long")
        return Evidence(
            rows=spark.createDataFrame(frame[list(COLUMNS)], RAW),
            compacted=self.compacted,
            shown=readers.shown(shown),
            spans=spark.createDataFrame(self.spans, readers.SPANS),
            bounds=spark.createDataFrame(self.bounds, BOUNDS),
            open_older_than=LATER,
        )
