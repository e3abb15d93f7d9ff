"""Wait for a condition in tests without an event loop."""

import time
from collections.abc import Callable


def until(
    holds: Callable[[], object], what: str | Callable[[], str] = "", timeout_s: float = 30.0
) -> None:
    """Wait until the condition is true.

    Raises AssertionError with `what` after the timeout.
    """
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.02)
