"""Test threads of simulated processes. Their jobs take time and overlap, as the seed decides."""

import asyncio
import importlib
import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from oncelog.runtime.sliced_work import SlicedWork, Steps

from . import virtual_loop, virtual_threads
from .virtual_disk import Disks
from .virtual_loop import ProcessLoop, Timeline
from .virtual_slices import STEP_SIZES, SliceClock, slices_take_time
from .virtual_threads import Stopped, Threads, VirtualLock, locks_are_virtual, pause_point


@pytest.fixture(autouse=True)
def never_at_one_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each job pause at each possible point."""
    monkeypatch.setattr(virtual_loop, "AT_ONE_INSTANT", (0.0,))
    monkeypatch.setattr(virtual_threads, "BY_LINE", 0.0)
    monkeypatch.setattr(virtual_threads, "OPERATIONS_APART", (0,))


def steps(out: list[Any], name: str, count: int = 5) -> str:
    """Append (`name`, number) to `out` and call `pause_point`, `count` times. Return `name`."""
    for number in range(count):
        out.append((name, number))
        pause_point()
    return name


def test_virtual_loop_runs_other_tasks_between_the_pieces_of_a_job() -> None:
    timeline = Timeline(1)
    loop = ProcessLoop(timeline, 1)
    seen: list[Any] = []

    async def work() -> str:
        job = loop.run_in_executor(Threads(loop), steps, seen, "job")
        while not job.done():
            seen.append("loop")
            await asyncio.sleep(0.0001)
        return await job

    task = loop.create_task(work())
    assert timeline.run(10, task.done)
    assert task.result() == "job"
    between = seen[seen.index(("job", 0)) : seen.index(("job", 4))]
    assert "loop" in between
    assert [each for each in seen if each != "loop"] == [("job", i) for i in range(5)]


def test_virtual_thread_jobs_pause_where_the_seed_decides() -> None:
    def run(seed: int) -> list[Any]:
        timeline, seen = Timeline(seed), list[Any]()
        loop = ProcessLoop(timeline, 1)
        threads = Threads(loop, 3)
        for name in "abcd":
            threads.submit(steps, seen, name)
        timeline.run(10)
        return seen

    assert run(1) == run(1)
    assert len({tuple(run(seed)) for seed in range(8)}) > 4


def test_virtual_thread_runs_its_jobs_sequentially() -> None:
    timeline, seen = Timeline(2), list[Any]()
    threads = Threads(ProcessLoop(timeline, 1), 1)
    jobs = [threads.submit(steps, seen, name) for name in "abc"]
    timeline.run(10)
    assert [job.result() for job in jobs] == ["a", "b", "c"]
    assert seen == [(name, i) for name in "abc" for i in range(5)]


def test_virtual_thread_job_that_raises_fails_its_future() -> None:
    timeline = Timeline(3)

    def fail() -> None:
        pause_point()
        raise OSError("no")

    job = Threads(ProcessLoop(timeline, 1)).submit(fail)
    timeline.run(10)
    assert isinstance(job.exception(), OSError)


def test_virtual_thread_job_of_a_killed_process_stops_immediately() -> None:
    timeline, seen = Timeline(4), list[Any]()
    loop = ProcessLoop(timeline, 1)

    def job() -> None:
        try:
            steps(seen, "job", 1_000)
        finally:
            seen.append("unwound")

    Threads(loop).submit(job)
    assert timeline.run(10, lambda: len(seen) > 3)
    loop.kill()
    count = len(seen)
    assert seen[-1] == "unwound"
    timeline.run(10)
    assert len(seen) == count < 1_000


def test_virtual_thread_job_may_kill_its_own_process() -> None:
    timeline, seen = Timeline(5), list[Any]()
    loop = ProcessLoop(timeline, 1)

    def job() -> None:
        with virtual_threads.outside():
            loop.kill()
            pause_point()  # another job does this
        seen.append("killed")
        try:
            pause_point()
        except Stopped:
            seen.append("stopped")
            raise

    Threads(loop).submit(job)
    Threads(loop).submit(steps, seen, "other", 1_000)
    timeline.run(10)
    assert seen[-2:] == ["killed", "stopped"]


def test_virtual_thread_jobs_of_a_paused_process_pause() -> None:
    timeline, seen = Timeline(6), list[Any]()
    loop = ProcessLoop(timeline, 1)
    Threads(loop).submit(steps, seen, "job", 20)
    assert timeline.run(10, lambda: len(seen) > 3)
    loop.pause()
    count = len(seen)
    timeline.run(10)
    assert len(seen) == count
    loop.resume()
    timeline.run(10)
    assert len(seen) == 20


def test_virtual_thread_jobs_may_be_interrupted_at_any_line_of_product_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other lines could be different in another run, for example lines of the standard library."""
    monkeypatch.setattr(virtual_threads, "BY_LINE", 1.0)
    monkeypatch.setattr(virtual_threads, "LINES_APART", (1,))
    source = "for number in range(20):\n    seen.append(number)\n"

    def pauses_of(file: str) -> int:
        timeline, seen = Timeline(7), list[int]()
        loop = ProcessLoop(timeline, 1)
        code = compile(source, virtual_threads.OWN_CODE + file, "exec")
        Threads(loop).submit(exec, code, {"seen": seen})
        looks = set[int]()
        while len(seen) < 20 or loop.jobs:
            timeline.run(0.00001)
            looks.add(len(seen))
        return len(looks)

    assert pauses_of("storage/written_for_this.py") > 8
    assert pauses_of("tests/written_for_this.py") == 2


