"""Leadership transfer to another voter of a Raft group (Raft thesis, 3.10).

New commands are refused while it runs; when the target has the whole log it is told to stand at
once. It stands without a pre-vote, since the old leader itself asked for it.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Attempt:
    to: int
    deadline_ms: float
    on_done: Callable[[bool], None]
    is_sent: bool = False


class Transfer:
    """At most one attempt at a time."""

    def __init__(self) -> None:
        self._attempt: _Attempt | None = None

    @property
    def to(self) -> int | None:
        """Who is to lead, while an attempt runs."""
        return None if self._attempt is None else self._attempt.to

    def begin(self, to: int, deadline_ms: float, on_done: Callable[[bool], None]) -> None:
        """Start an attempt; `on_done` hears whether this node has stepped down for it."""
        self._attempt = _Attempt(to, deadline_ms, on_done)

    def is_due(self, has_whole_log: bool, now_ms: float) -> bool:
        """Whether the target is to be told now, once; gives up when the time is over."""
        attempt = self._attempt
        if attempt is None:
            return False
        if now_ms >= attempt.deadline_ms:
            self.end(False)
            return False
        due = has_whole_log and not attempt.is_sent
        attempt.is_sent |= due
        return due

    def resigned(self) -> None:
        """This node leads no more: by this attempt if the target had been told."""
        if self._attempt is not None:
            self.end(self._attempt.is_sent)

    def end(self, moved: bool) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.on_done(moved)
