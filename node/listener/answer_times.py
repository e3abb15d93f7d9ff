"""The number and the durations of requests, by API.

A duration lasts from the start of a request's handling to its answer, so a Fetch includes its wait
for records. Durations are counted in ranges that grow by a fifth, from which percentiles are read.
The percentiles cover the last one to two minutes. If the metrics are read less often than once a
minute, they cover the time since the reading before the last one.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import log

RANGES = 112  # up to 500 s; the last range has all longer durations
A_RANGE = 1 / log(1.2)
MINUTE_S = 60.0
FIRST_S = 1e-6  # the end of the first range


@dataclass(slots=True)
class ApiTimes:
    """The number and the durations of one API's requests."""

    count: int = 0
    total_s: float = 0.0
    recent: list[int] = field(default_factory=lambda: [0] * RANGES)
    before: list[int] = field(default_factory=lambda: [0] * RANGES)

    def percentiles(self, shares: tuple[float, ...]) -> list[float]:
        """Return the durations in seconds within which these shares of requests were answered.

        Each duration is the end of its range, or 0 without requests.
        """
        counts = [new + old for new, old in zip(self.recent, self.before, strict=True)]
        total, found = sum(counts), list[float]()
        for share in shares:
            wanted, seen, at = share * total, 0, 0
            while at < RANGES - 1 and seen + counts[at] < wanted:
                seen += counts[at]
                at += 1
            found.append(FIRST_S * 1.2**at if total else 0.0)
        return found


class AnswerTimes:
    """The durations of all APIs, by API key."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_api: dict[int, ApiTimes] = {}
        self._turned_s = clock()

    def note(self, api_key: int, seconds: float) -> None:
        """Count an answered request with its duration."""
        times = self._by_api.get(api_key)
        if times is None:
            times = self._by_api[api_key] = ApiTimes()
        times.count += 1
        times.total_s += seconds
        at = int(log(seconds / FIRST_S) * A_RANGE) + 1 if seconds > FIRST_S else 0
        times.recent[min(at, RANGES - 1)] += 1

    def read(self) -> list[tuple[int, ApiTimes]]:
        """Return the durations by API key, and begin a new minute if the current one has ended."""
        now_s, found = self._clock(), sorted(self._by_api.items())
        if now_s - self._turned_s < MINUTE_S:
            return found
        self._turned_s = now_s
        ended = [(key, replace(times)) for key, times in found]
        for _, times in found:
            times.before, times.recent = times.recent, [0] * RANGES
        return ended
