"""The holders of a pool's writers, PREFIX-0 to PREFIX-(N-1), and the queue for them.

The file does no I/O. A signal handler may raise in any call of a thread, which may be repeated
then. The pools (pool.py, blocking_pool.py) start and close the writers. Waiting
tasks are served in order. A holder is dead if it has ended without returning its writer. That
writer may be in the middle of a block, so the next holder of the name starts it anew. The start
fences the old writer and ends its transactions.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from ...wire.errors import ErrorCode, InvalidConfig, KafkaError
from ..dual_write.names import checked_name
from ..dual_write.stop_words import WriterSuperseded

SIZE_MAX, WAITING_MAX, SHOWN_MAX = 1_000, 10_000, 10
SILENT_S = 5.0


class NoWriterFree(KafkaError):
    """All writers of a pool were in use until the timeout, and no block was begun."""

    code = ErrorCode.REQUEST_TIMED_OUT


class WriterHolder(Protocol):
    """A task or a thread that holds a writer. `str` names the holder.

    The task that enters a block may differ from the task that runs it (asyncio.wait_for, an
    executor), and from the task of the last use (asyncio.gather). Therefore a holder is dead only
    if the task that entered and the task of the last use have ended, and SILENT_S have passed since
    the last use.
    """

    @property
    def is_dead(self) -> bool: ...

    def seen(self) -> None:
        """Note that the current task or thread has used the writer."""
        ...


@dataclass(eq=False, slots=True)
class Slot:
    """One name of the pool with its writer, which is None until it is started."""

    name: str
    writer: Any = None
    holder: WriterHolder | None = None
    since_s: float = 0.0
    is_orphan: bool = False  # its last holder is dead
    lost: WriterSuperseded | None = None  # another process has the name


@dataclass(eq=False, slots=True)
class Ticket:
    """The request of one task for a writer. `wake` is called when its turn may have come."""

    holder: WriterHolder
    wake: Callable[[], object] = field(default=lambda: None)


class PoolNames:
    """The names, free writers and waiting tasks of a pool. The caller serializes the calls."""

    def __init__(self, prefix: str, size: int) -> None:
        if not 1 <= size <= SIZE_MAX:
            raise InvalidConfig(f"a pool has 1 to {SIZE_MAX:,} writers, not {size}")
        checked_name(f"{prefix}-{size - 1}")
        self.prefix = prefix
        self.slots = [Slot(f"{prefix}-{number}") for number in range(size)]
        self._waiting: OrderedDict[Ticket, None] = OrderedDict()

    def wait(self, ticket: Ticket) -> None:
        """Add a ticket to the end of the queue, or raise NoWriterFree if WAITING_MAX wait."""
        if len(self._waiting) >= WAITING_MAX:
            raise NoWriterFree(f"{WAITING_MAX:,} wait for a writer of pool {self.prefix!r} already")
        self._waiting[ticket] = None

    def is_next(self, ticket: Ticket) -> bool:
        """Return whether the ticket is first in the queue. Its task must look for dead holders."""
        return next(iter(self._waiting), None) is ticket

    def take(self, ticket: Ticket, now_s: float) -> Slot | None:
        """Return a writer if the ticket is first and a writer is free, else None.

        Raises WriterSuperseded if another process has taken over all names of the pool.
        """
        if not self.is_next(ticket):
            return None
        slot = self._free() or self._orphan()
        if slot is None:
            self._raise_if_lost()
            return None
        slot.holder, slot.since_s = ticket.holder, now_s
        self.leave(ticket)
        return slot

    def _free(self) -> Slot | None:
        """Return the free slot that was lent before all others, or None without a free one."""
        free = (slot for slot in self.slots if slot.holder is None and slot.lost is None)
        return min(free, key=lambda slot: slot.since_s, default=None)

    def _orphan(self) -> Slot | None:
        for slot in self.slots:
            if slot.holder is not None and slot.holder.is_dead:
                slot.is_orphan = True
                return slot
        return None

    def _raise_if_lost(self) -> None:
        lost = [slot.lost for slot in self.slots]
        if lost[0] is not None and all(lost):
            raise lost[0]

    def leave(self, ticket: Ticket) -> None:
        """Remove a ticket from the queue, whether or not it got a writer."""
        if self.is_next(ticket):
            for following in islice(self._waiting, 1, 2):
                following.wake()  # before the ticket leaves, so that a repeated call wakes it, too
        self._waiting.pop(ticket, None)

    def give_back(self, slot: Slot, holder: WriterHolder) -> None:
        """Return a writer to the pool.

        Do nothing if `holder` was taken for dead and its writer was lent again.
        """
        if slot.holder is not holder:
            return
        stopped = None if slot.writer is None else slot.writer.stopped_by
        if isinstance(stopped, WriterSuperseded):
            slot.lost = stopped
        slot.holder = None
        self.wake_next()

    def wake_next(self) -> None:
        """Wake the first ticket of the queue."""
        for first in self._waiting:
            first.wake()
            return

    def wake_all(self) -> None:
        """Wake all tickets, as the pool is closed."""
        for each in self._waiting:
            each.wake()

    @property
    def held(self) -> list[Slot]:
        """Return the names in use, the one with the longest use first."""
        return sorted((s for s in self.slots if s.holder is not None), key=lambda s: s.since_s)

    def none_free(self, waited_s: float, now_s: float) -> NoWriterFree:
        """Return the timeout error. It names the tasks that hold the writers, and for how long."""
        held = self.held
        words = [f"{s.name} by {s.holder} for {now_s - s.since_s:.1f} s" for s in held[:SHOWN_MAX]]
        words += [f"{len(held) - SHOWN_MAX} more"] * (len(held) > SHOWN_MAX)
        words += [f"{s.name} lost to another process" for s in self.slots if s.lost][:1]
        return NoWriterFree(
            f"no writer of pool {self.prefix!r} came free within {waited_s:g} s. Held are "
            f"{', '.join(words) or 'none'}. Give the pool more writers, or hold them for less long"
        )
