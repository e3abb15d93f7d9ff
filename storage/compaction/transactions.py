"""The transactions in a log during its compaction, as pure code.

The log is traversed in the order of offsets. Aborted transactions are added from the transaction
indexes before the traversal reaches them. Three rules remove aborted records permanently:

- a data batch of an aborted transaction is removed, and its keys supersede no others.
- a marker stays as long as the traversal finds records of its transaction, even records that it
  removes;
- the index entry of an aborted transaction is copied as long as its marker must stay.

Therefore a reader always finds the marker and the index entry for any records that are left.
"""

import heapq
from collections.abc import Iterable

from ...wire.control_record import ControlType, decode_marker
from ...wire.record_batch import BatchHeader, Buffer
from ..segments.transaction_index import AbortedTransaction


class TransactionWalk:
    """The transactions during one traversal of a log, from its first segment to its last."""

    __slots__ = ("_aborted_ahead", "_aborted_with_data", "_committed_with_data", "_in_abort")

    def __init__(self) -> None:
        self._aborted_ahead: list[tuple[int, AbortedTransaction]] = []  # a heap by first offset
        self._in_abort: dict[int, AbortedTransaction] = {}  # by producer id
        self._aborted_with_data: set[int] = set()  # producer ids
        self._committed_with_data: set[int] = set()  # producer ids

    def announce(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Add aborted transactions that end ahead of the traversal. Duplicates are ignored."""
        for transaction in transactions:
            heapq.heappush(self._aborted_ahead, (transaction.first_offset, transaction))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Record a data batch. Return whether it belongs to an aborted transaction."""
        self._reach(header.last_offset)
        producer_id = header.producer_id
        if not header.is_transactional:
            return False
        if producer_id in self._in_abort:
            self._aborted_with_data.add(producer_id)
            return True
        self._committed_with_data.add(producer_id)
        return False

    def end(self, header: BatchHeader, marker: Buffer) -> tuple[bool, AbortedTransaction | None]:
        """Record a marker. Return whether it may be removed later, and the index entry to keep.

        A marker may be removed, and has no index entry, if the traversal has found no records of
        its transaction.
        """
        producer_id = header.producer_id
        self._reach(header.base_offset)
        if decode_marker(marker)[0] is ControlType.COMMIT:
            had_data = producer_id in self._committed_with_data
            self._committed_with_data.discard(producer_id)
            return not had_data, None
        transaction = self._in_abort.pop(producer_id, None)
        had_data = producer_id in self._aborted_with_data
        self._aborted_with_data.discard(producer_id)
        return not had_data, transaction if had_data else None

    def _reach(self, offset: int) -> None:
        while self._aborted_ahead and self._aborted_ahead[0][0] <= offset:
            _, transaction = heapq.heappop(self._aborted_ahead)
            if transaction.last_offset >= offset:
                self._in_abort.setdefault(transaction.producer_id, transaction)
