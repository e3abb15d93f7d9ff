"""The two clocks of a broker, given at the composition root and replaced in tests."""

import time
from typing import Protocol


class Clock(Protocol):
    """Milliseconds: wall-clock for what is written down, monotonic for how long something took."""

    def wall_ms(self) -> int: ...  # noqa: D102
    def monotonic_ms(self) -> int: ...  # noqa: D102


class SystemClock:
    """The machine's clocks."""

    @staticmethod
    def wall_ms() -> int:
        """Milliseconds since 1970 in UTC."""
        return time.time_ns() // 1_000_000

    @staticmethod
    def monotonic_ms() -> int:
        """Milliseconds that never go back."""
        return time.monotonic_ns() // 1_000_000
