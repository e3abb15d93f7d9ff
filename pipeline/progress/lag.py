"""The lag of a query, from Spark's progress reports.

The file does no I/O. Spark asks only sources in Java for their own figures (`metrics` in
lastProgress, such as minOffsetsBehindLatest). But Spark asks our source for the newest offsets
whenever it plans a batch, and reports them as `latestOffset`. The difference to `endOffset` is the
lag behind the batch, with the same meaning as in Spark's own Kafka source.

Offsets are counted, so markers and aborted records count, too. The newest offset is the last stable
offset, so records of an open transaction are not part of the lag.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...wire.identifiers import TopicPartition
from ..source.offsets import Position
from ..source.options import OptionError


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of a query by partition, with at least one partition.

    A partition's lag is the number of offsets between the last batch and the latest offset.
    """

    by_partition: Mapping[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.by_partition.values())

    @property
    def least(self) -> int:
        return min(self.by_partition.values())

    @property
    def most(self) -> int:
        return max(self.by_partition.values())

    @property
    def average(self) -> float:
        return self.total / len(self.by_partition)


def lag_of(progress: Mapping[str, Any] | None) -> Lag | None:
    """Return the lag in a query's `lastProgress`, or None without offsets of our source.

    If two sources of the query read a partition, the partition's lag is that of the slower source.
    """
    found: dict[TopicPartition, int] = {}
    for source in progress["sources"] if progress is not None else ():
        latest, end = _position(source["latestOffset"]), _position(source["endOffset"])
        if latest is None or end is None:
            continue
        for key, offset in latest.offsets.items():
            behind = max(0, offset - end.offsets.get(key, 0))
            found[key] = max(behind, found.get(key, 0))
    return Lag(dict(sorted(found.items()))) if found else None


def _position(said: Any) -> Position | None:
    """Parse an offset in Spark's progress report. Returns None for another source's offset."""
    try:
        value = json.loads(said) if isinstance(said, str) else said
        return Position.from_json(value) if isinstance(value, dict) else None
    except (ValueError, KeyError, TypeError, OptionError):
        return None
