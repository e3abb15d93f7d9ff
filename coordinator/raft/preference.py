"""A leadership transfer gives the lead of a Raft group to another voter, or back to the preferred.

Commands are refused while a lead is handed over, so it is only tried with a voter that can take
it at once: it has answered lately, and counts for commits near the end of the log. An attempt
that fails is not repeated soon: each one costs the clients up to `transfer_timeout_ms`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from .progress import Progress
from .settings import RaftSettings


@dataclass(slots=True)
class _Attempt:
    to: int
    deadline_ms: float
    on_done: Callable[[bool], None]
    is_sent: bool = False


class Transfer:
    """Hands the lead to another voter (Raft thesis, 3.10), in at most one attempt at a time.

    New commands are refused while it runs; the target is told to stand when it has the whole log,
    and stands without a pre-vote, since the old leader itself asked for it.
    """

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


_RETRY_MAX_MS = 60_000


class Preference:
    """The rule of one group. Times are monotonic milliseconds."""

    def __init__(self, settings: RaftSettings, now_ms: Callable[[], float]) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._failures = 0
        self._retry_at_ms = float("-inf")

    def may_lead(self, progress: Progress, match_index: int, last_index: int) -> bool:
        """Whether a follower is near enough; `match_index` is what it has acknowledged as a voter.

        A leader of a new term has not heard of it yet (0), and a voter that lost its disk does
        not count: either may have a long way to go.
        """
        settings, now_ms = self._settings, self._now_ms()
        return (
            now_ms >= self._retry_at_ms
            and match_index > max(0, last_index - settings.retained_entries)
            and now_ms - progress.last_contact_ms <= 2 * settings.heartbeat_interval_ms
        )

    def attempted(self, moved: bool) -> None:
        if moved:
            self._failures = 0
            return
        delay_ms = self._settings.preferred_leader_delay_ms << min(self._failures, 16)
        self._retry_at_ms = self._now_ms() + min(delay_ms, _RETRY_MAX_MS)
        self._failures += 1
