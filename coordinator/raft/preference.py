"""Leadership transfers: to a chosen voter, or back to the preferred leader.

Commands are refused during a transfer, so the preferred voter is only tried when it can take the
lead at once: it has answered lately, and counts for commits near the end of the log. A failed
attempt is not repeated soon: each one costs the clients up to `transfer_timeout_ms`.
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

    New commands are refused while it runs; the target is asked to stand when it has the whole log,
    and stands without a pre-vote, since the old leader itself asked for it.
    """

    def __init__(self) -> None:
        self._attempt: _Attempt | None = None

    @property
    def to(self) -> int | None:
        """Return the next leader while an attempt runs."""
        return None if self._attempt is None else self._attempt.to

    def begin(self, to: int, deadline_ms: float, on_done: Callable[[bool], None]) -> None:
        """Start an attempt; `on_done` gets whether this node has stepped down for it."""
        self._attempt = _Attempt(to, deadline_ms, on_done)

    def is_due(self, has_whole_log: bool, now_ms: float) -> bool:
        """Return whether to ask the target now, once; ends the attempt at its deadline."""
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
        """Note that this node leads no more: by this attempt if the target had been asked."""
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
        """Return whether a follower is near enough, by its acknowledged `match_index` as a voter.

        The leader of a new term has no acknowledgement yet (0), and a voter that lost its disk does
        not count: either may lack much of the log.
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
