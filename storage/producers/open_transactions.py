"""The transactions of a partition that limit read_committed consumers.

A transaction is ongoing until its marker is written, and unreplicated until the high watermark is
above the marker. read_committed consumers stop at the first offset of the earliest transaction of
either kind, which is the last stable offset (LSO).
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from ...runtime.steps import Steps

_LOADED_A_STEP = 1024


class CompletedTransaction(NamedTuple):
    """A transaction with its first data at first_offset and its marker at last_offset.

    `last_stable_offset` is the LSO after this transaction is complete and replicated. This is the
    first offset of the next open transaction, or the offset after the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int


class OpenTransactions:
    """The ongoing and the unreplicated transactions of a partition, by their first offsets."""

    __slots__ = ("_ongoing", "unreplicated")

    def __init__(self) -> None:
        # First offset -> producer id, in rising order, because transactions begin at the log end.
        # The first key of a dict is found behind all removed keys, which takes too long if many
        # transactions end in their order.
        self._ongoing: OrderedDict[int, int] = OrderedDict()
        # (first offset, marker offset) in a heap, whose top is removed once its marker is
        # committed.
        self.unreplicated: list[tuple[int, int]] = []

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Add a transaction that begins after all others."""
        self._ongoing[first_offset] = producer_id

    def stable_offset_without(self, first_offset: int, marker_offset: int) -> int:
        """Return the LSO after the transaction at `first_offset` has ended and is replicated."""
        others = (other for other in self._ongoing if other != first_offset)
        return next(others, marker_offset + 1)

    def complete(self, completed: CompletedTransaction) -> None:
        """Move a transaction from ongoing to unreplicated, after its marker was written.

        The caller has added an aborted transaction to the transaction index before.
        """
        del self._ongoing[completed.first_offset]
        heapq.heappush(self.unreplicated, (completed.first_offset, completed.last_offset))

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Remove the oldest transactions as long as their markers are below `high_watermark`."""
        unreplicated = self.unreplicated
        while unreplicated and unreplicated[0][1] < high_watermark:
            heapq.heappop(unreplicated)

    @property
    def first_ongoing_offset(self) -> int | None:
        """Return the first offset of the oldest transaction without a marker, or None."""
        return next(iter(self._ongoing), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the first offset of the oldest ongoing or unreplicated transaction, or None."""
        ongoing = self.first_ongoing_offset
        if not self.unreplicated:
            return ongoing
        unreplicated = self.unreplicated[0][0]
        return unreplicated if ongoing is None else min(ongoing, unreplicated)

    def ongoing(self) -> list[tuple[int, int]]:
        """Return the transactions without a marker as rising (first offset, producer id)."""
        return list(self._ongoing.items())

    def clear(self) -> None:
        """Remove all transactions."""
        self.unreplicated.clear()
        self._ongoing.clear()

    def loading(self, ongoing: Iterable[tuple[int, int]]) -> Steps[None]:
        """Start again with these ongoing transactions, as rising (first offset, producer id)."""
        self.clear()
        for count, (first_offset, producer_id) in enumerate(ongoing, 1):
            self._ongoing[first_offset] = producer_id
            if count % _LOADED_A_STEP == 0:
                yield
