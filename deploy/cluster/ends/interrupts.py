"""Delays of signals in blocks that must not be interrupted, and SIGTERM and SIGHUP as Ctrl-C."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """In the main thread, delay SIGINT, SIGTERM and SIGHUP until the end of the block.

    Of several signals in the block, only the first is raised then. Other threads need no delay,
    because Python runs signal handlers only in the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    is_inside = True
    found = {number: signal.getsignal(number) for number in ENDING}
    before = {n: handler for n, handler in found.items() if handler not in (signal.SIG_IGN, None)}

    def handle(number: int, frame: FrameType | None) -> None:
        if is_inside:
            came.append(number)
        elif callable(handler := before[signal.Signals(number)]):  # a signal has kept it from going
            handler(number, frame)

    try:
        for number in before:
            signal.signal(number, handle)
        yield
    finally:
        try:
            for number, handler in before.items():
                signal.signal(number, handler)
        finally:
            is_inside = False
            for number in came[:1]:
                signal.raise_signal(number)


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt, unless ignored, as under nohup."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {n: signal.getsignal(n) for n in ENDING[1:]}
    for number, handler in before.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
