"""The two clocks of a broker, given at the composition root and replaced in tests."""

import time
from typing import Protocol

from ..coordinator.metadata.cluster_tables import ClusterTables


class Clock(Protocol):
    """Milliseconds: wall-clock for what is written down, monotonic for how long something took."""

    def wall_ms(self) -> int: ...
    def monotonic_ms(self) -> int: ...
    def advanced_since_ms(self, moment_ms: int) -> int:
        """How much older than by real time is what was written down at this wall-clock moment."""
        ...


class ClusterClock:
    """The clocks of a machine, with what the cluster's was advanced by (`oncelog clock advance`).

    Neither clock moves by that. What compares a moment that was written down with now, to see
    whether its time is over, adds `advanced_since_ms`; sessions and liveness do not.
    """

    def __init__(self, own: Clock, tables: ClusterTables) -> None:
        self.wall_ms, self.monotonic_ms = own.wall_ms, own.monotonic_ms
        self._tables = tables

    def advanced_since_ms(self, moment_ms: int) -> int:
        return self._tables.clock_advances.since_ms(moment_ms)


class SystemClock:
    @staticmethod
    def wall_ms() -> int:
        """Milliseconds since 1970 in UTC."""
        return time.time_ns() // 1_000_000

    @staticmethod
    def monotonic_ms() -> int:
        """Milliseconds that never go back."""
        return time.monotonic_ns() // 1_000_000

    @staticmethod
    def advanced_since_ms(moment_ms: int) -> int:
        return 0


def until_tenth_s(now_s: float, interval_s: float) -> float:
    """An interval, rounded so that it ends at a whole tenth of a second, unless it is shorter.

    What looks again and again sleeps so, and wakes an idle process together with the others.
    """
    if interval_s < 0.1:
        return interval_s
    return round((now_s + interval_s) * 10) / 10 - now_s
