"""Who wants to hear what becomes of one Raft group; what one of them raises keeps no other."""

import logging
from collections.abc import Callable


class GroupListeners:
    """`elected` get the term, `applied` the index of the last command; see RaftGroup."""

    def __init__(self, log: logging.Logger) -> None:
        self.elected: list[Callable[[int], None]] = []
        self.resigned: list[Callable[[], None]] = []
        self.applied: list[Callable[[int], None]] = []
        self._log = log

    def call(self, callbacks: list[Callable[..., None]], *arguments: int) -> None:
        for callback in callbacks:
            try:
                callback(*arguments)
            except Exception:
                self._log.exception("a callback raised")
