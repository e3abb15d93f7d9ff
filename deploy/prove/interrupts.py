"""Ctrl-C at any moment leaves nothing behind: where something begins or ends, it waits a moment."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[None]:
    """SIGINT and SIGTERM that come meanwhile count when it is over; of the main thread only, which
    is where Python raises them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {n: signal.signal(n, lambda *signalled: came.append(signalled)) for n in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number, frame in came[:1]:
            if callable(handler := before[signal.Signals(number)]):
                handler(number, frame)


@contextmanager
def term_as_interrupt() -> Iterator[None]:
    """SIGTERM ends a run as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
