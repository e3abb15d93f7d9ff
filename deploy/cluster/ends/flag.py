"""A flag that one thread sets and others wait for, without a lock."""

import time

WAIT_S = 0.01


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
        """Wait until the flag is set, and return whether it is. Look at it each WAIT_S."""
        end_s = time.monotonic() + timeout_s
        while not self._is_set and (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(WAIT_S, left_s))
        return self._is_set
