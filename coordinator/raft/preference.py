"""Whether the lead of a group may be given back to its preferred leader now.

Commands are refused while a lead is handed over, so it is only tried with a voter that can take
it at once: it has answered lately, and counts for commits near the end of the log. An attempt
that fails is not repeated soon: each one costs the clients up to `transfer_timeout_ms`.
"""

from collections.abc import Callable

from .progress import Progress
from .settings import RaftSettings

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
