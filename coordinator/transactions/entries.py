"""What a shard's leader remembers beside the durable records, by transactional id.

  is_pending       a write is under way: nothing else is decided about the id
  completion       all markers are written, and that is not durable yet
  marking_version  of the prepared record whose markers are on their way, 0 for none
  unmarked         partitions whose marker is still to be written
  waiters          requests that wait for one of these instead of being sent away

An id of which nothing is to be remembered has no entry.
"""

import asyncio
from dataclasses import dataclass, field

from .messages import TopicPartition
from .record import TransactionRecord

HELD_PER_ID_MAX = 32


@dataclass(slots=True, eq=False)
class Entry:
    """One id; see above."""

    is_pending: bool = False
    completion: TransactionRecord | None = None
    marking_version: int = 0
    unmarked: set[TopicPartition] = field(default_factory=set)
    waiters: list[asyncio.Future[None]] = field(default_factory=list)

    @property
    def is_idle(self) -> bool:
        """Nothing is to be remembered."""
        return not (self.is_pending or self.completion or self.marking_version or self.waiters)

    def wake(self) -> None:
        """Something has changed: let all who wait look again, in the order in which they came."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            _let_go(waiter)


class Entries:
    """All ids of one shard in one term. held_max: how many requests may wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, held_max: int) -> None:
        self._loop = loop
        self._held_max = held_max
        self._held = 0
        self._by_id: dict[str, Entry] = {}

    def get(self, transactional_id: str) -> Entry | None:
        """The entry of an id, if it has one."""
        return self._by_id.get(transactional_id)

    def obtain(self, transactional_id: str) -> Entry:
        """The entry of an id, made if need be; call `tidy` when it may be idle again."""
        entry = self._by_id.get(transactional_id)
        if entry is None:
            entry = self._by_id[transactional_id] = Entry()
        return entry

    def tidy(self, transactional_id: str) -> None:
        """Drop an entry that has nothing to remember."""
        entry = self._by_id.get(transactional_id)
        if entry is not None and entry.is_idle:
            del self._by_id[transactional_id]

    def completions(self) -> list[tuple[str, TransactionRecord]]:
        """What is complete, is not durable as such, and is on its way in no command."""
        return [
            (name, entry.completion)
            for name, entry in self._by_id.items()
            if entry.completion is not None and not entry.is_pending
        ]

    def clear(self) -> None:
        """Forget everything; who waits looks again, and finds that the term is over."""
        entries, self._by_id = self._by_id, {}
        for entry in entries.values():
            entry.wake()

    async def hold(self, transactional_id: str, deadline_s: float) -> bool:
        """Wait for the id to change, until the deadline on the loop's clock.

        False at once when that has passed, or when there are too many who wait.
        """
        remaining_s = deadline_s - self._loop.time()
        if remaining_s <= 0 or self._held >= self._held_max:
            return False
        entry = self.obtain(transactional_id)
        if len(entry.waiters) >= HELD_PER_ID_MAX:
            return False
        waiter = self._loop.create_future()
        entry.waiters.append(waiter)
        timer = self._loop.call_later(remaining_s, _let_go, waiter)
        self._held += 1
        try:
            await waiter
        finally:
            self._held -= 1
            timer.cancel()
            if waiter in entry.waiters:
                entry.waiters.remove(waiter)
                self.tidy(transactional_id)
        return True


def _let_go(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
