"""Figures of queries in Prometheus' text format, in a file that is replaced atomically.

A file needs no port, because node_exporter's textfile collector, or any other agent, reads it. The
file also keeps the last figures of a query that ended before a scrape, such as a query with trigger
availableNow. After a driver has died, its figures get old, so alert on their age
(oncelog_spark_last_batch_timestamp_seconds).
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .batch_figures import BatchFigures

ENDED_MAX = 50  # queries that are kept after their end
PREFIX = "oncelog_spark"


@dataclass(slots=True)
class QueryFigures:
    """The totals of a query since this program began, and the figures of its last batch."""

    is_running: bool = True
    batches: int = 0
    rows_read: int = 0
    rows_written: int = 0
    last: BatchFigures | None = None
    last_at_s: float = 0.0  # wall clock


class Exposition:
    """The totals and last figures of all queries, by the query's name, or its id without a name."""

    def __init__(self) -> None:
        self._queries: dict[str, QueryFigures] = {}

    def started(self, query: str) -> None:
        self._queries.setdefault(query, QueryFigures()).is_running = True

    def took(self, figures: BatchFigures) -> None:
        """Add a finished batch's figures to the totals of its query."""
        query = self._queries.setdefault(figures.query, QueryFigures())
        query.batches += 1
        query.rows_read += figures.rows_read
        query.rows_written += figures.rows_written or 0
        query.last, query.last_at_s = figures, time.time()

    def ended(self, query: str) -> None:
        self._queries.setdefault(query, QueryFigures()).is_running = False
        ended = [name for name, each in self._queries.items() if not each.is_running]
        for name in ended[:-ENDED_MAX]:
            del self._queries[name]

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines())

    def write(self, path: Path) -> None:
        """Replace the metrics file, or raise OSError."""
        made = path.with_name(f".{path.name}.{os.getpid()}")
        made.write_text(self.text(), encoding="utf-8")
        made.chmod(0o644)  # other users read it
        made.replace(path)

    def _lines(self) -> Iterator[str]:
        told = {name: each for name, each in self._queries.items() if each.last is not None}
        yield from _metric(
            "query_running",
            "gauge",
            "1 while the query runs.",
            [(_labels(query=n), int(q.is_running)) for n, q in self._queries.items()],
        )
        yield from _metric(
            "batches_total",
            "counter",
            "Micro-batches since the program began.",
            [(_labels(query=n), q.batches) for n, q in told.items()],
        )
        yield from _metric(
            "rows_read_total",
            "counter",
            "Rows that sources gave.",
            [(_labels(query=n), q.rows_read) for n, q in told.items()],
        )
        yield from _metric(
            "rows_written_total",
            "counter",
            "Rows that the sink has committed.",
            [(_labels(query=n), q.rows_written) for n, q in told.items()],
        )
        last = {name: (each.last, each.last_at_s) for name, each in told.items() if each.last}
        yield from _metric(
            "batch_id",
            "gauge",
            "Of the last micro-batch.",
            [(_labels(query=n), b.batch_id) for n, (b, _) in last.items()],
        )
        yield from _metric(
            "batch_duration_seconds",
            "gauge",
            "Of the last micro-batch.",
            [(_labels(query=n), b.duration_ms / 1000) for n, (b, _) in last.items()],
        )
        yield from _metric(
            "last_batch_timestamp_seconds",
            "gauge",
            "When the last micro-batch was over.",
            [(_labels(query=n), round(at_s, 3)) for n, (_, at_s) in last.items()],
        )
        yield from _metric(
            "offsets_behind_latest",
            "gauge",
            "Offsets that the last micro-batch left.",
            [
                (_labels(query=n, topic=topic, partition=str(partition)), behind)
                for n, (b, _) in last.items()
                if b.lag is not None
                for (topic, partition), behind in b.lag.by_partition.items()
            ],
        )


def _metric(name: str, kind: str, words: str, samples: list[tuple[str, float]]) -> Iterator[str]:
    if samples:
        yield f"# HELP {PREFIX}_{name} {words}"
        yield f"# TYPE {PREFIX}_{name} {kind}"
        for labels, value in samples:
            yield f"{PREFIX}_{name}{{{labels}}} {value}"


def _labels(**labels: str) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
