"""Raw rows packed into pieces of up to 64 neighbouring records of one batch, without any sort.

A row of the source's raw mode is a record or a marker. The audit examines batches and offsets, so
rows are packed first, by an aggregate that Spark executes where the rows are read:

    word      offset div 64
    mask      a bit for each offset of the word that the piece has
    base      (sequence - offset) mod 2^31, the same for all records of one batch, and different
              for batches between which a sequence or an offset is missing; a negative number for
              rows without a sequence, of which each row in a transaction has its own, so that no
              piece extends over a marker
    digest    exclusive-or of all bytes and positions of the rows that copies must share

Sums of counts and unions of masks then show which offsets of a word occur twice or not at all.
Neighbouring pieces of a producer show whether its sequences are consecutive. A marker is a piece by
itself. Missing values are -1, so equality needs no special case.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

SEQUENCES = 2**31
WORD = 64
DATA, ABORT, COMMIT = -1, 0, 1
PARTITION = ("topic", "partition")
COPY = ("replica", *PARTITION)
PIECE = (
    *COPY,
    "producer_id",
    "producer_epoch",
    "is_transactional",
    "kind",
    "coordinator_epoch",
    "leader_epoch",
    "batch_crc",
    "base",
    "word",
)
BOUNDS = "topic string, partition int, low long, high long"
"""Of each partition: copies are compared from offset low (inclusive) to high (exclusive)."""


def pieces(rows: DataFrame, bounds: DataFrame | None = None) -> DataFrame:
    """Pack raw rows into pieces, and return the pieces.

    To PIECE it adds the columns first, last, records, mask, max_timestamp, compared and digest.
    Without `bounds` copies are not compared, and compared and digest are 0.
    """
    named = named_rows(rows)
    compared, digest = F.lit(0), F.lit(0)
    if bounds is not None:
        named = named.join(F.broadcast(bounds), [*PARTITION], "left")
        inside = (F.col("offset") >= F.col("low")) & (F.col("offset") < F.col("high"))
        columns = [name for name in PIECE if name not in (*COPY, "word", "base")]
        row_hash = F.xxhash64("offset", "sequence", *columns)
        compared = F.count_if(inside)
        digest = F.bit_xor(F.when(inside, row_hash).otherwise(F.lit(0)))
    return named.groupBy(*PIECE).agg(
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
        F.count(F.lit(1)).alias("records"),
        F.bit_or(bit_of("offset")).alias("mask"),
        F.max("timestamp").alias("max_timestamp"),
        compared.cast("long").alias("compared"),
        digest.cast("long").alias("digest"),
    )


def named_rows(rows: DataFrame) -> DataFrame:
    """Return raw rows with the columns of PIECE, and offset, sequence, timestamp, key and value."""
    kind = (
        F.when(~F.col("is_control"), DATA)
        .when(F.col("control_type") == "commit", COMMIT)
        .otherwise(ABORT)
    )
    base = (
        F.when(
            F.col("sequence") >= 0, F.pmod(F.col("sequence") - F.col("offset"), F.lit(SEQUENCES))
        )
        .when(F.col("is_transactional"), -1 - F.col("offset"))
        .otherwise(-1 - word_of("offset"))
    )
    return rows.select(
        F.coalesce(F.col("replica"), F.lit(-1)).alias("replica"),
        *PARTITION,
        "offset",
        "sequence",
        "timestamp",
        "key",
        "value",
        "producer_id",
        "producer_epoch",
        "is_transactional",
        "leader_epoch",
        kind.alias("kind"),
        F.coalesce(F.col("coordinator_epoch"), F.lit(-1)).alias("coordinator_epoch"),
        F.coalesce(F.col("batch_crc"), F.lit(-1)).alias("batch_crc"),
        base.cast("long").alias("base"),
        word_of("offset").alias("word"),
    )


def word_of(offset: str) -> Column:
    """Return the number of the range of 64 offsets (the word) that contains an offset."""
    return F.expr(f"{offset} div {WORD}")


def bit_of(offset: str) -> Column:
    return F.expr(f"shiftleft(1L, cast({offset} % {WORD} as int))")


def offsets_in(mask: str, word: str = "word") -> Column:
    """Return the offsets for which a bit is set in the mask of a word, as an ascending array."""
    return F.expr(
        f"transform(filter(sequence(0, {WORD - 1}), b -> getbit({mask}, b) = 1),"
        f" b -> {word} * {WORD} + b)"
    )


def first_sequence() -> Column:
    return F.pmod(F.col("base") + F.col("first"), F.lit(SEQUENCES))


def last_sequence() -> Column:
    return F.pmod(F.col("base") + F.col("last"), F.lit(SEQUENCES))


def one_copy(all_pieces: DataFrame) -> DataFrame:
    """Return the pieces of one copy of each partition.

    This is the copy that was read from the leader, or else the copy with the most records.
    """
    sizes = all_pieces.groupBy(*COPY).agg(F.sum("records").alias("size"))
    rank = F.struct(F.col("replica") < 0, F.col("size"), -F.col("replica"))
    chosen = sizes.groupBy(*PARTITION).agg(F.max_by("replica", rank).alias("replica"))
    return all_pieces.join(F.broadcast(chosen), [*COPY], "left_semi")
