"""Reads raw rows, from a live cluster by the protocol, or from the log directories of nodes.

A live topic is read twice. The first pass is a read_committed consumer, up to the last stable
offsets at its beginning. The second pass reads raw batches, up to the log ends after the first
pass. It therefore has the markers of everything in the first pass, even while producers continue.

For log directories, the high watermarks and log start offsets are also read, from Kafka's own
checkpoint files, since only the records between them must be equal in every copy.
"""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from ...client import BlockingAdmin
from ...client.admin import EARLIEST, LATEST
from ...pipeline.command_line import with_prefix
from ...pipeline.sink import decision
from .audit import AuditInput
from .pieces import BOUNDS
from .readers import SPANS, shown

HIGH_WATERMARKS, LOG_STARTS = "replication-offset-checkpoint", "log-start-offset-checkpoint"
COMPACTED = frozenset({"__consumer_offsets", "__transaction_state", decision.TOPIC})
Key = tuple[str, int]


class CannotRead(RuntimeError):
    """The data to audit is missing. The text says which data."""


def live(
    spark: SparkSession,
    client: Mapping[str, Any],
    topics: Sequence[str],
    *,
    open_s_max: float | None,
) -> AuditInput:
    """Read topics of a running cluster for an audit.

    `open_s_max` limits how long transactions may be open.
    """
    options = with_prefix(client)
    with BlockingAdmin(client) as admin:
        keys = [(p.topic, p.partition) for p in admin.describe_topics(list(topics))]
        compacted = {t for t in {topic for topic, _ in keys} if _is_compacted(admin, t)}
        starts = admin.list_offsets(dict.fromkeys(keys, EARLIEST))
        stable = admin.list_offsets(dict.fromkeys(keys, LATEST), read_committed=True)
        wanted = {
            "startingOffsets": _by_topic(starts),
            "endingOffsets": _by_topic(stable),
            "assign": json.dumps({t: [p for u, p in keys if u == t] for t, _ in keys}),
        }
        committed = spark.read.format("oncelog").options(**options, **wanted).load()
        seen = shown(committed).persist()
        seen.count()  # now, before the ends of the second reading are taken
        now = datetime.now(UTC)
        ends = admin.list_offsets(dict.fromkeys(keys, LATEST))
    wanted |= {"endingOffsets": _by_topic(ends), "raw": "true"}
    spans = [(*key, starts[key], stable[key]) for key in keys]
    return AuditInput(
        rows=spark.read.format("oncelog").options(**options, **wanted).load(),
        compacted=compacted,
        shown=seen,
        spans=spark.createDataFrame(spans, SPANS),
        open_older_than=None if open_s_max is None else now - timedelta(seconds=open_s_max),
    )


def _is_compacted(admin: BlockingAdmin, topic: str) -> bool:
    policy = {c.name: c.value for c in admin.describe_configs(topic)}
    return "compact" in (policy.get("cleanup.policy") or "")


def _by_topic(offsets: Mapping[Key, int]) -> str:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        found.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(found)


def log_directories(
    spark: SparkSession,
    folders: Mapping[int, Path],
    topics: Sequence[str],
    *,
    compacted: Collection[str] = (),
    open_s_max: float | None = None,
) -> AuditInput:
    """Read the logs in the nodes' data directories.

    Without `topics`, all topics except internal ones are read.
    """
    missing = [str(folder) for folder in folders.values() if not folder.is_dir()]
    if missing:
        raise CannotRead(f"There is no directory {', '.join(missing)}.")
    chosen = {"subscribe": ",".join(topics)} if topics else {"subscribePattern": ".*"}
    where = ",".join(f"{node}={folder}" for node, folder in folders.items())
    rows = spark.read.format("oncelog").options(raw="true", logs=where, **chosen).load()
    now = datetime.fromtimestamp(time.time(), UTC)
    return AuditInput(
        rows=rows,
        compacted=COMPACTED | set(compacted),
        bounds=spark.createDataFrame(bounds_of(folders), BOUNDS),
        open_older_than=None if open_s_max is None else now - timedelta(seconds=open_s_max),
    )


def bounds_of(folders: Mapping[int, Path]) -> list[tuple[str, int, int, int]]:
    """Return each partition's highest log start and lowest high watermark over its copies."""
    low: dict[Key, int] = {}
    high: dict[Key, int] = {}
    for folder in folders.values():
        starts, watermarks = (
            read_checkpoint(folder / LOG_STARTS),
            read_checkpoint(folder / HIGH_WATERMARKS),
        )
        for place in folder.iterdir():
            topic, _, number = place.name.rpartition("-")
            segments = sorted(place.glob("*.log")) if number.isdecimal() and topic else []
            if segments:
                key = (topic, int(number))
                start = max(starts.get(key, 0), int(segments[0].stem))
                low[key] = max(low.get(key, 0), start)
                watermark = watermarks.get(key, 0)
                high[key] = min(high[key], watermark) if key in high else watermark
    return [(*key, low[key], high[key]) for key in sorted(low)]


def read_checkpoint(file: Path) -> dict[Key, int]:
    """Return the offset of each partition in a checkpoint file of Kafka.

    The file has version 0, a count, and lines of `topic partition offset`.
    """
    if not file.exists():
        return {}
    version, _, *lines = file.read_text(encoding="utf-8").split("\n")
    if version.strip() != "0":
        raise CannotRead(f"{file} is of version {version}, which is not known here.")
    split = [line.split() for line in lines if line.strip()]
    return {(topic, int(partition)): int(offset) for topic, partition, offset in split}
