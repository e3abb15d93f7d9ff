"""What becomes of a record: a future that costs almost nothing until somebody waits for it.

All records of a batch are decided together, so the outcome stands in the batch, and a `Delivery` is
only a place in it. It is awaitable, and may be looked at from any thread.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)
NO_OFFSET, NO_TIMESTAMP = -1, -1
UNSEEN_MAX = 64


class RecordMetadata(NamedTuple):
    """Where a record was written; offset NO_OFFSET when the broker does not say (acks=0).

    timestamp: the broker's when the topic keeps its clock (LogAppendTime), NO_TIMESTAMP otherwise.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int = NO_TIMESTAMP


class RecordRange(NamedTuple):
    """Where some records of one `send_many` were written, one behind the other.

    timestamp: as in `RecordMetadata`.
    """

    topic: str
    partition: int
    first_offset: int
    record_count: int
    timestamp: int = NO_TIMESTAMP


class Outcome:
    """What is known of a batch; decided once, in parts when it was split.

    Listeners are called where it is decided, with nothing. is_seen: somebody has asked for it.
    """

    __slots__ = ("_listeners", "_parts", "base", "is_seen", "problem")

    def __init__(self) -> None:
        self.base: RecordMetadata | None = None  # of the first record
        self.problem: Exception | None = None
        self.is_seen = False
        self._listeners: list[tuple[int, Callable[[], object]]] = []
        self._parts: tuple[tuple[int, Outcome], ...] = ()

    @property
    def is_decided(self) -> bool:
        """Whether it was written or has failed."""
        return self.base is not None or self.problem is not None

    def of(self, index: int) -> tuple["Outcome", int]:
        """Where the record at this index is decided, and its index there."""
        outcome = self
        while outcome._parts:
            start, part = next(p for p in reversed(outcome._parts) if p[0] <= index)
            outcome, index = part, index - start
        return outcome, index

    def leaves(self, index: int, count: int) -> Iterator[tuple["Outcome", int, int]]:
        """Where `count` records from this index on are decided: (outcome, first index, count)."""
        last = index + count
        for at, (start, part) in enumerate(self._parts):
            following = self._parts[at + 1][0] if at + 1 < len(self._parts) else last
            first, end = max(start, index), min(following, last)
            if first < end:
                yield from part.leaves(first - start, end - first)
        if not self._parts:
            yield self, index, count

    def listen(self, index: int, listener: Callable[[], object]) -> None:
        """Call `listener` when the record at this index is decided; it is not yet."""
        self.is_seen = True
        self._listeners.append((index, listener))

    def written(self, base: RecordMetadata) -> None:
        """All records are in the log, from this place on."""
        if not self.is_decided:
            self.base = base
            self._notify()

    def failed(self, problem: Exception) -> None:
        """None of the records will be sent (again)."""
        if not self.is_decided:
            self.problem = problem
            self._notify()

    def split(self, parts: tuple[tuple[int, "Outcome"], ...]) -> None:
        """From now on these decide: (index of their first record, outcome), in order."""
        self._parts = parts
        listeners, self._listeners = self._listeners, []
        for index, listener in listeners:
            outcome, inner = self.of(index)
            outcome.listen(inner, listener)

    def _notify(self) -> None:
        listeners, self._listeners = self._listeners, []
        for _, listener in listeners:
            try:
                listener()
            except Exception:  # a program's own: others wait, too, and the producer goes on
                logger.exception("a callback of a delivery failed")


