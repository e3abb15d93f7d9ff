"""The two clocks of a broker, set at the composition root and replaced in tests."""

import time
from typing import Protocol

from ..coordinator.metadata.cluster_tables import ClusterTables


class Clock(Protocol):
    """The clocks of a broker in milliseconds.

    Stored timestamps use the wall clock, durations the monotonic clock.
    """

    def wall_ms(self) -> int: ...
    def monotonic_ms(self) -> int: ...
    def advanced_since_ms(self, moment_ms: int) -> int:
        """Return by how much the cluster's clock has been advanced since this wall-clock time."""
        ...


class ClusterClock:
    """The clocks of a machine, plus the advances made by `oncelog clock advance`.

    An advance changes neither clock. Code that checks whether a stored timestamp has expired adds
    `advanced_since_ms`. Session timeouts and liveness checks do not.
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
    """Return about `interval_s`, so that a sleep from `now_s` ends at a whole tenth of a second.

    Periodic tasks sleep for such intervals, so that all of them wake an idle process at the same
    time. An interval below 0.1 s is returned unchanged.
    """
    if interval_s < 0.1:
        return interval_s
    return round((now_s + interval_s) * 10) / 10 - now_s
