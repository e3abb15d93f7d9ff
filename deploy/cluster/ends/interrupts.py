"""Signals that end a program: all of them as Ctrl-C, and later where something begins or ends."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def _later() -> Iterator[None]:
    """Signals that come while handlers are exchanged come behind it: none is lost, none stays."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Signals that come meanwhile count when it is over; of the main thread only, which is where
    Python raises them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    with _later():
        before = {n: signal.signal(n, lambda number, _: came.append(number)) for n in ENDING}
    try:
        yield
    finally:
        with _later():
            for number, handler in before.items():
                signal.signal(number, handler)
            for number in came[:1]:
                signal.raise_signal(number)


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt, but where they are ignored, as under nohup."""
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
