"""Compares replicas from the highest log start to the lowest high watermark.

Partitions that are not compacted are compared by counts and digests of each word of 64 offsets.
Replicas compact their logs separately, so compacted partitions are compared by the newest committed
record of each key. If a key's newest record is a tombstone, the key may be missing on some
replicas.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..judge.log_anomalies import REPLICA_DIVERGENCE
from .pieces import COMMIT, COPY, DATA, PARTITION, PIECE, WORD, named_rows
from .violations import violations


def of_copies(pieces: DataFrame, logs: DataFrame) -> DataFrame:
    """Return the ranges of 64 offsets (words) in which the copies of a partition differ.

    Compacted partitions are left out. pieces: pieces created with bounds. logs: the result of
    `rules.extents` with is_compacted.
    """
    plain = logs.where("replica >= 0 and not is_compacted")
    copies = plain.groupBy(*PARTITION).agg(F.count("replica").alias("copies")).where("copies > 1")
    compared = pieces.where("replica >= 0 and compared > 0").join(F.broadcast(copies), [*PARTITION])
    words = compared.groupBy(*COPY, "word", "copies").agg(
        F.sum("compared").alias("records"), F.bit_xor("digest").alias("digest")
    )
    differing = (
        words.groupBy(*PARTITION, "word", "copies")
        .agg(
            F.count("replica").alias("seen"),
            F.count_distinct("records", "digest").alias("variants"),
            F.min_by("replica", F.struct("records", "digest")).alias("replica"),
            F.max_by("replica", F.struct("records", "digest")).alias("other"),
        )
        .where("variants > 1 or seen < copies")
    )
    # the pieces that some copies lack show where in the word the difference begins
    odd = (
        compared.join(F.broadcast(differing.select(*PARTITION, "word")), [*PARTITION, "word"])
        .groupBy(
            *[name for name in PIECE if name != "replica"], "mask", "compared", "digest", "copies"
        )
        .agg(F.count("replica").alias("have"), F.min("first").alias("first"))
        .where("have < copies")
        .groupBy(*PARTITION, "word")
        .agg(F.min("first").alias("first"))
    )
    return violations(
        differing.join(odd, [*PARTITION, "word"], "left"),
        REPLICA_DIVERGENCE,
        F.coalesce("first", F.col("word") * WORD),
        F.when(
            F.col("seen") < F.col("copies"),
            F.format_string("only %d of %d replicas have these records", "seen", "copies"),
        ).otherwise(F.format_string(REPLICA_DIVERGENCE.sentence, "replica", "other")),
    )


def of_survivors(
    rows: DataFrame, context: DataFrame, logs: DataFrame, bounds: DataFrame
) -> DataFrame:
    """Return the keys of compacted partitions whose newest committed records differ between copies.

    context: the result of `rules.in_context` for all copies.
    """
    compacted = logs.where("replica >= 0 and is_compacted")
    copies = compacted.groupBy(*PARTITION).agg(F.count("replica").alias("copies"))
    named = (
        named_rows(rows)
        .where(f"kind = {DATA} and key is not null")
        .join(F.broadcast(copies.where("copies > 1")), [*PARTITION])
        .join(F.broadcast(bounds), [*PARTITION])
        .where("offset < high")
    )
    hidden = context.where(
        (F.col("kind") == DATA)
        & F.col("is_transactional")
        & ~F.coalesce(F.col("marker_after.kind") == COMMIT, F.lit(False))
    ).select(*PIECE)
    newest = (
        named.join(hidden, [*PIECE], "left_anti")
        .groupBy(*COPY, "key", "copies", "low")
        .agg(
            F.max("offset").alias("offset"),
            F.max_by(F.xxhash64("value", "offset"), "offset").alias("digest"),
            F.max_by(F.col("value").isNull(), "offset").alias("is_tombstone"),
        )
        .where("not is_tombstone and offset >= low")
    )
    differing = (
        newest.groupBy(*PARTITION, "key", "copies")
        .agg(
            F.count("replica").alias("seen"),
            F.count_distinct("digest").alias("variants"),
            F.max("offset").alias("offset"),
            F.max_by("replica", "offset").alias("replica"),
        )
        .where("variants > 1 or seen < copies")
    )
    sentence = "of key %s %d of %d replicas have a newest record, %d different ones"
    return violations(
        differing,
        REPLICA_DIVERGENCE,
        F.col("offset"),
        F.format_string(sentence, F.hex("key"), "seen", "copies", "variants"),
    )
