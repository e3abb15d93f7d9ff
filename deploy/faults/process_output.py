"""Waiting for what a process tells: readers of its stdout note it, others wait until it is so."""

import threading
import time
from collections.abc import Callable

from ..cluster.failure import Failure


class Heard:
    """Whoever reads what is told holds `_changed` while it notes it, and notifies.

    failed: what has stopped the processes for good; `wait` raises it.
    """

    def __init__(self) -> None:
        self.failed: Failure | None = None
        self._changed = threading.Condition()  # holds an RLock

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something that is told makes this true; False when time is up."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not condition():
                left_s = deadline - time.monotonic()
                if self.failed is not None:
                    raise self.failed
                if left_s <= 0:
                    return False
                self._changed.wait(min(left_s, 0.1))
        return True
