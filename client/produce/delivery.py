"""The outcomes of records, as futures that cost almost nothing until they are awaited.

All records of a batch are decided together, so the batch has the outcome, and a `Delivery` is an
index in that outcome. A delivery is awaitable, and any thread may read it.
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
    """The place of a written record. The offset is NO_OFFSET if unknown (acks=0).

    timestamp: the broker's time for a topic with LogAppendTime, else NO_TIMESTAMP.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int = NO_TIMESTAMP


class RecordRange(NamedTuple):
    """The place of consecutive records of one `send_many` call in a partition.

    timestamp: as in `RecordMetadata`.
    """

    topic: str
    partition: int
    first_offset: int
    record_count: int
    timestamp: int = NO_TIMESTAMP


class Outcome:
    """The outcome of a batch, decided once, or in parts if the batch was split.

    Listeners are called without arguments, in the thread that decides the outcome. is_seen: the
    application has read the outcome.
    """

    __slots__ = ("_listeners", "_parts", "base", "is_seen", "problem")

    def __init__(self) -> None:
        self.base: RecordMetadata | None = None  # the first record's
        self.problem: Exception | None = None
        self.is_seen = False
        self._listeners: list[tuple[int, Callable[[], object]]] = []
        self._parts: tuple[tuple[int, Outcome], ...] = ()

    @property
    def is_decided(self) -> bool:
        """Whether the batch was written or has failed."""
        return self.base is not None or self.problem is not None

    def of(self, index: int) -> tuple["Outcome", int]:
        """Return the outcome of the record at this index, and its index in that outcome."""
        outcome = self
        while outcome._parts:
            start, part = next(p for p in reversed(outcome._parts) if p[0] <= index)
            outcome, index = part, index - start
        return outcome, index

    def leaves(self, index: int, count: int) -> Iterator[tuple["Outcome", int, int]]:
        """Yield (outcome, first index, count) for the `count` records from `index` on.

        A split batch yields several.
        """
        last = index + count
        for at, (start, part) in enumerate(self._parts):
            following = self._parts[at + 1][0] if at + 1 < len(self._parts) else last
            first, end = max(start, index), min(following, last)
            if first < end:
                yield from part.leaves(first - start, end - first)
        if not self._parts:
            yield self, index, count

    def listen(self, index: int, listener: Callable[[], object]) -> None:
        """Call `listener` when the record at this index is decided.

        The record must be undecided. The outcome counts as read from now on.
        """
        self.is_seen = True
        self._listeners.append((index, listener))

    def written(self, base: RecordMetadata) -> None:
        """Record that the batch is in the log. `base` is the place of its first record."""
        if not self.is_decided:
            self.base = base
            self._notify()

    def failed(self, problem: Exception) -> None:
        """Record that the records of the batch have failed."""
        if not self.is_decided:
            self.problem = problem
            self._notify()

    def split(self, parts: tuple[tuple[int, "Outcome"], ...]) -> None:
        """Replace this outcome by those of the parts.

        `parts` are (index of first record, outcome).
        """
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
            except Exception:  # the application's error must not stop the others
                logger.exception(
                    "a callback of add_done_callback raised an exception, which is ignored"
                )


class Delivery:
    """The outcome of one record, which is awaitable and has `done`, `result`, `exception`."""

    __slots__ = ("_index", "_outcome")

    def __init__(self, outcome: Outcome, index: int) -> None:
        self._outcome, self._index = outcome, index

    def done(self) -> bool:
        return self._outcome.of(self._index)[0].is_decided

    def exception(self) -> Exception | None:
        """Return why the record was not written, or None if it was written.

        Raises InvalidStateError if the record is undecided.
        """
        outcome = self._outcome.of(self._index)[0]
        if not outcome.is_decided:
            raise asyncio.InvalidStateError("the record is neither acknowledged nor failed yet")
        outcome.is_seen = True
        return outcome.problem

    def result(self) -> RecordMetadata:
        """Return the record's place in the log, or raise its error.

        Raises InvalidStateError if undecided.
        """
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
        """Call `callback(self)` when the delivery is done, immediately or on the client's loop."""
        outcome, index = self._outcome.of(self._index)
        if outcome.is_decided:
            outcome.is_seen = True
            callback(self)
        else:
            outcome.listen(index, lambda: callback(self))

    async def settled(self) -> None:
        """Return when the record was written or has failed."""
        outcome, index = self._outcome.of(self._index)
        if not outcome.is_decided:
            waiter = asyncio.get_running_loop().create_future()
            outcome.listen(index, lambda: waiter.done() or waiter.set_result(None))
            await waiter

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        yield from self.settled().__await__()
        return self.result()


class UnseenFailures:
    """The failed records whose error the application has not read.

    `flush` and `close` raise one of them.
    """

    def __init__(self) -> None:
        self._failed: deque[Outcome] = deque(maxlen=UNSEEN_MAX)

    def fail(self, outcome: Outcome, problem: Exception) -> None:
        outcome.failed(problem)
        if not outcome.is_seen:
            self._failed.append(outcome)

    def take(self) -> Exception | None:
        """Return the first unread failure. Mark all of them as read."""
        unseen = [outcome for outcome in self._failed if not outcome.is_seen]
        self._failed.clear()
        for outcome in unseen:
            outcome.is_seen = True
        return unseen[0].problem if unseen else None


class Deliveries:
    """The outcomes of all records of one `send_many`."""

    __slots__ = ("_parts", "count")

    def __init__(self) -> None:
        self._parts: list[tuple[Outcome, int, int]] = []
        self.count = 0  # records

    def add(self, outcome: Outcome, index: int, count: int) -> None:
        """Add `count` records of a batch, from `index` in its outcome on."""
        self._parts.append((outcome, index, count))
        self.count += count

    def _leaves(self) -> Iterator[tuple[Outcome, int, int]]:
        for part in self._parts:
            yield from part[0].leaves(*part[1:])

    def done(self) -> bool:
        return all(outcome.is_decided for outcome, _, _ in self._leaves())

    def exception(self) -> Exception | None:
        """Return the first error of the records, or None if all records are written.

        Raises InvalidStateError if an undecided record comes before the first error.
        """
        problem: Exception | None = None
        for outcome, _, _ in self._leaves():
            if problem is None and not outcome.is_decided:
                raise asyncio.InvalidStateError(
                    "some records are neither acknowledged nor failed yet"
                )
            outcome.is_seen |= outcome.is_decided
            problem = problem or outcome.problem
        return problem

    def result(self) -> list[RecordRange]:
        """Return the places of the records in the logs, or raise the error of `exception`."""
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
