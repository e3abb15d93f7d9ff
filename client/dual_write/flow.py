"""Work that is written once and done with or without an event loop.

A flow yields calls, and gets what they return, or what they raise, back. `drive` makes each call;
`drive_async` awaits what it returns where that is awaitable.
"""

import inspect
from collections.abc import Callable, Generator
from typing import Any, TypeVar, cast

T = TypeVar("T")
Flow = Generator[Callable[[], Any], Any, T]


def drive(flow: Flow[T]) -> T:
    """Run a flow to its end, here."""
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
    """Run a flow to its end in the event loop. look: called before each call, which it may stop."""
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
