"""A flag that one thread sets and others wait for, without a lock."""

import time
from collections.abc import Callable

WAIT_S = 0.01


def poll(condition: Callable[[], bool], timeout_s: float, pause_s: float = WAIT_S) -> bool:
    """Wait until the condition holds, and return whether it does. Ask for it each `pause_s`."""
    end_s = time.monotonic() + timeout_s
    while not condition():
        if (left_s := end_s - time.monotonic()) <= 0:
            return False
        time.sleep(min(pause_s, left_s))
    return True


class Flag:
    """A flag like threading.Event, for code that signal handlers interrupt in the main thread.

    If a handler raises in a method of an Event or of a Condition, the lock can stay held, and later
    calls wait for it for ever.
    """

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout_s: float) -> bool:
        """Wait until the flag is set, and return whether it is."""
        return poll(self.is_set, timeout_s)
