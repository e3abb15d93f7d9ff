"""Pin processes to one core, and restore their former cores. This works on Linux only."""

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil


@contextmanager
def held_on(core: int, pids: Collection[int]) -> Iterator[None]:
    """Pin all threads of these processes and their children to one core during the block.

    A thread created in the block inherits that core. Afterwards it gets the first cores that were
    found for its process.
    """
    family = {pid for each in pids for pid in _with_children(each)}
    before = _cores_of(family)
    of_threads = _cores_of(tid for pid in family for tid in threads_of(pid))
    try:
        _set_all({pid: {core} for pid in before}, {})
        yield
    finally:
        _set_all(before, of_threads)


def _cores_of(ids: Iterable[int]) -> dict[int, set[int]]:
    """Return the cores of each process or thread that has not ended."""
    cores: dict[int, set[int]] = {}
    for each in ids:
        with suppress(ProcessLookupError):
            cores[each] = os.sched_getaffinity(each)
    return cores


def threads_of(pid: int) -> set[int]:
    """Return the thread ids of a process, or an empty set if the process has ended."""
    with suppress(OSError):
        return {int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()}
    return set()


def _set_all(of_processes: dict[int, set[int]], of_threads: dict[int, set[int]]) -> None:
    """Set the cores of all threads, and repeat for threads that were started meanwhile."""
    done = set[int]()
    while new := [(pid, tid) for pid in of_processes for tid in threads_of(pid) if tid not in done]:
        for pid, tid in new:
            with suppress(ProcessLookupError):  # the thread has ended
                os.sched_setaffinity(tid, of_threads.get(tid, of_processes[pid]))
            done.add(tid)


def _with_children(pid: int) -> list[int]:
    return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
