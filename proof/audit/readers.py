"""Compares the records that a read_committed consumer got with the markers in the log.

The consumer used its broker's list of aborted transactions. Here visibility is computed again from
the log. A record is visible if it is outside of transactions, or if the next marker of its producer
in that partition is a commit. Both sides have one row, with a mask of offsets, for each range of 64
offsets (a word), so the comparison is one join of small rows. A compacted log may have lost records
after the consumer read it, so a shown record that is missing in a compacted log is no violation.
"""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..judge.log_anomalies import (
    ABORTED_VISIBLE,
    COMMITTED_HIDDEN,
    OPEN_VISIBLE,
    PHANTOM_READ,
)
from .pieces import ABORT, COMMIT, DATA, PARTITION, bit_of, offsets_in, word_of

SPANS = "topic string, partition int, start long, end long"
"""Of each partition: the reader was asked for offsets from start (inclusive) to end (exclusive)."""
KINDS = (
    (ABORTED_VISIBLE, "shown & aborted", "shown the record, but its transaction was aborted"),
    (OPEN_VISIBLE, "shown & open", "shown the record, but its transaction has not ended"),
    (COMMITTED_HIDDEN, "committed & ~shown", "not shown the record, although it is committed"),
    (
        PHANTOM_READ,
        "shown & ~(committed | aborted | open)",
        "shown a record that the log does not have",
    ),
)


def shown(read: DataFrame) -> DataFrame:
    """Return a row for each range of 64 offsets, with a mask of the offsets that were read.

    `read` has the topic, partition and offset of each record that a consumer got.
    """
    return (
        read.select(*PARTITION, word_of("offset").alias("word"), bit_of("offset").alias("bit"))
        .groupBy(*PARTITION, "word")
        .agg(F.bit_or("bit").alias("shown"))
    )


def of_readers(
    pieces: DataFrame,
    context: DataFrame,
    shown_words: DataFrame,
    spans: DataFrame,
    compacted: Collection[str] = (),
) -> DataFrame:
    """Return a row for each offset that was wrongly shown to a consumer or wrongly hidden from it.

    `pieces` and `context` have one copy of each partition. A partition without a row in `spans` was
    not read by the consumer. compacted: topics with logs that may have lost shown records.
    """
    outcome = F.col("marker_after.kind")
    decided = context.where(F.col("kind") == DATA).select(
        *PARTITION,
        "word",
        "mask",
        F.when(~F.col("is_transactional"), COMMIT).otherwise(outcome).alias("outcome"),
    )
    unowned = pieces.where(f"producer_id < 0 and kind = {DATA}").select(
        *PARTITION, "word", "mask", F.lit(COMMIT).alias("outcome")
    )

    def union(name: str, chosen: str) -> Column:
        return F.coalesce(F.bit_or(F.when(F.expr(chosen), F.col("mask"))), F.lit(0)).alias(name)

    words = (
        decided.unionByName(unowned)
        .groupBy(*PARTITION, "word")
        .agg(
            union("committed", f"outcome = {COMMIT}"),
            union("aborted", f"outcome = {ABORT}"),
            union("open", "outcome is null"),
        )
    )
    both = (
        words.join(shown_words, [*PARTITION, "word"], "full_outer")
        .na.fill(0, ["committed", "aborted", "open", "shown"])
        .join(F.broadcast(spans), [*PARTITION])
    )
    kinds = [
        F.struct(
            F.lit(anomaly.name).alias("anomaly"),
            F.expr(mask).alias("mask"),
            F.lit(f"a reader was {text}").alias("sentence"),
        )
        for anomaly, mask, text in KINDS
    ]
    each = both.select("*", F.inline(F.array(*kinds))).withColumn(
        "offset", F.explode(offsets_in("mask"))
    )
    may_be_gone = F.col("topic").isin(*compacted) if compacted else F.lit(False)
    is_judged = ~((F.col("anomaly") == PHANTOM_READ.name) & may_be_gone)
    return each.where(is_judged & F.expr("offset >= start and offset < end")).withColumns(
        {"replica": F.lit(-1), "producer_id": F.lit(-1).cast("long")}
    )
