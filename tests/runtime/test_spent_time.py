"""Test the measurement of the time that calls, coroutines and sliced work spend on the loop."""

import asyncio
from collections.abc import Callable

import pytest

from oncelog.runtime.sliced_work import SlicedWork
from oncelog.runtime.spent_time import SpentTime
from oncelog.runtime.steps import Steps


class Clock:
    """A clock that advances only by its method `work`."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def work(self, seconds: float) -> str:
        self.now_s += seconds
        return "done"

    def steps(self, *seconds: float) -> Steps[str]:
        for each in seconds:
            self.work(each)
            yield
        return "done"


def measured(scenario: "Callable[[Clock, SpentTime], object]") -> float:
    clock = Clock()
    spent = SpentTime(clock)
    scenario(clock, spent)
    assert SpentTime.running is None
    return spent.seconds


def test_spent_time_of_nested_calls_is_counted_once():
    def scenario(clock: Clock, spent: SpentTime) -> None:
        assert spent.call(clock.work, 2.0) == "done"
        clock.work(100.0)

        def nested() -> None:
            clock.work(1.0)
            spent.call(clock.work, 4.0)
            assert spent.seconds == 7.0

        spent.call(nested)

    assert measured(scenario) == 7.0


def test_spent_time_of_a_call_that_raises_is_counted():
    def scenario(clock: Clock, spent: SpentTime) -> None:
        def fail() -> None:
            clock.work(3.0)
            raise ValueError

        with pytest.raises(ValueError):
            spent.call(fail)

    assert measured(scenario) == 3.0


def test_spent_time_of_a_coroutine_excludes_its_waiting():
    def scenario(clock: Clock, spent: SpentTime) -> None:
        async def ask(answer: asyncio.Future[int]) -> int:
            clock.work(1.0)
            value = await answer
            clock.work(2.0)
            return value

        async def run() -> None:
            answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            asking = asyncio.create_task(spent.drive(ask(answer)))
            await asyncio.sleep(0)
            clock.work(50.0)
            answer.set_result(7)
            assert await asking == 7

        asyncio.run(run())

    assert measured(scenario) == 3.0


def test_spent_time_of_a_cancelled_coroutine_includes_its_cleanup():
    def scenario(clock: Clock, spent: SpentTime) -> None:
        ended: list[str] = []

        async def wait() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                clock.work(1.0)
                ended.append("ended")

        async def run() -> None:
            waiting = asyncio.create_task(spent.drive(wait()))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert ended == ["ended"]

        asyncio.run(run())

    assert measured(scenario) == 1.0


def test_spent_time_of_a_coroutine_includes_its_sliced_work():
    def scenario(clock: Clock, spent: SpentTime) -> None:
        async def run() -> None:
            work = SlicedWork()

            async def ask() -> str:
                return await work.clients.run("asked", clock.steps(1.0, 2.0))

            other = work.clients.run("other", clock.steps(50.0))
            assert await spent.drive(ask()) == "done"
            assert await other == "done"

        asyncio.run(run())

    assert measured(scenario) == 3.0


def test_spent_time_of_closed_steps_closes_the_inner_generator():
    def scenario(clock: Clock, spent: SpentTime) -> None:
        inner = clock.steps(1.0, 2.0)
        outer = spent.steps(inner)
        next(outer)
        outer.close()
        assert next(inner, "closed") == "closed"

    assert measured(scenario) == 1.0
