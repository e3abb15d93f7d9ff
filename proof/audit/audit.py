"""Applies all rules of the audit to raw rows, and counts the rows.

The rows are read once and packed into pieces, which are kept in memory or on Spark's disks.
Everything else is computed from the pieces, except the survivors of compacted partitions, for which
keys are read once more.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.storagelevel import StorageLevel

from ..judge import log_anomalies
from ..judge.log_anomalies import LogAnomaly
from . import copies, readers, rules
from .pieces import ABORT, COMMIT, COPY, PARTITION, one_copy
from .pieces import pieces as pieces_of
from .violations import VIOLATION

CHUNK_SIZE = 1 << 20  # offsets that one task examines
ANOMALIES = tuple(
    each.name for each in vars(log_anomalies).values() if isinstance(each, LogAnomaly)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditInput:
    """The data of an audit. If a field other than `rows` is None, its rule is not applied.

    rows: raw rows. compacted: compacted topics, which may lack offsets. shown: the records that a
    read_committed consumer got, as `readers.shown` returns them. spans: rows of readers.SPANS.
    bounds: rows of pieces.BOUNDS, the range of offsets that all copies of a partition must share.
    open_older_than: a transaction without a record after this time must have ended.
    """

    rows: DataFrame
    compacted: Collection[str] = ()
    shown: DataFrame | None = None
    spans: DataFrame | None = None
    bounds: DataFrame | None = None
    open_older_than: datetime | None = None


@dataclass(frozen=True, slots=True)
class AuditResult:
    """The result of an audit. Call `close` at the end.

    violations: rows of VIOLATION. logs: a row for each copy.
    """

    violations: DataFrame
    logs: DataFrame
    _kept: tuple[DataFrame, ...]

    def close(self) -> None:
        for frame in self._kept:
            frame.unpersist()


def audit(given: AuditInput, *, chunk_size: int = CHUNK_SIZE) -> AuditResult:
    """Apply all rules to raw rows, and return the violations and the counts.

    Each rule is a separate query. Spark would plan a combined query again after each of its many
    stages, which takes longer than the work.
    """
    level = StorageLevel.MEMORY_AND_DISK
    pieces = pieces_of(given.rows, given.bounds).persist(level)
    is_compacted = F.col("topic").isin(*given.compacted) if given.compacted else F.lit(False)
    logs = rules.extents(pieces).withColumn("is_compacted", is_compacted).persist(level)
    chosen = one_copy(pieces)
    context = rules.in_context(chosen, chunk_size).persist(level)
    opened = rules.open_transactions(context)
    endings = rules.ended(context)
    of_chosen = logs.join(F.broadcast(chosen.select(*COPY).distinct()), [*COPY], "left_semi")
    found = [
        rules.of_offsets(chosen, of_chosen, chunk_size),
        rules.of_leader_epochs(chosen),
        rules.of_producers(context, of_chosen),
        rules.of_transactions(endings),
    ]
    if given.open_older_than is not None:
        found.append(rules.of_open_transactions(opened, F.lit(given.open_older_than)))
    if given.shown is not None and given.spans is not None:
        found.append(readers.of_readers(chosen, context, given.shown, given.spans, given.compacted))
    if given.bounds is not None:
        found.append(copies.of_copies(pieces, logs))
        if given.compacted:
            every = rules.in_context(
                pieces.where(F.col("topic").isin(*given.compacted)), chunk_size
            )
            found.append(copies.of_survivors(given.rows, every, logs, given.bounds))
    kept = [one.select(*VIOLATION).persist(level) for one in found]
    for one in kept:
        one.count()
    violations = reduce(DataFrame.unionByName, kept)
    counted = logs.join(_transactions(endings, opened), [*COPY], "left").na.fill(0)
    return AuditResult(violations, counted, (*kept, context, logs, pieces))


def _transactions(endings: DataFrame, opened: DataFrame) -> DataFrame:
    outcomes = endings.select(*COPY, "kind").unionByName(
        opened.select(*COPY, F.lit(None).cast("int").alias("kind"))
    )
    return outcomes.groupBy(*COPY).agg(
        F.count_if(F.col("kind") == COMMIT).alias("committed"),
        F.count_if(F.col("kind") == ABORT).alias("aborted"),
        F.count_if(F.col("kind").isNull()).alias("open"),
    )


@dataclass(frozen=True, slots=True)
class Summary:
    """The counts of read rows. `violations` has the number of violations of each anomaly."""

    partitions: int
    copies: int
    records: int
    markers: int
    committed: int
    aborted: int
    open: int
    violations: dict[str, int]


def summary(result: AuditResult) -> Summary:
    logs = result.logs.agg(
        F.count_distinct(*PARTITION).alias("partitions"),
        F.count(F.lit(1)).alias("copies"),
        F.sum(F.col("records") - F.col("markers")).alias("records"),
        F.sum("markers").alias("markers"),
        *[F.sum(name).alias(name) for name in ("committed", "aborted", "open")],
    ).first()
    counts = {
        row["anomaly"]: row["count"]
        for row in result.violations.groupBy("anomaly").count().collect()
    }
    assert logs is not None
    found = {name: value or 0 for name, value in logs.asDict().items()}
    return Summary(**found, violations={n: counts[n] for n in ANOMALIES if n in counts})
