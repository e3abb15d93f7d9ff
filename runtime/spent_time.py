"""The time that one piece of work takes on the event loop, even if its parts are scattered.

A call, a coroutine and the steps of sliced work count while they run, not while they wait. Steps
that a measured part passes to a queue are measured as a part of the same work. `SpentTime.running`
is the measured work, or None if nothing is measured.
"""

from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, Optional, ParamSpec, TypeVar

from .first_step import continued
from .steps import Result, Steps

P = ParamSpec("P")
R = TypeVar("R")


class SpentTime:
    """The event loop's time, in seconds, that was spent on one piece of work."""

    __slots__ = ("_began_s", "_clock", "_seconds")

    running: ClassVar[Optional["SpentTime"]] = None

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._began_s: float | None = None

    @property
    def seconds(self) -> float:
        """Return the seconds spent until now."""
        since = 0.0 if self._began_s is None else self._clock() - self._began_s
        return self._seconds + since

    def call(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function, return its result, and add the duration of the call."""
        if SpentTime.running is self:
            return function(*args, **kwargs)
        outer, SpentTime.running = SpentTime.running, self
        self._began_s = self._clock()
        try:
            return function(*args, **kwargs)
        finally:
            self._seconds += self._clock() - self._began_s
            self._began_s = None
            SpentTime.running = outer

    async def drive(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Await a coroutine, return its result, and add the time for which it runs."""
        return await continued(coroutine, call=self.call)

    def steps(self, steps: Steps[Result]) -> Steps[Result]:
        """Run the steps of a generator, return its result, and add the time of each step."""
        try:
            while True:
                try:
                    self.call(next, steps)
                except StopIteration as end:
                    return end.value
                yield
        finally:
            steps.close()
