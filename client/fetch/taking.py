"""Takes the records of one poll from the partitions. Each poll begins with another partition."""

import contextlib
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

from ...wire.errors import KafkaError
from ..retries import now_ms
from .positions import Positions
from .record_reader import ConsumerRecord
from .state import FetchState

TAKE_MS = 15  # for one poll with records: it blocks the event loop
T = TypeVar("T")


@contextlib.contextmanager
def _raised_by_the_next_poll(found: list[Any]) -> Generator[None, None, None]:
    """Suppress an error of one partition if `found` already has records of others.

    The next poll raises the same error.
    """
    try:
        yield
    except KafkaError:
        if not found:
            raise


class Taking:
    def __init__(self, positions: Positions, *, read_committed: bool) -> None:
        self._positions, self._is_committed = positions, read_committed
        self._turn = 0

    def records(self, limit: int) -> list[ConsumerRecord]:
        """Return at most `limit` records, partition by partition."""
        found: list[ConsumerRecord] = []
        with _raised_by_the_next_poll(found):
            for state in self._in_turn(found):
                found += state.take(limit - len(found), read_committed=self._is_committed)
                if len(found) >= limit:
                    break
        return found

    def batches(
        self, limit: int, take: Callable[[FetchState], T | None], count: Callable[[T], int]
    ) -> list[T]:
        """Return the results of `take` for each partition in turn.

        `count` returns the number of records in a result. The end is reached at `limit` records.
        """
        found: list[T] = []
        left = limit
        with _raised_by_the_next_poll(found):
            for state in self._in_turn(found):
                if left > 0 and (batch := take(state)) is not None:
                    found.append(batch)
                    left -= count(batch)
                elif left <= 0:
                    break
        return found

    def _in_turn(self, found: list[Any]) -> Iterator[FetchState]:
        """Yield a partition again and again while it has data, then the next one.

        After TAKE_MS no more are yielded, if `found` has records.
        """
        states = [s for s in self._positions.states.values() if s.has_data and s.is_read]
        self._turn += 1
        first, until_ms = self._turn % max(len(states), 1), now_ms() + TAKE_MS
        for state in states[first:] + states[:first]:
            while state.has_data and not (found and now_ms() > until_ms):
                yield state
