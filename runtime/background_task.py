"""Tasks that run as long as the broker and report their failure.

After an unexpected exception in such a task, the broker would look healthy, but would no longer
maintain its logs, its ISRs or its heartbeats. Therefore the exception is passed to the event loop's
exception handler. Then `node/__main__` ends the process, since a restart recovers.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from .rate_limited_log import LimitedLog

BACKGROUND_TASK = "background_task"  # the key of the task's name in the exception handler's context


def background_task(name: str, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    """Run `work` in a task with this name. An exception in the task ends the broker."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_ended)
    return task


async def end_tasks(*tasks: "asyncio.Task[None]") -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _ended(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        name = task.get_name()
        task.get_loop().call_exception_handler(
            {
                "message": f"the background task {name!r} has failed: {error!r}",
                "exception": error,
                BACKGROUND_TASK: name,
            }
        )


class TaskSet:
    """Short tasks of one part of the broker. A failed task is logged, and the others continue."""

    def __init__(self, log: logging.Logger, failure: str) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._limited_log = LimitedLog(log)
        self._failure = failure  # a sentence for the log

    def __len__(self) -> int:
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def stop(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        await end_tasks(*self._tasks)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            now_s = task.get_loop().time()
            self._limited_log.log(logging.ERROR, self._failure, now_s, self._failure, error=error)
