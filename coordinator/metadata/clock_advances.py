"""How far the clock of a controlled cluster was advanced, and when.

No clock is ever set. What is written down (records, offsets, transactions) keeps real time, and
what compares such a time with now adds the advances since then: what was there before an advance
is older by it, what comes after is new. So clients need not know, and it makes no difference
whether a node was up at an advance. Pure.
"""

from bisect import bisect_left
from dataclasses import dataclass

STEPS_MAX = 10_000
TOTAL_MS_MAX = 100 * 365 * 86_400_000


@dataclass(frozen=True, slots=True)
class ClockAdvances:
    """steps: (real time of an advance, sum of all advances up to this one), ascending in both."""

    steps: tuple[tuple[int, int], ...] = ()

    @property
    def total_ms(self) -> int:
        return self.steps[-1][1] if self.steps else 0

    def since_ms(self, moment_ms: int) -> int:
        """How much older than by real time is what was written down at this real moment.

        An advance in the same millisecond counts: whoever was told that it is done writes later.
        """
        if not self.steps:
            return 0
        before = bisect_left(self.steps, (moment_ms,))
        return self.total_ms - (self.steps[before - 1][1] if before else 0)

    def advanced(self, at_ms: int, by_ms: int) -> "ClockAdvances":
        """With one advance more; one that is not later than the newest has its moment."""
        steps, total_ms = self.steps, self.total_ms + by_ms
        if steps and at_ms <= steps[-1][0]:
            return ClockAdvances((*steps[:-1], (steps[-1][0], total_ms)))
        return ClockAdvances((*steps, (at_ms, total_ms)))
