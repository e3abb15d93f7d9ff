"""What a log must know of a clock that was advanced (`oncelog clock advance`)."""

from collections.abc import Callable

# By how many ms what was written at a wall-clock moment is older than by real time.
AdvancedSince = Callable[[int], int]


def never_advanced(_moment_ms: int) -> int:
    """Of a clock that is the machine's."""
    return 0