class Delivery:
    """One record's outcome: await it, or look with `done`, `result`, `exception`."""

    __slots__ = ("_index", "_outcome")

    def __init__(self, outcome: Outcome, index: int) -> None:
        self._outcome, self._index = outcome, index

    def done(self) -> bool:
        return self._outcome.of(self._index)[0].is_decided

    def exception(self) -> Exception | None:
        """Why the record was not written; None when it was. InvalidStateError before it is done."""
        outcome = self._outcome.of(self._index)[0]
        if not outcome.is_decided:
            raise asyncio.InvalidStateError("the record is not decided yet")
        outcome.is_seen = True
        return outcome.problem

    def result(self) -> RecordMetadata:
        """Where the record stands. Raises why not; InvalidStateError before it is done."""
        outcome, index = self._outcome.of(self._index)
        base = outcome.base
        if base is None:
            problem = self.exception()
            assert problem is not None
            raise problem
        if base.offset < 0:
            return base
        return RecordMetadata(base.topic, base.partition, base.offset + index, base.timestamp)

    def add_done_callback(self, callback: Callable[["Delivery"], object]) -> None:
        """Call `callback(self)` when it is done: now when it is, else on the client's loop."""
        outcome, index = self._outcome.of(self._index)
        if outcome.is_decided:
            outcome.is_seen = True
            callback(self)
        else:
            outcome.listen(index, lambda: callback(self))

    async def settled(self) -> None:
        """Return when it is decided, well or badly."""
        outcome, index = self._outcome.of(self._index)
        if not outcome.is_decided:
            waiter = asyncio.get_running_loop().create_future()
            outcome.listen(index, lambda: waiter.done() or waiter.set_result(None))
            await waiter

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        yield from self.settled().__await__()
        return self.result()


class UnseenFailures:
    """Failures whose deliveries nobody has looked at: for `flush` and `close`, which raise one."""

    def __init__(self) -> None:
        self._failed: deque[Outcome] = deque(maxlen=UNSEEN_MAX)

    def fail(self, outcome: Outcome, problem: Exception) -> None:
        outcome.failed(problem)
        if not outcome.is_seen:
            self._failed.append(outcome)

    def take(self) -> Exception | None:
        """The first; all of them count as seen from here on."""
        unseen = [outcome for outcome in self._failed if not outcome.is_seen]
        self._failed.clear()
        for outcome in unseen:
            outcome.is_seen = True
        return unseen[0].problem if unseen else None


class Deliveries:
    """What becomes of the records of one `send_many`; like a `Delivery`, but of all of them."""

    __slots__ = ("_parts", "count")

    def __init__(self) -> None:
        self._parts: list[tuple[Outcome, int, int]] = []
        self.count = 0  # of records

    def add(self, outcome: Outcome, index: int, count: int) -> None:
        """So many more records stand in a batch, from this index on."""
        self._parts.append((outcome, index, count))
        self.count += count

    def _leaves(self) -> Iterator[tuple[Outcome, int, int]]:
        for part in self._parts:
            yield from part[0].leaves(*part[1:])

    def done(self) -> bool:
        return all(outcome.is_decided for outcome, _, _ in self._leaves())

    def exception(self) -> Exception | None:
        """Why some record was not written; None when all were. InvalidStateError before that."""
        problem: Exception | None = None
        for outcome, _, _ in self._leaves():
            if problem is None and not outcome.is_decided:
                raise asyncio.InvalidStateError("not all of the records are decided yet")
            outcome.is_seen |= outcome.is_decided
            problem = problem or outcome.problem
        return problem

    def result(self) -> list[RecordRange]:
        """Where the records stand. Raises why some do not; InvalidStateError before it is done."""
        problem = self.exception()
        if problem is not None:
            raise problem
        ranges: list[RecordRange] = []
        for outcome, index, count in self._leaves():
            base = outcome.base
            assert base is not None
            first = base.offset + index if base.offset >= 0 else base.offset
            ranges.append(RecordRange(base.topic, base.partition, first, count, base.timestamp))
        return ranges

    def __await__(self) -> Generator[Any, None, list[RecordRange]]:
        while not self.done():
            outcome, index, _ = next(p for p in self._leaves() if not p[0].is_decided)
            yield from Delivery(outcome, index).settled().__await__()
        return self.result()
