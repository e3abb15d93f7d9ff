"""Test event loop threads that are still running when their program exits."""

import sys

import pytest

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
