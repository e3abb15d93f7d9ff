"""The two clocks of a broker, set at the composition root and replaced in tests."""

import time
from typing import Protocol

from ..coordinator.metadata.cluster_tables import ClusterTables


class Clock(Protocol):
    """Clocks in milliseconds: wall-clock time for stored moments, monotonic time for durations."""

    def wall_ms(self) -> int: ...
    def monotonic_ms(self) -> int: ...
    def advanced_since_ms(self, moment_ms: int) -> int:
        """Return the sum of the advances of the cluster's clock since this wall-clock moment."""
        ...


class ClusterClock:
    """The clocks of a machine, with the advances of the cluster's (`oncelog clock advance`).

    An advance moves neither clock. Code that checks whether a stored moment has expired adds
    `advanced_since_ms`; sessions and liveness do not.
    """

    def __init__(self, own: Clock, tables: ClusterTables) -> None:
        self.wall_ms, self.monotonic_ms = own.wall_ms, own.monotonic_ms
        self._tables = tables

    def advanced_since_ms(self, moment_ms: int) -> int:
        return self._tables.clock_advances.since_ms(moment_ms)


class SystemClock:
    @staticmethod
    def wall_ms() -> int:
        """Return the milliseconds since 1970 in UTC."""
        return time.time_ns() // 1_000_000

    @staticmethod
    def monotonic_ms() -> int:
        """Return milliseconds that never decrease."""
        return time.monotonic_ns() // 1_000_000

    @staticmethod
    def advanced_since_ms(moment_ms: int) -> int:
        return 0


def until_tenth_s(now_s: float, interval_s: float) -> float:
    """Return an interval that ends at a whole tenth of a second, unless it is shorter.

    Periodic tasks sleep for such intervals, so that they wake an idle process together.
    """
    if interval_s < 0.1:
        return interval_s
    return round((now_s + interval_s) * 10) / 10 - now_s
