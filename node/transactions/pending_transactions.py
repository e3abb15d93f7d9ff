"""The in-memory state of a shard's leader, which supplements the durable records.

An entry of a transactional id:

  is_pending       a write is in flight, so nothing else is decided about the id
  joined           additions of partitions that will be one write (joint_additions.py)
  completion       all markers are written, but the completion is not durable yet
  marking_version  the version of the prepared record whose markers are being sent, 0 for none
  unmarked         partitions whose marker is not written yet
  waiters          requests that wait for one of these instead of being refused

An idle id has no entry.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeVar

from ...coordinator.transactions.additions import Addition
from ...coordinator.transactions.record import TransactionRecord
from ...runtime.steps import Steps
from ...wire.errors import ErrorCode
from ...wire.identifiers import TopicPartition

HELD_PER_ID_MAX = 32
IDS_A_STEP = 64

T = TypeVar("T")
# An addition, and the future of its answer; None stands for a retry.
JoinedAddition = tuple[Addition, "asyncio.Future[ErrorCode | None]"]


@dataclass(slots=True, eq=False)
class PendingTransaction:
    is_pending: bool = False
    joined: list[JoinedAddition] | None = None
    completion: TransactionRecord | None = None
    marking_version: int = 0
    unmarked: set[TopicPartition] = field(default_factory=set)
    waiters: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def is_changing(self) -> bool:
        """Return whether a write is in flight, or will begin at the end of this event loop turn."""
        return self.is_pending or self.joined is not None

    @property
    def is_idle(self) -> bool:
        """Return whether the entry is empty."""
        return not (self.is_changing or self.completion or self.marking_version or self.waiters)

    def wake(self) -> None:
        """Wake all waiting requests after a change, in the order of their arrival."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            _wake(waiter)


class PendingTransactions:
    """The entries of one shard in one term.

    held_max: the number of requests that may wait.
    """

    def __init__(self, held_max: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._held_max = held_max
        self._held = 0
        self._by_id: dict[str, PendingTransaction] = {}
        # Ids whose completion may not be durable yet.
        self._completed: OrderedDict[str, None] = OrderedDict()

    @property
    def is_full(self) -> bool:
        """Return whether the number of held requests has reached its maximum."""
        return self._held >= self._held_max

    def get(self, transactional_id: str) -> PendingTransaction | None:
        """Return the entry of a transactional id, or None if the id is idle."""
        return self._by_id.get(transactional_id)

    def obtain(self, transactional_id: str) -> PendingTransaction:
        """Return the entry of a transactional id, which is created if the id was idle.

        The caller must call `tidy` afterwards.
        """
        entry = self._by_id.get(transactional_id)
        if entry is None:
            entry = self._by_id[transactional_id] = PendingTransaction()
        return entry

    def tidy(self, transactional_id: str) -> None:
        """Remove the entry of a transactional id if the entry is empty."""
        entry = self._by_id.get(transactional_id)
        if entry is not None and entry.is_idle:
            del self._by_id[transactional_id]

    def complete(self, transactional_id: str, completion: TransactionRecord) -> None:
        """Record that all markers of a transaction are written, and keep its completed record."""
        entry = self.obtain(transactional_id)
        entry.completion = completion
        self._completed[transactional_id] = None
        entry.wake()

    def note_completed(self, transactional_id: str) -> None:
        """Queue the completion of a transaction to be written again after a failed command."""
        self._completed[transactional_id] = None

    def take_completions(self, count_max: int) -> list[tuple[str, TransactionRecord]]:
        """Return up to `count_max` completions that are neither durable nor being written."""
        found: list[tuple[str, TransactionRecord]] = []
        while self._completed and len(found) < count_max:
            name, _ = self._completed.popitem(last=False)
            entry = self._by_id.get(name)
            if entry is not None and entry.completion is not None and not entry.is_pending:
                found.append((name, entry.completion))
        return found

    def clearing(self) -> Steps[None]:
        """Drop all entries, and wake their requests, which find that the term has ended."""
        entries, self._by_id = self._by_id, {}
        self._completed.clear()
        count = 0
        while entries:
            entries.popitem()[1].wake()
            count += 1
            if count % IDS_A_STEP == 0:
                yield

    async def hold(self, transactional_id: str, deadline_s: float) -> bool:
        """Wait for a change of the id, until the deadline on the loop's clock.

        Return False without a wait when the deadline has passed, or when too many requests wait.
        """
        remaining_s = deadline_s - self._loop.time()
        if remaining_s <= 0 or self.is_full:
            return False
        entry = self.obtain(transactional_id)
        if len(entry.waiters) >= HELD_PER_ID_MAX:
            return False
        waiter: asyncio.Future[None] = self._loop.create_future()
        entry.waiters.append(waiter)
        timer = self._loop.call_later(remaining_s, _wake, waiter)
        try:
            await self.counted(waiter)
        finally:
            timer.cancel()
            if waiter in entry.waiters:
                entry.waiters.remove(waiter)
                self.tidy(transactional_id)
        return True

    async def counted(self, answer: "asyncio.Future[T]") -> T:
        """Await an answer, and count the request among the held requests meanwhile."""
        self._held += 1
        try:
            return await answer
        finally:
            self._held -= 1


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
