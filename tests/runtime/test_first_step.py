"""Test that a coroutine runs without a task up to its first wait, and then in a task."""

import asyncio
from typing import Any

import pytest

from oncelog.runtime.first_step import first_step, in_task


class Refused(Exception):
    pass


async def test_first_step_of_a_coroutine_without_a_wait_returns_its_result() -> None:
    async def answer() -> str:
        return "answer"

    assert first_step(answer()) == "answer"


async def test_first_step_that_raises_raises_in_its_caller() -> None:
    async def fails() -> None:
        raise Refused

    with pytest.raises(Refused):
        first_step(fails())


async def test_first_step_of_a_waiting_coroutine_returns_the_rest_to_continue_in_a_task() -> None:
    first, second = asyncio.Event(), asyncio.Event()
    steps: list[str] = []

    async def waits() -> str:
        steps.append("begun")
        await first.wait()
        steps.append("first")
        await second.wait()
        return "answer"

    rest: Any = first_step(waits())
    assert steps == ["begun"]
    task = asyncio.create_task(rest)
    first.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert steps == ["begun", "first"]
    second.set()
    assert await task == "answer"


async def test_wait_that_fails_raises_in_the_coroutine() -> None:
    wait = asyncio.get_running_loop().create_future()

    async def handles() -> str:
        try:
            await wait
        except Refused:
            return "handled"
        return "not raised"

    rest: Any = first_step(handles())
    wait.set_exception(Refused())
    assert await rest == "handled"


async def test_cancelled_task_of_a_waiting_coroutine_runs_the_finally_blocks() -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("finally")

    rest: Any = first_step(waits())
    task = asyncio.create_task(rest)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["finally"]


async def test_coroutine_run_in_a_task_can_use_asyncio_timeout() -> None:
    async def limited() -> str:
        async with asyncio.timeout(60):
            return "answer"

    rest: Any = first_step(in_task(limited()))
    assert await asyncio.create_task(rest) == "answer"
