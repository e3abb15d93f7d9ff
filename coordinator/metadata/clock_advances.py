"""The advances of the cluster's clock by `oncelog clock advance`, with their sizes and times.

A clock is never set. Stored timestamps (of records, offsets, transactions) are real times. When
such a timestamp is compared with the present, the advances since then are added, so only data from
before an advance seems older. Therefore clients need not know of advances, and a node that was down
during an advance works like the others.
"""

from bisect import bisect_left
from dataclasses import dataclass

STEPS_MAX = 10_000
TOTAL_MS_MAX = 100 * 365 * 86_400_000


@dataclass(frozen=True, slots=True)
class ClockAdvances:
    """The advances of the clock, as rising pairs (real time, sum of the advances until then)."""

    steps: tuple[tuple[int, int], ...] = ()

    @property
    def total_ms(self) -> int:
        return self.steps[-1][1] if self.steps else 0

    def since_ms(self, moment_ms: int) -> int:
        """Return the sum of the advances that were made at or after a real time.

        Data of the same millisecond counts as written before the advance, because a client that
        reacts to the advance writes later.
        """
        if not self.steps:
            return 0
        before = bisect_left(self.steps, (moment_ms,))
        return self.total_ms - (self.steps[before - 1][1] if before else 0)

    def advanced(self, at_ms: int, by_ms: int) -> "ClockAdvances":
        """Return these advances and one more, which is dated no earlier than the newest of them."""
        steps, total_ms = self.steps, self.total_ms + by_ms
        if steps and at_ms <= steps[-1][0]:
            return ClockAdvances((*steps[:-1], (steps[-1][0], total_ms)))
        return ClockAdvances((*steps, (at_ms, total_ms)))
