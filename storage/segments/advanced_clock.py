"""The effect of an advanced clock on a log's timestamps (`oncelog clock advance`)."""

from collections.abc import Callable

# The ms by which a record of this wall-clock time is older than in real time.
AdvancedSince = Callable[[int], int]


def never_advanced(_moment_ms: int) -> int:
    """Return 0, because the clock of this cluster is never advanced."""
    return 0
