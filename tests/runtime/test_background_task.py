"""Test that a failed background task is reported by its name to the loop's exception handler."""

import asyncio
from typing import Any

from oncelog.runtime.background_task import BACKGROUND_TASK, background_task


async def fail() -> None:
    raise KeyError("unexpected")


async def handled(work: Any, *, cancel: bool = False) -> list[dict[str, Any]]:
    contexts: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: contexts.append(context))
    task = background_task("log maintenance", work)
    await asyncio.sleep(0)
    if cancel:
        task.cancel()
    await asyncio.wait({task})
    await asyncio.sleep(0)
    return contexts


def test_background_task_that_raises_reports_its_name_to_the_loop_handler() -> None:
    [context] = asyncio.run(handled(fail()))
    assert context[BACKGROUND_TASK] == "log maintenance"
    assert isinstance(context["exception"], KeyError)
    assert "log maintenance" in context["message"] and "unexpected" in context["message"]


def test_background_task_that_is_cancelled_reports_no_failure() -> None:
    assert asyncio.run(handled(asyncio.sleep(3600), cancel=True)) == []


def test_background_task_that_returns_reports_no_failure() -> None:
    assert asyncio.run(handled(asyncio.sleep(0))) == []
