"""Commands that run until a signal, which ends them normally with exit code 0."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from ...deploy.cluster.ends.interrupts import ENDING

T = TypeVar("T")


def run_until_signal(work: Coroutine[Any, Any, T]) -> T | None:
    """Run a coroutine until SIGINT, SIGTERM or SIGHUP, which cancels the coroutine.

    The result is then None. A signal that is already ignored, as under nohup, stays ignored.
    """
    return asyncio.run(_until_signal(work))


async def _until_signal(work: Coroutine[Any, Any, T]) -> T | None:
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work)
    heard = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]
    ended = asyncio.Event()

    def end() -> None:
        ended.set()
        task.cancel()

    for number in heard:
        loop.add_signal_handler(number, end)
    try:
        return await task
    except asyncio.CancelledError:
        if not ended.is_set():
            raise
        return None
    finally:
        for number in heard:
            loop.remove_signal_handler(number)
