"""Who has which writer of a pool: PREFIX-0 to PREFIX-(N-1), and who waits for one.

Pure: what is done about a writer is the pools' (pool.py, blocking_pool.py). Those who wait come
first come, first served. A holder that has ended without giving its writer back is dead: the writer
is not given on as it is, since it may stand in the middle of a block; the next one to have the name
starts it anew, which fences the old one and ends what that has left.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...wire.errors import ErrorCode, InvalidConfig, KafkaError
from ..dual_write.names import checked_name
from ..dual_write.stop_words import WriterSuperseded

SIZE_MAX, WAITING_MAX, SHOWN_MAX = 1_000, 10_000, 10
SILENT_S = 5.0


class NoWriterFree(KafkaError):
    """All writers of a pool were in use for as long as the call may wait. Nothing was begun."""

    code = ErrorCode.REQUEST_TIMED_OUT


class WriterHolder(Protocol):
    """A task or a thread; `str` names it.

    That which enters a block need not be the one that lives in it (asyncio.wait_for, an executor).
    That which uses it last need not be, either (asyncio.gather). So a holder is dead when both are
    over, and not before SILENT_S after the last use.
    """

    @property
    def is_dead(self) -> bool: ...

    def seen(self) -> None:
        """The current one has used the writer."""
        ...


@dataclass(eq=False, slots=True)
class Slot:
    """One name. writer: None where it has to be started."""

    name: str
    writer: Any = None
    holder: WriterHolder | None = None
    since_s: float = 0.0
    is_orphan: bool = False  # its last holder has died
    lost: WriterSuperseded | None = None  # another process has the name


@dataclass(eq=False, slots=True)
class Ticket:
    """One that wants a writer. wake: called when it may be its turn."""

    holder: WriterHolder
    wake: Callable[[], object] = field(default=lambda: None)


class PoolNames:
    """See the top of the file. The caller keeps others out."""

    def __init__(self, prefix: str, size: int) -> None:
        if not 1 <= size <= SIZE_MAX:
            raise InvalidConfig(f"a pool has 1 to {SIZE_MAX:,} writers, not {size}")
        checked_name(f"{prefix}-{size - 1}")
        self.prefix = prefix
        self.slots = [Slot(f"{prefix}-{number}") for number in range(size)]
        self._free = deque(self.slots)
        self._waiting: OrderedDict[Ticket, None] = OrderedDict()

    def wait(self, ticket: Ticket) -> None:
        """Stand at the end of the queue."""
        if len(self._waiting) >= WAITING_MAX:
            raise NoWriterFree(f"{WAITING_MAX:,} wait for a writer of pool {self.prefix!r} already")
        self._waiting[ticket] = None

    def is_next(self, ticket: Ticket) -> bool:
        """Whether it is this one's turn: it looks for holders that have died. The others sleep."""
        return next(iter(self._waiting), None) is ticket

    def take(self, ticket: Ticket, now_s: float) -> Slot | None:
        """A writer, where it is this one's turn and there is one. Raises WriterSuperseded."""
        if not self.is_next(ticket):
            return None
        slot = self._free.popleft() if self._free else self._orphan()
        if slot is None:
            self._raise_if_lost()
            return None
        slot.holder, slot.since_s = ticket.holder, now_s
        self.leave(ticket)
        return slot

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
        """It waits no more: it has a writer, or has given up."""
        was_next = self.is_next(ticket)
        self._waiting.pop(ticket, None)
        if was_next:
            self.wake_next()

    def give_back(self, slot: Slot, holder: WriterHolder) -> None:
        """The holder is done with it. Its place may have been taken, after its death."""
        if slot.holder is not holder:
            return
        slot.holder = None
        stopped = None if slot.writer is None else slot.writer.stopped_by
        if isinstance(stopped, WriterSuperseded):
            slot.lost = stopped
        else:
            self._free.append(slot)
        self.wake_next()

    def wake_next(self) -> None:
        """Whose turn it is looks again."""
        for first in self._waiting:
            first.wake()
            return

    def wake_all(self) -> None:
        """The pool is closed."""
        for each in self._waiting:
            each.wake()

    @property
    def held(self) -> list[Slot]:
        """The longest first."""
        return sorted((s for s in self.slots if s.holder is not None), key=lambda s: s.since_s)

    def none_free(self, waited_s: float, now_s: float) -> NoWriterFree:
        """What is said after the wait: who holds the writers, and since when."""
        held = self.held
        words = [f"{s.name} by {s.holder} for {now_s - s.since_s:.1f} s" for s in held[:SHOWN_MAX]]
        words += [f"{len(held) - SHOWN_MAX} more"] * (len(held) > SHOWN_MAX)
        words += [f"{s.name} lost to another process" for s in self.slots if s.lost][:1]
        return NoWriterFree(
            f"no writer of pool {self.prefix!r} came free within {waited_s:g} s. Held are "
            f"{', '.join(words) or 'none'}. Give the pool more writers, or hold them for less long"
        )
