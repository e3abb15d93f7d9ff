"""Flows: code that is written once, and runs with or without an event loop.

A flow yields calls, and receives their results or exceptions. `drive` makes each call.
`drive_async` also awaits an awaitable result.
"""

import inspect
from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

T = TypeVar("T")
Flow = Generator[Callable[[], Any], Any, T]


def drive(flow: Flow[T]) -> T:
    """Run a flow to its end in this thread, and return its result."""
    value: Any = None
    problem: BaseException | None = None
    while True:
        try:
            call = flow.throw(problem) if problem is not None else flow.send(value)
        except StopIteration as end:
            return cast(T, end.value)
        value = problem = None
        try:
            value = call()
        except BaseException as caught:
            problem = caught


async def drive_async(flow: Flow[T], look: Callable[[], object] = lambda: None) -> T:
    """Run a flow to its end on the event loop.

    look: a function that is called before each call and may raise.
    """
    value: Any = None
    problem: BaseException | None = None
    while True:
        try:
            call = flow.throw(problem) if problem is not None else flow.send(value)
        except StopIteration as end:
            return cast(T, end.value)
        value = problem = None
        try:
            look()
            value = call()
            if inspect.isawaitable(value):
                value = await value
        except BaseException as caught:
            problem = caught
