"""The tenures of a consumer group's members, partition by partition.

A tenure is the time in which one member owns one partition, as its heartbeats show.
"""

from collections.abc import Iterator

import numpy as np

from ...analysis.arrays import Array, grouped
from ...history.columns import History


def tenure_column(history: History, name: str) -> Array:
    return history.column("tenures", name)


def certain_until(history: History) -> Array:
    """Return, for each tenure, the time until which its member certainly had the partition.

    This is the start of the last answered heartbeat in the tenure, since the session may have ended
    after it. Without one it is `taken_ns`.
    """
    return np.maximum(tenure_column(history, "taken_ns"), tenure_column(history, "confirmed_ns"))


def by_partition(history: History) -> Iterator[tuple[int, int, Array]]:
    """Yield (group, partition, rows of its tenures in the order of their begins)."""
    group, partition = tenure_column(history, "group"), tenure_column(history, "partition")
    taken = tenure_column(history, "taken_ns")
    for rows in grouped(np.arange(len(group)), group, partition):
        order = rows[np.argsort(taken[rows], kind="stable")]
        yield int(group[rows[0]]), int(partition[rows[0]]), order
