"""Work that grows with its input, as a generator that yields where other work may run.

This file has only the type, and a function that runs such work to its end. Brokers run such work in
slices on their event loop (see runtime/sliced_work.py).
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")
Item = TypeVar("Item")
MADE_A_STEP = 100  # for items that take a few microseconds each
Steps = Generator[None, None, Result]


class StepCounter:
    """An item count shared by nested loops, which decides when to yield.

    A separate count for each loop would never yield in a sequence of many short loops.
    """

    __slots__ = ("_count", "_items")

    def __init__(self, items: int = MADE_A_STEP) -> None:
        self._items = items
        self._count = 0

    def ends_step(self) -> bool:
        """Count one item of any of the loops, and return whether the caller must yield now."""
        self._count += 1
        return self._count % self._items == 0

    def ends_steps(self, items: int) -> bool:
        """Count several items, and return whether the caller must yield now."""
        before = self._count // self._items
        self._count += items
        return self._count // self._items != before


def made(
    make: Callable[[Item], Result], items: Iterable[Item], at_a_step: int = MADE_A_STEP
) -> Steps[list[Result]]:
    """Return the results of `make` for all items, in steps of `at_a_step` items."""
    results: list[Result] = []
    for item in items:
        results.append(make(item))
        if len(results) % at_a_step == 0:
            yield
    return results


def begin_steps(steps: Steps[Any]) -> tuple[bool, Any]:
    """Run the first step, and return whether it was the only step.

    Returns (True, the result) for a single step, else (False, the steps).
    """
    try:
        next(steps)
    except StopIteration as end:
        return True, end.value
    return False, steps


def run_to_end(steps: Steps[Result]) -> Result:
    """Run all steps of a generator without a pause, and return its result.

    This is for executors, for tools, and for work that is known to be short.
    """
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
