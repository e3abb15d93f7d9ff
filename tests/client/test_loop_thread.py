"""Test event loop threads that are still running when their program exits."""

import asyncio
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest

from oncelog.client.loop_thread import LoopThread

from ..programs import run_to_end

pytest.importorskip("uvloop")

BEGIN = """
import asyncio, atexit, ctypes, sys, time
later = []
atexit.register(lambda: later and later[0]())  # registered before, so called after ours
from oncelog.client.loop_thread import LoopThread
async def wake(every_s):
    while True:
        await asyncio.sleep(every_s)

async def answer():
    await asyncio.sleep(0.01)
    return 42

threads = [LoopThread("left-open") for _ in range(3)]
for thread in threads:
    asyncio.run_coroutine_threadsafe(wake(0.6), thread.loop)
time.sleep(0.05)
"""
# The C library's handlers run after Python's end, as destructors of C++ do: here for a second.
LATE = """
libc = ctypes.CDLL(None)
libc.on_exit(libc.sleep, None)
sys.exit(1)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="on_exit is glibc's")
def test_blocking_client_left_open_does_not_crash_the_exit_of_its_program() -> None:
    done = run_to_end([sys.executable, "-c", BEGIN + LATE])
    assert (done.returncode, done.stderr) == (1, "")


def test_blocking_client_used_in_an_exit_handler_completes_its_call() -> None:
    end = """
def say():
    print(thread.run(answer()), thread.run(answer(), 5))
    try:
        thread.run(wake(1), 0.1)
    except TimeoutError:
        print("too late")
    thread.close()
later.append(say)
"""
    done = run_to_end([sys.executable, "-c", BEGIN + end])
    assert (done.returncode, done.stdout, done.stderr) == (0, "42 42\ntoo late\n", "")


class InterruptedLoop:
    """This event loop interrupts its caller once, just before or after a call is handed over."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, is_handed_over: bool) -> None:
        self._loop, self._is_handed_over, self._is_due = loop, is_handed_over, True

    def call_soon_threadsafe(self, call: Any) -> None:
        is_due, self._is_due = self._is_due, False
        if not is_due or self._is_handed_over:
            self._loop.call_soon_threadsafe(call)
        if is_due:
            raise KeyboardInterrupt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


@pytest.mark.parametrize("is_handed_over", [False, True])
def test_call_interrupted_while_it_begins_is_cancelled(is_handed_over: bool) -> None:
    """Otherwise a second commit, for example, would run beside the first."""
    thread, done = LoopThread("interrupted"), list[str]()

    async def work(name: str) -> None:
        await asyncio.sleep(0)
        done.append(name)

    loop = thread.loop
    thread.loop = InterruptedLoop(loop, is_handed_over=is_handed_over)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        thread.run(work("interrupted"))
    thread.run(work("next"))
    assert done == ["next"]
    thread.loop = loop
    thread.close()


@contextlib.contextmanager
def signals(
    handler: Callable[..., object] = signal.default_int_handler,
) -> Generator[None]:
    """Let SIGUSR1 interrupt the main thread."""
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_call_interrupted_after_the_stop_of_its_loop_is_cancelled() -> None:
    thread, done = LoopThread("stopped"), list[str]()
    thread.stop()

    async def work(name: str) -> None:
        if name == "interrupted":
            asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGUSR1)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            done.append(name)
        finally:
            await asyncio.sleep(0)

    with signals(), pytest.raises(KeyboardInterrupt):
        thread.run(work("interrupted"))
    thread.run(work("next"))
    assert done == ["next"]
    thread.close()


def test_loop_thread_whose_close_is_interrupted_ends() -> None:
    """A uvloop that still runs at the exit of its program can end it by SIGSEGV."""
    thread, begun, heard = LoopThread("interrupted"), threading.Event(), threading.Event()
    main = threading.get_ident()

    def interrupt(*_: object) -> None:
        if not heard.is_set():
            heard.set()
            raise KeyboardInterrupt

    async def interrupts() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            while not heard.is_set():  # a signal just before a wait begins does not end the wait
                signal.pthread_kill(main, signal.SIGUSR1)
                await asyncio.sleep(0.01)

    working = asyncio.run_coroutine_threadsafe(interrupts(), thread.loop)
    assert begun.wait(10)
    with signals(interrupt):
        with pytest.raises(KeyboardInterrupt):
            thread.close()
        thread._thread.join(10)
    assert not thread._thread.is_alive()
    assert working.cancelled()
    thread.loop.close()
