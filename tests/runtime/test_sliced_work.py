"""Test that sliced jobs share a slice of each turn of the event loop, and that all complete."""

import asyncio
from collections.abc import Generator

import pytest

from oncelog.runtime.sliced_work import (
    CLIENT_RUN_S,
    CLIENTS_S,
    SLICE_S,
    SlicedWork,
    WorkLine,
    run_to_end,
)

from ..awaiting import settle, turns_until

STEPS_A_SLICE = 10


class StepClock:
    """A clock that advances by a tenth of a slice at each reading."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += SLICE_S / STEPS_A_SLICE
        return self.now_s


def counting(steps: int, trace: list[str], name: str = "") -> Generator[None, None, int]:
    for _ in range(steps):
        trace.append(name)
        yield
    return steps


def test_sliced_job_run_to_its_end_returns_its_result() -> None:
    assert run_to_end(counting(3, [])) == 3


async def turns_between(trace: list[str]) -> None:
    """Append "|" to the trace in each turn of the event loop."""
    while True:
        trace.append("|")
        await asyncio.sleep(0)


def slices(trace: list[str]) -> list[str]:
    """Return the steps of each turn of the event loop as a text, without turns that ran no step."""
    return "".join(trace).replace("||", "|").strip("|").split("|")


async def traced(work: SlicedWork, jobs: list[tuple[WorkLine, str, int]]) -> list[str]:
    """Run jobs, and return the trace of their steps.

    Each job has a line, a name and a step count.
    """
    trace: list[str] = []
    ticker = asyncio.ensure_future(turns_between(trace))
    done = [line.run(name, counting(steps, trace, name)) for line, name, steps in jobs]
    assert await asyncio.gather(*done) == [steps for _, _, steps in jobs]
    ticker.cancel()
    return trace


def last(trace: list[str], name: str) -> int:
    return len(trace) - 1 - trace[::-1].index(name)


async def test_sliced_broker_jobs_share_one_slice_of_each_loop_turn() -> None:
    work = SlicedWork(StepClock())
    trace = await traced(work, [(work, name, 40) for name in "abc"])
    lengths = [len(steps) for steps in slices(trace)]
    # The clock's rounding may let one step more in.
    assert max(lengths) <= STEPS_A_SLICE + 1, "however many jobs there are"
    assert trace.index("c") < last(trace, "a"), "none waits until another has ended"


async def test_sliced_client_jobs_that_are_short_run_one_after_the_other() -> None:
    work = SlicedWork(StepClock())
    trace = await traced(work, [(work.clients, name, 40) for name in "abc"])
    assert "".join(trace).replace("|", "") == 40 * "a" + 40 * "b" + 40 * "c"
    assert max(map(len, slices(trace))) <= STEPS_A_SLICE + 1


async def test_sliced_client_job_that_is_very_long_finishes_after_shorter_jobs() -> None:
    work = SlicedWork(StepClock())
    steps_of_run = round(CLIENT_RUN_S / SLICE_S * STEPS_A_SLICE)
    lengths = {"a": 3 * steps_of_run, "b": 20, "c": 3 * steps_of_run, "d": 20}
    trace = await traced(work, [(work.clients, name, steps) for name, steps in lengths.items()])
    assert sorted(lengths, key=lambda name: last(trace, name)) == ["b", "d", "a", "c"]
    assert trace[: last(trace, "b")].count("a") <= steps_of_run + 1
    assert trace[: last(trace, "d")].count("c") <= steps_of_run + 1


async def test_sliced_broker_job_finishes_before_older_client_jobs() -> None:
    work = SlicedWork(StepClock())
    trace = await traced(work, [(work.clients, "c", 200), (work, "o", 20)])
    before = trace[: last(trace, "o")]
    assert before.count("c") <= 2 * (CLIENTS_S / SLICE_S * STEPS_A_SLICE + 1)


async def test_sliced_broker_jobs_that_never_end_leave_client_jobs_their_share() -> None:
    work = SlicedWork(StepClock())
    trace: list[str] = []
    own = work.run("own", counting(10**9, trace, "o"))
    await work.clients.run("client", counting(30, trace, "c"))
    own.cancel()
    assert trace.count("o") < 30 / (CLIENTS_S / SLICE_S)
    work.close()


async def test_sliced_broker_jobs_that_wake_many_waiters_leave_client_jobs_their_share() -> None:
    """The time that the loop needs to wake a job's waiter is charged to the queue of the job."""
    work = SlicedWork(StepClock())
    trace: list[str] = []
    own = [work.run("own", counting(1, trace, "o")) for _ in range(100)]
    await work.clients.run("client", counting(10, trace, "c"))
    assert not own[-1].done()
    await asyncio.gather(*own)


async def test_sliced_job_that_raises_fails_only_its_own_waiters() -> None:
    def failing() -> Generator[None, None, None]:
        yield
        raise LookupError("gone")

    work = SlicedWork()
    failed, fine = work.run("failing", failing()), work.run("fine", counting(3, []))
    with pytest.raises(LookupError, match="gone"):
        await failed
    assert await fine == 3


async def test_sliced_job_that_is_cancelled_is_closed_at_its_next_step() -> None:
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


async def test_sliced_work_close_cancels_all_jobs() -> None:
    work, trace = SlicedWork(StepClock()), []
    lines = {"a": work, "b": work, "c": work.clients}
    futures = [line.run(name, counting(10**9, trace, name)) for name, line in lines.items()]
    await asyncio.sleep(0)
    work.close()
    async with asyncio.timeout(10):
        assert await asyncio.gather(*futures, return_exceptions=True)
    assert all(future.cancelled() for future in futures)
    steps = len(trace)
    await settle(2)
    assert len(trace) == steps


class UptimeClock:
    """A clock that shows 8 days, at which the rest of a slice is below the precision of a float."""

    def __init__(self) -> None:
        self.now_s = 700_000.0
        self.look_s = (self.now_s + SLICE_S - self.now_s) / 2
        assert 2 * self.look_s < SLICE_S, "the rest of a run rounds to nothing"

    def __call__(self) -> float:
        self.now_s += self.look_s
        return self.now_s


async def test_sliced_job_with_a_remaining_time_that_rounds_to_zero_still_ends() -> None:
    work = SlicedWork(UptimeClock())
    done = work.run("long", counting(100, []))
    await turns_until(done.done, timeout_s=5)
    assert done.result() == 100
