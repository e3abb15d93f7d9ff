"""Slices: all jobs together keep the loop for one slice a turn, and every job comes to its end."""

import asyncio
import itertools
from collections.abc import Generator

import pytest

from oncelog.replication.sliced_work import SLICE_S, SlicedWork, run_to_end

from ..awaiting import settle, turns_until


class StepClock:
    """Each look takes a tenth of a slice."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += SLICE_S / 10
        return self.now_s


def counting(steps: int, trace: list[str], name: str = "") -> Generator[None, None, int]:
    for _ in range(steps):
        trace.append(name)
        yield
    return steps


def test_a_generator_run_to_its_end_gives_its_result() -> None:
    assert run_to_end(counting(3, [])) == 3


async def turns_between(trace: list[str]) -> None:
    """Mark each turn of the loop."""
    while True:
        trace.append("|")
        await asyncio.sleep(0)


async def test_jobs_share_one_slice_of_each_turn() -> None:
    work, trace = SlicedWork(StepClock()), []
    ticker = asyncio.ensure_future(turns_between(trace))
    done = [work.run(name, counting(40, trace, name)) for name in "abc"]
    assert await asyncio.gather(*done) == [40, 40, 40]
    ticker.cancel()
    lengths = [len(list(steps)) for is_turn, steps in itertools.groupby(trace, "|".__eq__)
               if not is_turn]  # fmt: skip
    assert max(lengths) <= 10, "a slice ends after SLICE_S, however many jobs there are"
    # Round robin: nobody waits until another has ended.
    assert trace.index("c") < len(trace) - 1 - trace[::-1].index("a")


async def test_what_a_job_raises_reaches_its_waiters_only() -> None:
    def failing() -> Generator[None, None, None]:
        yield
        raise LookupError("gone")

    work = SlicedWork()
    failed, fine = work.run("failing", failing()), work.run("fine", counting(3, []))
    with pytest.raises(LookupError, match="gone"):
        await failed
    assert await fine == 3


async def test_a_cancelled_job_is_closed_at_its_next_step() -> None:
    closed = []

    def job() -> Generator[None, None, None]:
        try:
            while True:
                yield
        finally:
            closed.append(True)

    work = SlicedWork()
    future = work.run("endless", job())
    await asyncio.sleep(0.02)
    future.cancel()
    await turns_until(lambda: closed, timeout_s=10)
    assert work.running == ""


async def test_close_ends_all_jobs() -> None:
    work, trace = SlicedWork(StepClock()), []
    futures = [work.run(name, counting(10**9, trace, name)) for name in "ab"]
    await asyncio.sleep(0)
    work.close()
    async with asyncio.timeout(10):
        assert await asyncio.gather(*futures, return_exceptions=True)
    assert all(future.cancelled() for future in futures)
    steps = len(trace)
    await settle(2)
    assert len(trace) == steps
