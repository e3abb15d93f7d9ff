"""Adds values from earlier and later rows of a group, for groups larger than one task's memory.

A window over a group is one task, even for a large group. Therefore a group is cut into chunks, and
windows see only one chunk. The maximum of all earlier chunks and the minimum of all later chunks
are carried over, from one small row for each chunk. Maxima and minima can be combined, so the
result does not depend on the cuts.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

CHUNK = "chunk"


def with_neighbours(
    rows: DataFrame,
    group: Sequence[str],
    order: str,
    *,
    chunk_size: int,
    before: Mapping[str, Column],
    after: Mapping[str, Column] | None = None,
) -> DataFrame:
    """Return the rows with a further column for each name in `before` and `after`.

    `before[name]` becomes the maximum of that expression over all earlier rows of the group.
    `after[name]` becomes the minimum over all later rows. Both are null without such rows. A row's
    chunk is `order` div `chunk_size`, so `order` is an integer, unique in its group.
    """
    after = after or {}
    cut = rows.withColumn(CHUNK, F.expr(f"`{order}` div {chunk_size}"))
    place = [*group, CHUNK]
    back = Window.partitionBy(*place).orderBy(order).rowsBetween(Window.unboundedPreceding, -1)
    # Spark needs quadratic time for a frame to the end of a partition, linear for the reverse.
    forth = (
        Window.partitionBy(*place)
        .orderBy(F.col(order).desc())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    inner = cut.withColumns(
        {f"{name}_here": F.max(what).over(back) for name, what in before.items()}
    ).withColumns({f"{name}_here": F.min(what).over(forth) for name, what in after.items()})
    chunks = cut.groupBy(*place).agg(
        *[F.max(what).alias(name) for name, what in before.items()],
        *[F.min(what).alias(name) for name, what in after.items()],
    )
    earlier = Window.partitionBy(*group).orderBy(CHUNK).rowsBetween(Window.unboundedPreceding, -1)
    later = (
        Window.partitionBy(*group)
        .orderBy(F.col(CHUNK).desc())
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    carried = chunks.select(
        *place,
        *[F.max(name).over(earlier).alias(f"{name}_carried") for name in before],
        *[F.min(name).over(later).alias(f"{name}_carried") for name in after],
    )
    both = inner.join(carried, place)
    met = {name: F.greatest(f"{name}_here", f"{name}_carried") for name in before}
    met |= {name: F.least(f"{name}_here", f"{name}_carried") for name in after}
    done = both.withColumns(met)
    return done.drop(CHUNK, *[f"{n}_{w}" for n in met for w in ("here", "carried")])
