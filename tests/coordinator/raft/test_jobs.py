"""Test that the error of a disk job reaches its caller once."""

import asyncio
import gc
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from oncelog.coordinator.raft.jobs import Jobs
from oncelog.runtime.sliced_work import SlicedWork


def test_raft_job_that_fails_during_a_stop_raises_its_error_once() -> None:
    """In an earlier version the event loop reported the error as never retrieved (seed 1020214)."""
    complaints: list[str] = []
    taken_up: list[str] = []

    def settle(action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as problem:
            taken_up.append(str(problem))

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: complaints.append(context["message"]))
        may_end = threading.Event()

        def fail() -> None:
            may_end.wait(30)
            raise OSError("the disk")

        with ThreadPoolExecutor(1) as executor:
            jobs = Jobs(loop, settle, journal=executor, files=executor, work=SlicedWork())
            jobs.write_journal(fail, lambda _: None)
            draining = asyncio.create_task(jobs.drain())
            await asyncio.sleep(0)
            may_end.set()
            await draining
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(run())
    assert (taken_up, complaints) == (["the disk"], [])
