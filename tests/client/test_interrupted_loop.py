"""Test event loop threads with a signal at each point of a call, and loops that a task ends."""

import asyncio
import sys
import threading
import time
from asyncio import base_events, selector_events, unix_events
from collections.abc import Callable, Generator
from typing import Any

import pytest

from oncelog.client import BlockingAdmin, BlockingConsumer, blocking_producer, loop_thread
from oncelog.client.blocking_producer import BlockingProducer
from oncelog.client.failures import ClientClosed
from oncelog.client.loop_thread import BlockingClient, LoopThread

from ..interruptions import interrupted
from ..programs import run_to_end

# An interrupted call may leave a coroutine that was never awaited.
pytestmark = [
    pytest.mark.filterwarnings("ignore:coroutine"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
TIMEOUT_S = 10.0
TRACED = loop_thread.__file__, threading.__file__, blocking_producer.__file__
ASYNCIO = base_events.__file__, selector_events.__file__, unix_events.__file__
FILES = *TRACED[:1], *ASYNCIO
LEFT_OPEN = """
import asyncio, atexit, threading
atexit.register(lambda: print([each.is_alive() for each in kept]))  # called after ours
from oncelog.client.loop_thread import LoopThread
"""


def in_time(call: Callable[[], Any]) -> Any:
    """Return the result of a call in a thread of its own. Fail if the call hangs."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    assert found, "it hangs"
    return found[0]


class Client:
    async def close(self) -> None:
        await asyncio.sleep(0)

    def _drop(self) -> None: ...


async def answer() -> int:
    await asyncio.sleep(0)
    return 42


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> Generator[list[asyncio.AbstractEventLoop]]:
    """Yield a list that gets each new loop."""
    made: list[asyncio.AbstractEventLoop] = []
    new = loop_thread.new_event_loop

    def kept() -> asyncio.AbstractEventLoop:
        made.append(new())
        return made[-1]

    monkeypatch.setattr(loop_thread, "new_event_loop", kept)
    yield made
    for loop in made:
        if not loop.is_running():
            loop.close()


def test_call_that_is_interrupted_anywhere_does_not_go_on(
    loops: list[asyncio.AbstractEventLoop],
) -> None:
    thread, done = LoopThread("interrupted"), list[int]()

    async def work(number: int) -> None:
        await asyncio.sleep(0)
        done.append(number)

    number, is_whole = 0, False
    while not is_whole:
        number += 1
        is_whole = not interrupted(lambda: thread.run(work(number)), number, TRACED)  # noqa: B023
        in_time(lambda: thread.run(answer()))
        assert all(done[at] < done[at + 1] for at in range(len(done) - 1)), done
    thread.close()
    assert number > 5


@pytest.mark.parametrize(
    "make",
    [
        LoopThread,
        lambda name: BlockingClient(Client(), name),
        lambda _: BlockingProducer("127.0.0.1:1"),
    ],
)
def test_loop_whose_close_is_interrupted_anywhere_ends_at_the_next_close(
    make: Callable[[str], LoopThread | BlockingClient[Any]],
    loops: list[asyncio.AbstractEventLoop],
) -> None:
    number, is_whole = 0, False
    while not is_whole:
        closing, number = make("interrupted"), number + 1
        is_whole = not interrupted(closing.close, number, TRACED)
        in_time(closing.close)
        assert loops[-1].is_closed(), number
    assert number > 10


def test_call_in_which_a_signal_handler_closes_the_loop_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_thread, "new_event_loop", asyncio.new_event_loop)
    number, is_whole, refused = 0, False, 0

    def call(thread: LoopThread) -> bool:
        nonlocal refused
        try:
            return interrupted(lambda: thread.run(answer()), number, FILES, thread.close)
        except ClientClosed:
            refused += 1
            return True

    while not is_whole:
        thread, number = LoopThread("interrupted"), number + 1
        is_whole = not in_time(lambda thread=thread: [call(thread)])[0]
        in_time(lambda thread=thread: [thread.close()])
    assert number > refused > 3


def test_asyncio_loop_whose_close_is_interrupted_anywhere_ends_at_the_next_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The close of an asyncio loop cannot be repeated after an interruption in its middle."""
    monkeypatch.setattr(loop_thread, "new_event_loop", asyncio.new_event_loop)
    number, is_whole = 0, False
    while not is_whole:
        thread, number = LoopThread("interrupted"), number + 1
        is_whole = not interrupted(thread.close, number, FILES)
        in_time(thread.close)
        assert thread.loop.is_closed(), number
    assert number > 10


def test_loop_whose_stop_is_interrupted_anywhere_still_runs_calls(
    loops: list[asyncio.AbstractEventLoop],
) -> None:
    number, is_whole = 0, False
    while not is_whole:
        thread, number = LoopThread("interrupted"), number + 1
        is_whole = not interrupted(thread.stop, number, TRACED)
        assert in_time(lambda thread=thread: thread.run(answer())) == 42
        in_time(thread.close)
        assert loops[-1].is_closed(), number
    assert number > 5


def test_loop_whose_start_is_interrupted_anywhere_ends(
    loops: list[asyncio.AbstractEventLoop],
) -> None:
    number, is_whole, started = 0, False, list[LoopThread]()
    while not is_whole:
        number += 1
        is_whole = not interrupted(
            lambda: started.append(LoopThread("interrupted")), number, TRACED
        )
    started.pop().close()
    assert number > 10 and not started
    deadline_s = time.monotonic() + TIMEOUT_S
    while any(
        thread.name == "interrupted" and thread.is_alive() for thread in threading.enumerate()
    ):
        assert time.monotonic() < deadline_s
        time.sleep(0.001)
    assert not any(loop.is_running() for loop in loops)


@pytest.mark.parametrize("make", [LoopThread, BlockingProducer, BlockingConsumer, BlockingAdmin])
def test_constructor_interrupted_anywhere_leaves_no_loop(
    make: Callable[[str], Any], loops: list[asyncio.AbstractEventLoop]
) -> None:
    number, made = 0, list[Any]()
    while not made:
        number += 1
        interrupted(lambda: made.append(make("127.0.0.1:1")), number, TRACED[:2])
    made.pop().close()
    assert number > 10 and not made
    deadline_s = time.monotonic() + TIMEOUT_S
    while not all(loop.is_closed() for loop in loops):
        assert time.monotonic() < deadline_s, loops
        time.sleep(0.001)


def test_error_of_a_new_event_loop_is_raised_in_the_constructor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail() -> asyncio.AbstractEventLoop:
        raise OSError("too many open files")

    monkeypatch.setattr(loop_thread, "new_event_loop", fail)
    with pytest.raises(OSError, match="too many"):
        LoopThread("refused")


def test_loop_of_a_client_that_was_dropped_is_stopped_at_the_exit_of_the_program() -> None:
    """A uvloop that still runs then can end the program by SIGSEGV."""
    program = f"{LEFT_OPEN}\nthread = LoopThread('dropped')\nkept = [thread._thread]\ndel thread"
    done = run_to_end([sys.executable, "-c", program])
    assert (done.returncode, done.stdout, done.stderr) == (0, "[False]\n", "")


def test_interrupted_stop_at_the_exit_of_a_program_leaves_the_stops_of_other_loops() -> None:
    program = f"""{LEFT_OPEN}
threads = [LoopThread("left-open") for _ in range(3)]
kept = [thread._thread for thread in threads]
real, stops = LoopThread.stop, []
def stop(self):
    real(self)
    stops.append(self)
    if len(stops) == 1:
        raise KeyboardInterrupt
LoopThread.stop = stop
"""
    done = run_to_end([sys.executable, "-c", program])
    assert done.stdout == "[False, False, False]\n"


def test_call_on_a_loop_that_was_too_busy_to_stop_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_thread, "STOP_S", 0.05)
    thread, go_on = LoopThread("busy"), threading.Event()
    thread.loop.call_soon_threadsafe(go_on.wait)
    thread.stop()
    with pytest.raises(ClientClosed, match="still busy"):
        thread.run(answer(), 1.0)
    go_on.set()
    assert in_time(lambda: thread.run(answer())) == 42
    thread.close()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_call_that_raises_an_exit_raises_it_in_its_caller(kind: type[BaseException]) -> None:
    """The thread would otherwise end, and the caller would wait for ever."""
    thread = LoopThread("exits")

    async def leave() -> None:
        raise kind(3)

    def call() -> BaseException | None:
        try:
            thread.run(leave())
        except BaseException as raised:
            return raised
        return None

    assert isinstance(in_time(call), kind)
    assert in_time(lambda: thread.run(answer())) == 42
    in_time(thread.close)
