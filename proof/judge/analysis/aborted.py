"""Finds the aborted offsets in the raw logs, by the next marker of their producer.

A replica that fell behind may have records and a marker that the others never had. Therefore an
offset is aborted only if no replica that has the offset contradicts.
"""

import numpy as np

from ....wire.record_batch import TRANSACTIONAL_BIT
from ..history.schema import Marker
from .arrays import Array
from .view import View

OFFSET_BITS = 40


def is_aborted(view: View, partition: Array, offset: Array) -> Array:
    """Return for each (partition, offset) whether the logs have it in an aborted transaction."""
    replica = view.history.column("batches", "replica")
    says_aborted, says_otherwise = np.zeros((2, len(offset)), bool)
    for number in np.unique(replica) if len(offset) else ():
        log = _Log(view, np.flatnonzero(replica == number))
        is_held, is_abort = log.find(partition, offset)
        says_aborted |= is_held & is_abort
        says_otherwise |= is_held & ~is_abort
    return says_aborted & ~says_otherwise


class _Log:
    """The batches of one replica, sorted by partition and offset."""

    def __init__(self, view: View, rows: Array) -> None:
        def column(name: str) -> Array:
            return view.history.column("batches", name)[rows]

        partition, base, marker = column("partition"), column("base_offset"), column("marker")
        is_abort = np.zeros(len(rows), bool)
        producer = column("producer_id")
        by_producer = np.lexsort((base, producer, partition))
        is_marker = marker[by_producer] != Marker.NONE
        # for each batch the next marker after it, if that is of the same producer
        place = np.where(is_marker, np.arange(len(rows)), len(rows) - 1)
        following = np.minimum.accumulate(place[::-1])[::-1]
        ends = by_producer[following]
        is_own = (partition[ends] == partition[by_producer]) & (
            producer[ends] == producer[by_producer]
        )
        is_abort[by_producer] = is_own & (marker[ends] == Marker.ABORT)
        is_abort &= (column("attributes") & TRANSACTIONAL_BIT) != 0
        order = np.lexsort((base, partition))
        self._keys = _key(partition, base)[order]
        self._last = _key(partition, column("last_offset"))[order]
        self._is_abort = is_abort[order]

    def find(self, partition: Array, offset: Array) -> tuple[Array, Array]:
        """Return two columns for these offsets: whether each exists, and whether it is aborted."""
        keys = _key(partition, offset)
        at = np.searchsorted(self._keys, keys, "right") - 1
        return (at >= 0) & (keys <= self._last[at]), self._is_abort[at]


def _key(partition: Array, offset: Array) -> Array:
    return (partition.astype(np.int64) << OFFSET_BITS) + offset
