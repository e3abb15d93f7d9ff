"""A pool of writers for many threads, in programs without an event loop (pool.py).

    with BlockingWriterPool("127.0.0.1:9092", "billing", 8, connect) as pool:
        with pool.transaction() as work:
            work.execute("UPDATE ...")
            work.send("transfers", b"...")

A writer and its connection go from thread to thread, so sqlite3.connect needs
check_same_thread=False.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Generator
from typing import Self

from ..dual_write.blocking_writer import BlockingDualWork, BlockingDualWriter
from ..failures import ClientClosed
from . import pool_names
from .pool import CLOSE_LOOK_S, CLOSE_TIMEOUT_MS, CLOSED, LOOK_S, PoolOfWriters
from .pool_names import Slot, Ticket

logger = logging.getLogger(__name__)


class _Thread:
    """The holder of a writer: the thread that entered, and the thread that used the writer last."""

    def __init__(self) -> None:
        self.entered = threading.current_thread()
        self.seen()

    def seen(self) -> None:
        self.thread, self.seen_s = threading.current_thread(), time.monotonic()

    @property
    def is_dead(self) -> bool:
        is_over = not (self.entered.is_alive() or self.thread.is_alive())
        return is_over and time.monotonic() - self.seen_s >= pool_names.SILENT_S

    def __str__(self) -> str:
        thread = self.thread if self.thread.is_alive() else self.entered
        return f"thread {thread.name!r}"


class BlockingWriterPool(PoolOfWriters):
    """A pool of writers for any number of threads.

    The arguments are the same as for `WriterPool`.
    """

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start all writers as `WriterPool.start` does."""
        self._refuse()
        try:
            for slot in self._names.slots:
                self._renew(slot)
        except BaseException:
            self.close()
            raise

    @contextlib.contextmanager
    def transaction(self, *, timeout_ms: int | None = None) -> Generator[BlockingDualWork]:
        """Open a block as `WriterPool.transaction` does."""
        with self.acquire(timeout_ms=timeout_ms) as writer, writer.transaction() as work:
            yield work

    @contextlib.contextmanager
    def acquire(self, *, timeout_ms: int | None = None) -> Generator[BlockingDualWriter]:
        """Lend a writer as `WriterPool.acquire` does, to the thread that enters."""
        holder = _Thread()
        try:
            slot = self._take(holder, self._timeout_ms if timeout_ms is None else timeout_ms)
            writer = slot.writer
            if writer is None or slot.is_orphan or writer.stopped_by is not None:
                writer = self._renew(slot)
            writer.on_use = holder.seen
            yield writer
        finally:
            try:
                self._give_back(holder)
            except BaseException:  # of a signal handler: the writer would stay lent for ever
                self._give_back(holder)
                raise

    def close(self) -> None:
        """Close the writers as `WriterPool.close` does."""
        if self._is_forked:
            return
        self._is_closed = True
        with self._lock:
            self._names.wake_all()
        until = time.monotonic() + CLOSE_TIMEOUT_MS / 1000
        for slot in self._names.slots:
            self._close(slot, until)

    # --- parts

    def _take(self, holder: _Thread, timeout_ms: int) -> Slot:
        self._refuse()
        until = time.monotonic() + timeout_ms / 1000
        waits = threading.Lock()  # an Event would stay locked if a signal handler raised in it
        waits.acquire()
        ticket = Ticket(holder, lambda: waits.locked() and waits.release())
        try:
            with self._lock:
                self._names.wait(ticket)
            while True:
                self._refuse()
                with self._lock:
                    now = time.monotonic()
                    if (slot := self._names.take(ticket, now)) is not None:
                        return slot
                    if now >= until:
                        raise self._names.none_free(timeout_ms / 1000, now)
                    is_next = self._names.is_next(ticket)
                waits.acquire(timeout=min(LOOK_S, until - now) if is_next else until - now)
        finally:
            try:
                self._leave(ticket)
            except BaseException:  # of a signal handler: later tickets would wait behind this one
                self._leave(ticket)
                raise

    def _leave(self, ticket: Ticket) -> None:
        if not self._is_forked:  # a thread of the parent may hold the lock
            with self._lock:
                self._names.leave(ticket)

    def _give_back(self, holder: _Thread) -> None:
        if not self._is_forked:
            with self._lock:
                for slot in self._names.slots:
                    self._names.give_back(slot, holder)

    def _renew(self, slot: Slot) -> BlockingDualWriter:
        """Start a new writer of a name, as `WriterPool._renew` does."""
        self._close_writer(slot)
        writer = BlockingDualWriter(self._source, slot.name, self._connect, **self._options)
        try:
            writer.start()
            slot.writer, slot.is_orphan = writer, False
        except BaseException:  # of a signal handler, perhaps after the start
            with contextlib.suppress(Exception):
                writer.close()
            raise
        if self._is_closed:  # meanwhile
            self._close_writer(slot)
            raise ClientClosed(CLOSED)
        return writer

    def _close(self, slot: Slot, until: float) -> None:
        while slot.holder is not None and (left := until - time.monotonic()) > 0:
            time.sleep(min(CLOSE_LOOK_S, left))
        self._close_writer(slot)

    def _close_writer(self, slot: Slot) -> None:
        writer = slot.writer
        if writer is None:
            return
        try:
            writer.close()
        except Exception as problem:
            logger.warning("%s: closing the writer failed: %s", slot.name, problem)
        if slot.writer is writer:
            slot.writer = None  # only now, for a close after an interrupted one
