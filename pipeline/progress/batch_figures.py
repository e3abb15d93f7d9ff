"""The figures of one micro-batch, and their line in the log. The file does no I/O."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .lag import Lag, lag_of


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFigures:
    """The figures of one micro-batch. `rows_written` and lag are None if unknown."""

    query: str  # its name, else its id
    batch_id: int
    rows_read: int
    rows_written: int | None
    lag: Lag | None
    duration_ms: int

    def __str__(self) -> str:
        written = "?" if self.rows_written is None else self.rows_written
        return (
            f"query {self.query}: batch {self.batch_id}: {self.rows_read} rows read, "
            f"{written} written, {_in_words(self.lag)}, {self.duration_ms} ms"
        )


def figures_of(progress: Mapping[str, Any], rows_written: int | None) -> BatchFigures:
    """Create the figures of a batch from Spark's progress.

    rows_written: the count of an exactly-once sink. If None, Spark's count is used, which only
    Spark's own sinks have.
    """
    if rows_written is None:
        counted = progress["sink"]["numOutputRows"]  # -1 of sinks that do not count
        rows_written = None if counted is None or counted < 0 else int(counted)
    durations: Mapping[str, int] = progress["durationMs"]
    return BatchFigures(
        query=str(progress["name"] or progress["id"]),
        batch_id=int(progress["batchId"]),
        rows_read=int(progress["numInputRows"]),
        rows_written=rows_written,
        lag=lag_of(progress),
        duration_ms=int(durations.get("triggerExecution", 0)),
    )


def _in_words(lag: Lag | None) -> str:
    if lag is None:
        return "lag not known"
    if not lag.most:
        return "0 offsets behind"
    (topic, partition), most = max(lag.by_partition.items(), key=lambda each: each[1])
    count = len(lag.by_partition)
    shared = f" in {count} partitions, {most} of them in {topic}/{partition}" if count > 1 else ""
    return f"{lag.total} offsets behind{shared}"
