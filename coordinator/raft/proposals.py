"""Commands that were proposed on this node, with their waiting submitters.

Each submitter gets exactly one outcome.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .outcomes import DefinitelyNot, OutcomeUnknown

OnDone = Callable[[Any, Exception | None], None]


@dataclass(slots=True)
class _Waiting:
    term: int
    deadline_ms: float
    on_done: OnDone


def as_future() -> tuple[asyncio.Future[Any], OnDone]:
    """Return a future, and the callback that fulfils it."""
    future = asyncio.get_running_loop().create_future()

    def done(result: Any, error: Exception | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    return future, done


class Proposals:
    """The waiting submitters of one group, by log index.

    Submitters are called after the turn of the engine. Commands that they then propose, in this
    group or in another, reach groups that know their leader. Exceptions of submitters are caught
    here.
    """

    def __init__(
        self, logger: logging.Logger, after_turn: Callable[[Callable[[], None]], None]
    ) -> None:
        self._logger = logger
        self._after_turn = after_turn
        self._waiting: dict[int, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, index: int, term: int, deadline_ms: float, on_done: OnDone) -> None:
        """Wait for the entry at `index`, proposed in `term`."""
        self._waiting[index] = _Waiting(term, deadline_ms, on_done)

    def applied(self, index: int, term: int, result: Any) -> None:
        """Report that the committed entry at `index` was applied."""
        waiting = self._waiting.pop(index, None)
        if waiting is None:
            return
        if waiting.term == term:
            self._resolve(waiting, result, None)
        else:
            replaced = DefinitelyNot("another command was committed in its place")
            self._resolve(waiting, None, replaced)

    def expire(self, now_ms: float) -> None:
        """Report an unknown outcome to submitters after their deadline."""
        overdue = [index for index, w in self._waiting.items() if w.deadline_ms <= now_ms]
        for index in overdue:
            error = OutcomeUnknown("no majority answered in time")
            self._resolve(self._waiting.pop(index), None, error)

    def abandon(self) -> None:
        """Report an unknown outcome to all submitters, after a lost leadership."""
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            self._resolve(one, None, OutcomeUnknown("leadership was lost before the commit"))

    def _resolve(self, waiting: _Waiting, result: Any, error: Exception | None) -> None:
        """Call the submitter when no group is in the middle of an action."""

        def call() -> None:
            try:
                waiting.on_done(result, error)
            except Exception:
                self._logger.exception("the callback of a proposal raised an exception")

        self._after_turn(call)
