"""The transactions that a cleaner meets while it walks over a log. Pure.

The walk goes in the order of offsets. Aborted transactions are announced to it, from the
transaction indexes, before it reaches them. Three rules make aborted data vanish and never come
back:

- a data batch of an aborted transaction is dead, and its keys supersede nothing;
- a marker stays as long as the walk meets data of its transaction, even data that it removes;
- the entry of an aborted transaction moves into the rewritten index as long as its marker must.

So a reader always finds the marker and the entry of any data it finds.
"""

import heapq
from collections.abc import Iterable

from ...wire.control_record import ControlType, decode_marker
from ...wire.record_batch import BatchHeader, Buffer
from ..segments.transaction_index import AbortedTransaction


class TransactionWalk:
    """The state of one walk, from the first segment to the end."""

    __slots__ = ("_aborted_ahead", "_aborted_with_data", "_committed_with_data", "_in_abort")

    def __init__(self) -> None:
        self._aborted_ahead: list[tuple[int, AbortedTransaction]] = []  # a heap by first offset
        self._in_abort: dict[int, AbortedTransaction] = {}  # by producer id
        self._aborted_with_data: set[int] = set()  # producer ids
        self._committed_with_data: set[int] = set()  # producer ids

    def announce(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Announce aborted transactions that end ahead of the walk; repeats do no harm."""
        for transaction in transactions:
            heapq.heappush(self._aborted_ahead, (transaction.first_offset, transaction))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Note a data batch; return whether it belongs to an aborted transaction."""
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
        """Note a marker: return (whether it may go after its horizon, the index entry to keep).

        It may not go while the walk has met data of its transaction.
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
