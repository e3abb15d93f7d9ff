"""The two clocks of a broker, given at the composition root and replaced in tests."""

import time
from typing import Protocol


class Clock(Protocol):
    """Milliseconds: wall-clock for what is written down, monotonic for how long something took."""

    def wall_ms(self) -> int: ...
    def monotonic_ms(self) -> int: ...


class SystemClock:
    @staticmethod
    def wall_ms() -> int:
        """Milliseconds since 1970 in UTC."""
        return time.time_ns() // 1_000_000

    @staticmethod
    def monotonic_ms() -> int:
        """Milliseconds that never go back."""
        return time.monotonic_ns() // 1_000_000


def until_tenth_s(now_s: float, interval_s: float) -> float:
    """An interval, rounded so that it ends at a whole tenth of a second, unless it is shorter.

    What looks again and again sleeps so, and wakes an idle process together with the others.
    """
    if interval_s < 0.1:
        return interval_s
    return round((now_s + interval_s) * 10) / 10 - now_s
