"""The transactions of a partition that committed readers may not pass yet.

A transaction is ongoing until its marker is written, and unreplicated until the high watermark
is above the marker. Readers of committed data stop at the first offset of the first of either:
the last stable offset (LSO).
"""

import heapq
from collections.abc import Iterable
from typing import NamedTuple


class CompletedTransaction(NamedTuple):
    """A transaction with a written marker (at last_offset). First data at first_offset.

    `last_stable_offset` is what it will be with this one complete and replicated: the first
    offset of the next open transaction, else the offset behind the marker.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool
    last_stable_offset: int


class OpenTransactions:
    """Transactions by their first offset in the partition."""

    __slots__ = ("_ongoing", "unreplicated")

    def __init__(self) -> None:
        # First offset to producer id, in rising order: transactions begin at the log's end.
        self._ongoing: dict[int, int] = {}
        # (first offset, marker offset): a heap whose top is removed once its marker is committed.
        self.unreplicated: list[tuple[int, int]] = []

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Add a transaction that begins above all others."""
        self._ongoing[first_offset] = producer_id

    def stable_offset_without(self, first_offset: int, marker_offset: int) -> int:
        """Return the last stable offset once the transaction at `first_offset` is over."""
        others = (other for other in self._ongoing if other != first_offset)
        return next(others, marker_offset + 1)

    def complete(self, completed: CompletedTransaction) -> None:
        """Move a transaction from the ongoing to the unreplicated; its abort has been noted."""
        del self._ongoing[completed.first_offset]
        heapq.heappush(self.unreplicated, (completed.first_offset, completed.last_offset))

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Forget the transactions with markers below `high_watermark`: they are committed."""
        unreplicated = self.unreplicated
        while unreplicated and unreplicated[0][1] < high_watermark:
            heapq.heappop(unreplicated)

    @property
    def first_ongoing_offset(self) -> int | None:
        """Return the first offset of the oldest transaction without a marker."""
        return next(iter(self._ongoing), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the first offset of the oldest ongoing or unreplicated transaction."""
        ongoing = self.first_ongoing_offset
        if not self.unreplicated:
            return ongoing
        unreplicated = self.unreplicated[0][0]
        return unreplicated if ongoing is None else min(ongoing, unreplicated)

    def ongoing(self) -> list[tuple[int, int]]:
        """Return the transactions without marker as (first offset, producer id), rising."""
        return list(self._ongoing.items())

    def load(self, ongoing: Iterable[tuple[int, int]]) -> None:
        """Start over with these ongoing transactions, as (first offset, producer id)."""
        self.unreplicated.clear()
        self._ongoing.clear()
        self._ongoing.update(sorted(ongoing))
