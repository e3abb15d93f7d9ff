"""The rules of Kafka's log (KIP-98, 890) for one partition's pieces, on any broker.

The names and messages of anomalies are those of `oncelog check` (proof/judge/log_anomalies.py), so
results can be compared. `oncelog check` applies the rules to one batch after another, and this file
applies them to columns. Two anomalies are found only here. `offset-gap` is a missing offset of an
uncompacted log. `marker-missing` is a producer's newer epoch within its open transaction.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from ..judge import log_anomalies as log
from ..judge.log_anomalies import LogAnomaly
from .neighbours import with_neighbours
from .pieces import ABORT, COPY, DATA, SEQUENCES, WORD, first_sequence, last_sequence
from .violations import violations

PRODUCER = (*COPY, "producer_id")


def in_context(pieces: DataFrame, chunk_size: int) -> DataFrame:
    """Return the pieces of producers, with columns about earlier and later pieces of the producer.

    Each column describes pieces of the same producer in the same partition, and is null without
    such a piece. epoch_before is the largest earlier epoch, and lower_before is the smallest,
    negated. data_before has epoch, last offset and last sequence of the newest earlier data with
    sequences. opened_before has epoch and last offset of the newest earlier transactional data, and
    marker_before those of the newest earlier marker. coordinator_before is the largest earlier
    coordinator epoch. marker_after has offset and kind of the next marker. The newest piece is the
    last one of the highest epoch. is_zombie says whether the epoch is below epoch_before.
    """
    is_data, is_marker = F.col("kind") == DATA, F.col("kind") != DATA
    epoch, place = F.col("producer_epoch"), F.struct("producer_epoch", "last")
    sequenced = F.struct("producer_epoch", "last", last_sequence().alias("sequence"))
    return with_neighbours(
        pieces.where("producer_id >= 0"),
        PRODUCER,
        "first",
        chunk_size=chunk_size,
        before={
            "epoch_before": epoch,
            "lower_before": -epoch,
            "data_before": F.when(is_data & (F.col("base") >= 0), sequenced),
            "opened_before": F.when(is_data & F.col("is_transactional"), place),
            "marker_before": F.when(is_marker, place),
            "coordinator_before": F.when(is_marker, F.col("coordinator_epoch")),
        },
        after={"marker_after": F.when(is_marker, F.struct("first", "kind"))},
    ).withColumn("is_zombie", F.coalesce(epoch < F.col("epoch_before"), F.lit(False)))


def is_within_transaction() -> Column:
    """Return a column: whether the producer has an open transaction before this piece."""
    opened, marker = F.col("opened_before"), F.col("marker_before")
    is_newer = (opened["last"] > marker["last"]) & (
        opened["producer_epoch"] >= marker["producer_epoch"]
    )
    return opened.isNotNull() & (marker.isNull() | is_newer)


def of_producers(context: DataFrame, logs: DataFrame) -> DataFrame:
    """Return the violations of the rules for sequence numbers, epochs and markers of a producer.

    context: the result of `in_context`. logs: the result of `extents` with is_compacted.
    """
    known = context.join(
        F.broadcast(logs.select(*COPY, "is_compacted", F.col("start").alias("log_start"))), [*COPY]
    )
    rows = known.withColumn("found", F.array_compact(F.array(*_rules())))
    return rows.select("*", F.explode("found").alias("one")).select(
        F.col("one.anomaly").alias("anomaly"),
        *COPY,
        F.col("first").alias("offset"),
        "producer_id",
        F.col("one.sentence").alias("sentence"),
    )


def _rules() -> list[Column]:
    is_data, zombie, within = F.col("kind") == DATA, F.col("is_zombie"), is_within_transaction()
    is_known = F.coalesce(
        F.col("data_before.producer_epoch") == F.col("producer_epoch"), F.lit(False)
    )
    expected = F.when(
        is_known, F.pmod(F.col("data_before.sequence") + 1, F.lit(SEQUENCES))
    ).otherwise(F.lit(0))
    ahead = F.pmod(first_sequence() - expected, F.lit(SEQUENCES))
    # in a log whose beginning is gone, an epoch may have begun there
    epoch_began_here = F.coalesce(-F.col("lower_before") < F.col("producer_epoch"), F.lit(False))
    is_free = ~is_known & (F.col("log_start") > 0) & ~epoch_began_here
    is_judged = is_data & ~zombie & (F.col("base") >= 0) & ~F.col("is_compacted") & ~is_free
    is_repeated = is_known & (ahead > SEQUENCES // 2)
    sequence = ("producer_id", "producer_epoch", first_sequence(), expected)
    return [
        _found(log.ZOMBIE_APPEND, zombie, "producer_id", "producer_epoch", "epoch_before"),
        _found(log.SEQUENCE_REPEATED, is_judged & (ahead != 0) & is_repeated, *sequence),
        _found(log.SEQUENCE_GAP, is_judged & (ahead != 0) & ~is_repeated, *sequence),
        _found(log.PLAIN_IN_TRANSACTION,
               is_data & ~zombie & within & ~F.col("is_transactional"), "producer_id"),
        _found(log.MARKER_MISSING,
               is_data & ~zombie & within & F.col("is_transactional")
               & (F.col("producer_epoch") > F.col("opened_before.producer_epoch")),
               "producer_id", "producer_epoch", "opened_before.producer_epoch"),
        _found(log.COORDINATOR_EPOCH_FELL,
               ~is_data & ~zombie & (F.col("coordinator_epoch") >= 0)
               & F.coalesce(F.col("coordinator_epoch") < F.col("coordinator_before"), F.lit(False)),
               "producer_id", "coordinator_epoch", "coordinator_before"),
    ]  # fmt: skip


def _found(anomaly: LogAnomaly, when: Column, *values: str | Column) -> Column:
    columns = [F.col(v) if isinstance(v, str) else v for v in values]
    said = F.format_string(anomaly.sentence, *columns)
    return F.when(when, F.struct(F.lit(anomaly.name).alias("anomaly"), said.alias("sentence")))


def extents(pieces: DataFrame) -> DataFrame:
    """Return one row for each copy of a partition.

    Its columns are start, end (inclusive), records, distinct offsets and markers.
    """
    return (
        _words(pieces)
        .groupBy(*COPY)
        .agg(
            F.min("start").alias("start"),
            F.max("end").alias("end"),
            F.sum("records").alias("records"),
            F.sum("distinct").alias("distinct"),
            F.sum("markers").alias("markers"),
        )
    )


def _words(pieces: DataFrame) -> DataFrame:
    return pieces.groupBy(*COPY, "word").agg(
        F.sum("records").alias("records"),
        F.bit_count(F.bit_or("mask")).cast("long").alias("distinct"),
        F.min("first").alias("start"),
        F.max("last").alias("end"),
        F.sum((F.col("kind") != DATA).cast("long")).alias("markers"),
    )


def of_offsets(pieces: DataFrame, logs: DataFrame, chunk_size: int) -> DataFrame:
    """Return the offsets that occur twice, and the offsets missing in uncompacted logs.

    logs: the result of `extents` with is_compacted. Only partitions with counts that do not match
    are examined.
    """
    odd = logs.where("records > distinct or (not is_compacted and distinct <= end - start)")
    words = _words(pieces).join(F.broadcast(odd.select(*COPY, "is_compacted")), [*COPY])
    doubled = violations(
        words.where("records > distinct"),
        log.OFFSET_DISORDER,
        F.col("start"),
        F.format_string(
            "%d records stand at %d offsets from %d to %d", "records", "distinct", "start", "end"
        ),
    )
    placed = with_neighbours(
        words.where("not is_compacted"),
        COPY,
        "word",
        chunk_size=max(1, chunk_size // WORD),
        before={"end_before": F.col("end")},
    )
    between = F.col("start") - F.coalesce(F.col("end_before"), F.col("start") - 1) - 1
    inside = F.col("end") - F.col("start") + 1 - F.col("distinct")
    missing = violations(
        placed.where((between > 0) | (inside > 0)),
        log.OFFSET_GAP,
        F.when(between > 0, F.col("end_before") + 1).otherwise(F.col("start")),
        F.format_string(
            "%d offsets are missing before or within %d to %d", between + inside, "start", "end"
        ),
    )
    return doubled.unionByName(missing)


def of_leader_epochs(pieces: DataFrame) -> DataFrame:
    """Return the leader epochs that are lower than an earlier one in the log."""
    epochs = pieces.groupBy(*COPY, "leader_epoch").agg(
        F.min("first").alias("start"), F.max("last").alias("end")
    )
    newer = Window.partitionBy(*COPY).orderBy(F.col("leader_epoch").desc())
    smallest = F.max(F.struct((-F.col("start")).alias("falling"), "leader_epoch"))
    met = epochs.withColumn(
        "newer", smallest.over(newer.rowsBetween(Window.unboundedPreceding, -1))
    )
    sentence = f"{log.LEADER_EPOCH_FELL.sentence}, which begins at %d"
    begin = -F.col("newer.falling")
    return violations(
        met.where(begin < F.col("end")),
        log.LEADER_EPOCH_FELL,
        F.col("end"),
        F.format_string(sentence, "leader_epoch", "newer.leader_epoch", begin),
    )


def ended(context: DataFrame) -> DataFrame:
    """Return the transactions that a marker ended.

    The columns are copy, producer, epochs, marker and position.
    """
    return context.where(
        (F.col("kind") != DATA) & ~F.col("is_zombie") & is_within_transaction()
    ).select(
        *COPY,
        "producer_id",
        F.col("opened_before.producer_epoch").alias("data_epoch"),
        F.col("producer_epoch").alias("marker_epoch"),
        "kind",
        "first",
    )


def of_transactions(endings: DataFrame) -> DataFrame:
    """Return the transactions that are committed in one partition and aborted in another.

    Markers in two partitions belong to one transaction if they have the same producer id and epoch,
    and this epoch is above that of the data. Only transactions V2, and V1 transactions that a fence
    ended, have such markers.
    """
    distinct = endings.where("marker_epoch > data_epoch")
    both = (
        distinct.groupBy("producer_id", "marker_epoch")
        .agg(
            F.min("kind").alias("least"),
            F.max("kind").alias("most"),
            F.min(F.when(F.col("kind") == ABORT, F.struct(*COPY, "first"))).alias("aborted"),
            F.min(F.when(F.col("kind") != ABORT, F.struct(*COPY, "first"))).alias("committed"),
        )
        .where("least <> most")
    )
    elsewhere = [f"committed.{name}" for name in ("topic", "partition", "first")]
    return violations(
        both.select("*", "aborted.*"),
        log.MIXED_MARKERS,
        F.col("first"),
        F.format_string(
            "producer %d epoch %d is aborted here and committed in %s/%d at %d",
            *("producer_id", "marker_epoch", *elsewhere),
        ),
        F.col("producer_id"),
    )


def open_transactions(context: DataFrame) -> DataFrame:
    """Return transactions without a marker.

    The columns are those of COPY, and producer_id, producer_epoch, first and max_timestamp.
    """
    running = context.where(
        (F.col("kind") == DATA)
        & F.col("is_transactional")
        & F.col("marker_after").isNull()
        & ~F.col("is_zombie")
    )
    return running.groupBy(*COPY, "producer_id").agg(
        F.max("producer_epoch").alias("producer_epoch"),
        F.min("first").alias("first"),
        F.max("max_timestamp").alias("max_timestamp"),
    )


def of_open_transactions(opened: DataFrame, older_than: Column) -> DataFrame:
    """Return the open transactions that have no record after `older_than`."""
    return violations(
        opened.where(F.col("max_timestamp") <= older_than),
        log.OPEN_TRANSACTION,
        F.col("first"),
        F.format_string(log.OPEN_TRANSACTION.sentence, "producer_id", "producer_epoch"),
        F.col("producer_id"),
    )
