"""The CPU time of the longest step of sliced work."""

import gc
import time
from collections.abc import Callable
from typing import TypeVar

from oncelog.runtime.steps import Steps

Result = TypeVar("Result")


def longest_step(make: Callable[[], Steps[Result]]) -> tuple[Result, float]:
    """Return the result and the CPU milliseconds of the longest step.

    The shorter of two runs counts, since other processes may slow one down.
    """
    longest_ms: list[float] = []
    gc.disable()  # a test process has more objects to visit than a broker
    try:
        while True:
            steps, longest_s = make(), 0.0
            while True:
                began_s = time.thread_time()
                try:
                    next(steps)
                except StopIteration as end:
                    result: Result = end.value
                    break
                finally:
                    longest_s = max(longest_s, time.thread_time() - began_s)
            longest_ms.append(longest_s * 1000)
            if len(longest_ms) == 2:
                return result, min(longest_ms)
    finally:
        gc.enable()
