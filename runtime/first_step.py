"""The first step of a coroutine, which needs no task.

Most requests are answered without a wait. A task for each request would cost some microseconds and
a turn of the event loop. Therefore a coroutine runs up to its first wait in the call that creates
it. Only a coroutine that waits gets a task, for the rest.
"""

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from .steps import Result


def first_step(coroutine: Coroutine[Any, Any, Result]) -> Result | Coroutine[Any, Any, Result]:
    """Run a coroutine up to its first wait. Return its result, or a coroutine of the rest.

    The first step runs outside of a task. Therefore it cannot use asyncio's time limits (see
    `in_task`). It must shield a future on which several coroutines wait, because asyncio refuses a
    second waiter until the first waiter has its task.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as end:
        return end.value
    return _rest(coroutine, awaited)


async def in_task(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Await a coroutine after a turn of the event loop, so that it runs in a task.

    The first step of a request has no task (`first_step`), but time limits of asyncio need one.
    """
    try:
        await _next_turn()
    except BaseException:
        coroutine.close()
        raise
    return await coroutine


@types.coroutine
def _next_turn() -> Generator[None, None, None]:
    yield  # as asyncio.sleep(0)


async def _rest(coroutine: Coroutine[Any, Any, Result], awaited: Any) -> Result:
    return await continued(coroutine, awaited)


def _call(step: Callable[[Any], Any], value: Any) -> Any:
    return step(value)


@types.coroutine
def continued(
    coroutine: Coroutine[Any, Any, Result],
    awaited: Any = None,
    call: Callable[..., Any] = _call,
) -> Generator[Any, Any, Result]:
    """Run the rest of a coroutine, and return its result. `call` executes each step.

    awaited: the object for which the coroutine waits now.
    """
    try:
        if awaited is None:  # nothing, or a wait for a later turn, in which the task has begun
            awaited = call(coroutine.send, None)
        while True:
            try:
                value = yield awaited
            except BaseException as error:  # the coroutine handles what ends its wait
                awaited = call(coroutine.throw, error)
            else:
                awaited = call(coroutine.send, value)
    except StopIteration as end:
        return end.value
