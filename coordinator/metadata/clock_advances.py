"""The advances of a controlled cluster's clock: how far, and when.

A clock is never set. Stored times (of records, offsets, transactions) are real times, and a
comparison of such a time with now adds the advances since then: data from before an advance is
older by it, later data is new. So clients need not know of advances, and it makes no difference
whether a node was up at one. Pure.
"""

from bisect import bisect_left
from dataclasses import dataclass

STEPS_MAX = 10_000
TOTAL_MS_MAX = 100 * 365 * 86_400_000


@dataclass(frozen=True, slots=True)
class ClockAdvances:
    """The advances as steps: (real time, sum of all up to this one), ascending in both."""

    steps: tuple[tuple[int, int], ...] = ()

    @property
    def total_ms(self) -> int:
        return self.steps[-1][1] if self.steps else 0

    def since_ms(self, moment_ms: int) -> int:
        """Return how much the clock was advanced since a real moment.

        An advance in the same millisecond counts: a client that is told of it writes later.
        """
        if not self.steps:
            return 0
        before = bisect_left(self.steps, (moment_ms,))
        return self.total_ms - (self.steps[before - 1][1] if before else 0)

    def advanced(self, at_ms: int, by_ms: int) -> "ClockAdvances":
        """Return these advances and one more; it is never earlier than the newest."""
        steps, total_ms = self.steps, self.total_ms + by_ms
        if steps and at_ms <= steps[-1][0]:
            return ClockAdvances((*steps[:-1], (steps[-1][0], total_ms)))
        return ClockAdvances((*steps, (at_ms, total_ms)))
