"""Leadership transfers, to a chosen voter or to the preferred leader.

Commands are refused during a transfer. Therefore the preferred voter is only tried when it can lead
immediately, which means that it has answered recently, and has acknowledged entries near the end of
the log. A failed attempt is not repeated soon, because each attempt costs the clients up to
`transfer_timeout_ms`.
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
    """The transfer of the leadership to another voter (Raft thesis, 3.10), one attempt at a time.

    New commands are refused meanwhile. When the target has the whole log it is asked to become a
    candidate. The target needs no pre-vote, since the old leader itself asked for the election.
    """

    def __init__(self) -> None:
        self._attempt: _Attempt | None = None

    @property
    def to(self) -> int | None:
        """Return the target of the running transfer, or None."""
        return None if self._attempt is None else self._attempt.to

    def begin(self, to: int, deadline_ms: float, on_done: Callable[[bool], None]) -> None:
        """Start a transfer. `on_done` gets whether this node has stepped down for the target."""
        self._attempt = _Attempt(to, deadline_ms, on_done)

    def is_due(self, has_whole_log: bool, now_ms: float) -> bool:
        """Return True once, when the target must be asked to become a candidate.

        At its deadline the transfer ends without success.
        """
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
        """Record that this node no longer leads.

        The transfer has succeeded if the target was asked.
        """
        if self._attempt is not None:
            self.end(self._attempt.is_sent)

    def end(self, moved: bool) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.on_done(moved)


_RETRY_MAX_MS = 60_000


class Preference:
    """The rule by which a Raft group hands its leadership to its preferred leader.

    Times are monotonic milliseconds."""

    def __init__(self, settings: RaftSettings, now_ms: Callable[[], float]) -> None:
        self._settings = settings
        self._now_ms = now_ms
        self._failures = 0
        self._retry_at_ms = float("-inf")

    def may_lead(self, progress: Progress, match_index: int, last_index: int) -> bool:
        """Return whether the preferred leader can now lead without a long delay.

        The preferred leader must have answered recently, and acknowledged all but the last
        `retained_entries` entries in this term. An earlier failed transfer must be long ago.
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
