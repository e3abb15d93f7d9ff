"""A pool of dual writers for many tasks at once.

    async with WriterPool("127.0.0.1:9092", "billing", 8, connect) as pool:
        async with pool.transaction() as work:
            await work.execute("UPDATE ...")
            await work.send("transfers", b"...")

The writers are billing-0 to billing-7, each with its own connection and producer. A task waits for
a free writer for at most `acquire_timeout_ms`. Only one process has the names of a pool at a time,
as with a single writer. The pool that starts last takes the names over.
"""

import asyncio
import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Self

from ...wire.errors import InvalidConfig
from ..dual_write.writer import DualWork, DualWriter
from ..failures import FORKED, ClientClosed, tell_of_forks
from ..view_source import Source
from . import pool_names
from .pool_names import PoolNames, Slot, Ticket

logger = logging.getLogger(__name__)
ACQUIRE_TIMEOUT_MS, CLOSE_TIMEOUT_MS = 30_000, 5_000
LOOK_S = 0.25  # to find holders that have ended without notice
CLOSE_LOOK_S = 0.01
STARTS_AT_ONCE = 16
CLOSED = "the pool is closed"
ONE_LOCK = (
    "sqlite has one lock for all, and the event loop waits for it: the second writer of a pool "
    "would stop the first one, which has the lock. Give the pool one writer, or use "
    "BlockingWriterPool with threads, or another database"
)


class _Task:
    """The holder of a writer: the task that entered, and the task that used the writer last."""

    def __init__(self) -> None:
        self.entered = asyncio.current_task()
        self.seen()

    def seen(self) -> None:
        self.task, self.seen_s = asyncio.current_task(), time.monotonic()

    @property
    def is_dead(self) -> bool:
        is_over = all(each is not None and each.done() for each in (self.entered, self.task))
        return is_over and time.monotonic() - self.seen_s >= pool_names.SILENT_S

    def __str__(self) -> str:
        is_other = self.task is not None and self.task.done() and self.entered is not None
        task = self.entered if is_other else self.task
        return "a callback" if task is None else f"task {task.get_name()!r}"


class PoolOfWriters:
    """The base class of the pools for tasks and for threads."""

    def __init__(
        self,
        source: Source,
        prefix: str,
        size: int,
        connect: Callable[[], Any],
        /,
        *,
        acquire_timeout_ms: int = ACQUIRE_TIMEOUT_MS,
        **options: Any,
    ) -> None:
        """Create a pool. `connect` opens a connection for each writer.

        options: the options of `DualWriter`.
        """
        self._names = PoolNames(prefix, size)
        self._source, self._connect, self._options = source, connect, options
        self._timeout_ms = acquire_timeout_ms
        self._lock = threading.RLock()  # for threads and signal handlers; tasks take turns anyway
        self._is_closed = self._is_forked = False
        tell_of_forks(self)

    def forked(self) -> None:
        """Lend no more writers in a forked child, because the connections are the parent's."""
        self._is_forked = True

    def _refuse(self) -> None:
        if self._is_forked:
            raise ClientClosed(FORKED)
        if self._is_closed:
            raise ClientClosed(CLOSED)


class WriterPool(PoolOfWriters):
    """A pool of writers for any number of tasks."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start all writers, each of which ends the transactions of an older writer of its name."""
        self._refuse()
        first, *others = self._names.slots
        starts = list[asyncio.Task[None]]()
        try:
            await self._renew(first)
            if others and isinstance(first.writer.connection, sqlite3.Connection):
                raise InvalidConfig(ONE_LOCK)
            at_once = asyncio.Semaphore(STARTS_AT_ONCE)
            starts += [asyncio.create_task(self._renew_in_turn(s, at_once)) for s in others]
            await asyncio.gather(*starts)
        except BaseException:
            for each in starts:
                each.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await self.close()
            raise

    @contextlib.asynccontextmanager
    async def transaction(self, *, timeout_ms: int | None = None) -> AsyncGenerator[DualWork]:
        """Open a block with a free writer, as `DualWriter.transaction` does."""
        async with self.acquire(timeout_ms=timeout_ms) as writer, writer.transaction() as work:
            yield work

    @contextlib.asynccontextmanager
    async def acquire(self, *, timeout_ms: int | None = None) -> AsyncGenerator[DualWriter]:
        """Lend a writer to the task that enters, until the task leaves.

        Raises NoWriterFree, which names the holders, after timeout_ms. Raises ClientClosed if the
        pool is closed, WriterSuperseded if another process has the names. If a holder has ended
        without returning its writer, the writer is started anew for the next task. A holder has
        ended when the entering task and the task of the last use are both over, and SILENT_S have
        passed since that use.
        """
        holder = _Task()
        slot = await self._take(holder, self._timeout_ms if timeout_ms is None else timeout_ms)
        try:
            writer = slot.writer
            if writer is None or slot.is_orphan or writer.stopped_by is not None:
                writer = await self._renew(slot)
            writer.on_use = holder.seen
            yield writer
        finally:
            self._names.give_back(slot, holder)

    async def close(self) -> None:
        """Close all writers.

        A writer in use is closed when it is returned, or after CLOSE_TIMEOUT_MS.
        """
        if self._is_forked:
            return
        self._is_closed = True
        self._names.wake_all()
        until = time.monotonic() + CLOSE_TIMEOUT_MS / 1000
        await asyncio.gather(*(self._close(slot, until) for slot in self._names.slots))

    # --- parts

    async def _take(self, holder: _Task, timeout_ms: int) -> Slot:
        self._refuse()
        began, change = time.monotonic(), asyncio.Event()
        until = began + timeout_ms / 1000
        ticket = Ticket(holder, change.set)
        self._names.wait(ticket)
        try:
            while (slot := self._names.take(ticket, now := time.monotonic())) is None:
                if now >= until:
                    raise self._names.none_free(timeout_ms / 1000, now)
                is_next = self._names.is_next(ticket)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(
                        min(LOOK_S, until - now) if is_next else until - now
                    ):
                        await change.wait()
                change.clear()
                self._refuse()
            return slot
        finally:
            self._names.leave(ticket)

    async def _renew(self, slot: Slot) -> DualWriter:
        """Start a new writer of this name, which fences the old one and ends its transactions."""
        old, slot.writer = slot.writer, None
        if old is not None:
            try:
                await old.close()
            except Exception as problem:
                logger.warning("%s: closing the writer failed: %s", slot.name, problem)
        writer = DualWriter(self._source, slot.name, self._connect, **self._options)
        await writer.start()
        if self._is_closed:  # meanwhile
            await writer.close()
            raise ClientClosed(CLOSED)
        slot.writer, slot.is_orphan = writer, False
        return writer

    async def _renew_in_turn(self, slot: Slot, at_once: asyncio.Semaphore) -> None:
        async with at_once:
            await self._renew(slot)

    async def _close(self, slot: Slot, until: float) -> None:
        while slot.holder is not None and (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(CLOSE_LOOK_S, left))
        writer, slot.writer = slot.writer, None
        if writer is not None:
            try:
                await writer.close()
            except Exception as problem:
                logger.warning("%s: closing the writer failed: %s", slot.name, problem)
