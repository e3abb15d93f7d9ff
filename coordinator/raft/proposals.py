"""Commands that were proposed on this node, with the callbacks that wait for their outcomes.

Each callback gets exactly one outcome.
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
    """Return a future, and a callback that sets the future's result or exception."""
    future = asyncio.get_running_loop().create_future()

    def done(result: Any, error: Exception | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    return future, done


class Proposals:
    """The callbacks of one group's commands that have no outcome yet, by log index.

    Callbacks are called after the turn of the engine, when every group knows its leader, so that a
    callback may propose commands. Exceptions of callbacks are caught here.
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
        """Call `on_done` later with the outcome of the entry at `index`, proposed in `term`."""
        self._waiting[index] = _Waiting(term, deadline_ms, on_done)

    def applied(self, index: int, term: int, result: Any) -> None:
        """Report the result of the committed entry at `index` to its callback."""
        waiting = self._waiting.pop(index, None)
        if waiting is None:
            return
        if waiting.term == term:
            self._resolve(waiting, result, None)
        else:
            replaced = DefinitelyNot("another command was committed in its place")
            self._resolve(waiting, None, replaced)

    def expire(self, now_ms: float) -> None:
        """Report OutcomeUnknown to the callbacks with expired deadlines."""
        overdue = [index for index, w in self._waiting.items() if w.deadline_ms <= now_ms]
        for index in overdue:
            error = OutcomeUnknown("no majority answered in time")
            self._resolve(self._waiting.pop(index), None, error)

    def abandon(self) -> None:
        """Report OutcomeUnknown to all callbacks, because this node no longer leads."""
        waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            self._resolve(one, None, OutcomeUnknown("leadership was lost before the commit"))

    def _resolve(self, waiting: _Waiting, result: Any, error: Exception | None) -> None:
        """Call the callback after the engine's turn."""

        def call() -> None:
            try:
                waiting.on_done(result, error)
            except Exception:
                self._logger.exception(
                    "the callback of a proposed Raft command raised an exception"
                )

        self._after_turn(call)