def test_virtual_thread_jobs_that_import_one_module_do_not_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lock of an import is a real one, so a job must not pause while it has this lock."""
    name = "oncelog.wire.messages.added.api_versions_v5_response"
    before = importlib.import_module(name)
    package = importlib.import_module(name.rpartition(".")[0])
    monkeypatch.setattr(package, name.rpartition(".")[2], before)
    monkeypatch.setattr(virtual_threads, "BY_LINE", 1.0)
    monkeypatch.setattr(virtual_threads, "LINES_APART", (0,))
    monkeypatch.delitem(sys.modules, name)
    timeline = Timeline(6)
    threads = Threads(ProcessLoop(timeline, 1), 2)
    jobs = [threads.submit(importlib.import_module, name) for _ in range(2)]
    timeline.run(10)
    first, second = (job.result() for job in jobs)
    assert first is second is not before


def test_virtual_lock_held_by_a_paused_job_makes_other_jobs_wait() -> None:
    timeline, seen = Timeline(8), list[Any]()
    loop = ProcessLoop(timeline, 1)
    lock = VirtualLock()

    def job(name: str) -> None:
        with lock:
            steps(seen, name)

    threads = Threads(loop, 2)
    threads.submit(job, "a")
    threads.submit(job, "b")
    timeline.run(10)
    assert len(seen) == 10
    assert [name for name, _ in seen] in (list("aaaaabbbbb"), list("bbbbbaaaaa"))


def test_virtual_loop_that_needs_a_lock_waits_until_the_job_releases_it() -> None:
    timeline, seen = Timeline(9), list[Any]()
    loop = ProcessLoop(timeline, 1)
    lock = VirtualLock()

    def job() -> None:
        with lock:
            steps(seen, "job")

    Threads(loop).submit(job)
    while len(seen) < 2:
        timeline.run(0.00001)
    assert len(seen) < 5
    with lock:
        assert len(seen) == 5
        assert not lock.acquire(blocking=False)


def test_virtual_locks_replace_only_locks_of_the_product_code() -> None:
    with locks_are_virtual():
        assert not isinstance(threading.Lock(), VirtualLock)
        from oncelog.coordinator.raft.wal.disk import DirectoryDisk

        assert isinstance(DirectoryDisk(Path("unused"))._lock, VirtualLock)
    assert not isinstance(threading.Lock(), VirtualLock)


def test_virtual_disk_refuses_changes_by_a_dead_process(tmp_path: Path) -> None:
    """The disk also refuses changes by a `finally` block that runs because of the kill."""
    timeline = Timeline(10)
    disks = Disks(tmp_path, timeline, [1])
    disk = disks.nodes[1]
    path = Path(disk.path) / "file"
    with disks.installed():
        fd = os.open(path, os.O_RDWR | os.O_CREAT)
        disks.died(1)
        with pytest.raises(Stopped):
            path.unlink()
        os.close(fd)
    assert path.exists()


def test_simulated_work_slices_end_where_the_seed_decides() -> None:
    def run(seed: int) -> list[str]:
        timeline, seen = Timeline(seed), list[str]()
        loop = ProcessLoop(timeline, 1)

        def steps() -> Steps[None]:
            for _ in range(30):
                seen.append("step")
                yield

        async def work() -> None:
            job = SlicedWork(SliceClock(random.Random(seed))).run("steps", steps())
            while not job.done():
                await asyncio.sleep(0.001)
                seen.append("timer")

        with slices_take_time(random.Random(seed)):
            task = loop.create_task(work())
            assert timeline.run(10, task.done)
        return seen

    assert run(1) == run(1) != run(2)
    assert "timer" in run(1)[: run(1).index("step") + 30]


def test_simulated_client_jobs_run_in_any_order_for_most_seeds() -> None:
    def run(seed: int) -> list[int]:
        timeline, seen = Timeline(seed), list[int]()
        loop = ProcessLoop(timeline, 1)

        def steps(number: int) -> Steps[None]:
            for _ in range(3):
                seen.append(number)
                yield

        async def work() -> None:
            line = SlicedWork(SliceClock(random.Random(seed))).clients
            await asyncio.gather(*(line.run("steps", steps(number)) for number in range(3)))

        with slices_take_time(random.Random(seed)):
            task = loop.create_task(work())
            assert timeline.run(10, task.done)
        assert sorted(seen) == sorted([*range(3)] * 3), "each to its end, and once"
        return seen

    first = [run(seed)[0] for seed in range(20)]
    assert set(first) == {0, 1, 2}
    assert run(3) == run(3)


def test_simulated_step_sizes_are_one_for_some_seeds_and_restored_afterwards() -> None:
    def sizes() -> list[int]:
        return [getattr(module, name) for module, name in STEP_SIZES]

    released, found = sizes(), list[list[int]]()
    for seed in range(20):
        with slices_take_time(random.Random(seed)):
            found.append(sizes())
        assert sizes() == released
    assert released in found
    assert [1] * len(released) in found


def test_simulated_loop_step_that_uses_the_cpu_too_long_is_reported() -> None:
    timeline = Timeline(11)
    timeline.step_cpu_s = 0.02
    loop = ProcessLoop(timeline, 1)

    async def count_up() -> None:
        end = time.thread_time() + 0.05
        while time.thread_time() < end:
            pass
        await asyncio.sleep(100)

    task = loop.create_task(count_up())
    loop.call_soon(len, "short")
    timeline.run(1)
    ((number, spent_s, words),) = timeline.long_steps
    assert (number, spent_s > 0.02) == (1, True)
    assert words.endswith("count_up")
    task.cancel()
    timeline.run(1)
