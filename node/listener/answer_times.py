"""The number and the times of requests by API.

A time lasts from the start of a request's handling to its answer, so that of a Fetch includes its
wait for records. Times are counted by ranges that grow by a fifth; percentiles are read off these.
They cover the last one to two minutes, or the last two readings where those are longer apart.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import log

RANGES = 112  # up to 500 s; the last one has all that took longer
A_RANGE = 1 / log(1.2)
MINUTE_S = 60.0
FIRST_S = 1e-6  # where the first range ends


@dataclass(slots=True)
class ApiTimes:
    """The count and the times of one API."""

    count: int = 0
    total_s: float = 0.0
    recent: list[int] = field(default_factory=lambda: [0] * RANGES)
    before: list[int] = field(default_factory=lambda: [0] * RANGES)

    def percentiles(self, shares: tuple[float, ...]) -> list[float]:
        """Return the times, in seconds, within which these shares of the requests were answered.

        They are the ends of their ranges; 0 without requests.
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
    """The times of all APIs, each by its key."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_api: dict[int, ApiTimes] = {}
        self._turned_s = clock()

    def note(self, api_key: int, seconds: float) -> None:
        """Count a request that is answered."""
        times = self._by_api.get(api_key)
        if times is None:
            times = self._by_api[api_key] = ApiTimes()
        times.count += 1
        times.total_s += seconds
        at = int(log(seconds / FIRST_S) * A_RANGE) + 1 if seconds > FIRST_S else 0
        times.recent[min(at, RANGES - 1)] += 1

    def read(self) -> list[tuple[int, ApiTimes]]:
        """Return the times of each API by its key; begin a new minute if one is over."""
        now_s, found = self._clock(), sorted(self._by_api.items())
        if now_s - self._turned_s < MINUTE_S:
            return found
        self._turned_s = now_s
        ended = [(key, replace(times)) for key, times in found]
        for _, times in found:
            times.before, times.recent = times.recent, [0] * RANGES
        return ended
