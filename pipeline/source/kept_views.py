"""Connections and metadata that a process of Spark's keeps from one range to the next.

A range of a few records took two connections, their agreement on versions (with TLS and SASL their
handshakes) and two looks at the metadata. A Python worker reads many: so a view of the cluster is
lent to one reader at a time, and taken back from those that have come to their end; what was left
in the middle, or has failed, is closed. Views are told apart by all that makes a connection: who
may not see a topic gets no connection of somebody who may.

Bounds: KEPT_MAX views wait at most, none longer than IDLE_S. Spark forks its workers: a child never
touches what its parent has open (closing it there would end the parent's TLS, or take its sockets
out of an epoll that both share), it forgets it and begins anew.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import Callable
from typing import Any

from ...client.cluster_view import ClusterView
from ...client.loop_thread import LoopThread
from ...client.security.config import security_config
from ...client.settings import Settings
from ...client.view_source import open_view

KEPT_MAX = 4
IDLE_S = 60.0  # Spark ends a worker that has had nothing to do for a minute
Key = tuple[Any, ...]


def key_of(settings: Settings) -> Key:
    """Equal for settings whose readers may use the same connections."""
    return (
        tuple(settings.bootstrap_servers),
        settings.client_id,
        settings.request_timeout_ms,
        security_config(settings),
    )


class KeptViews:
    """The views that wait, oldest first, and the thread whose loop they all belong to."""

    def __init__(
        self,
        make: Callable[[Settings], ClusterView] = lambda settings: open_view(None, settings)[0],
        *,
        most: int = KEPT_MAX,
        idle_s: float = IDLE_S,
    ) -> None:
        self._make, self._most, self._idle_s = make, most, idle_s
        self._lock = threading.Lock()
        self._thread: LoopThread | None = None
        self._waiting: list[tuple[Key, ClusterView, asyncio.TimerHandle]] = []
        self._closing: asyncio.Future[None] | None = None

    @property
    def thread(self) -> LoopThread:
        """Made when it is first asked for."""
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("oncelog-ranges")
            return self._thread

    async def take(self, settings: Settings) -> ClusterView:
        """A view for one reader: one that waits, else a new one. On the loop of `thread`."""
        key = key_of(settings)
        for place in reversed(range(len(self._waiting))):
            if self._waiting[place][0] == key:
                _, view, expiry = self._waiting.pop(place)
                expiry.cancel()
                return view
        return self._make(settings)

    async def give_back(self, settings: Settings, view: ClusterView, *, is_sound: bool) -> None:
        """is_sound: nothing is on its way there, and it has not failed. On the loop of `thread`."""
        if not is_sound:
            await view.close()
            return
        expiry = asyncio.get_running_loop().call_later(self._idle_s, self._expire, view)
        self._waiting.append((key_of(settings), view, expiry))
        while len(self._waiting) > self._most:
            _, oldest, expiry = self._waiting.pop(0)
            expiry.cancel()
            await oldest.close()

    def close(self) -> None:
        """Close what waits, and end the thread; it may be used again."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.run(self._close_waiting())
            thread.close()

    async def _close_waiting(self) -> None:
        while self._waiting:
            _, view, expiry = self._waiting.pop()
            expiry.cancel()
            await view.close()

    def _expire(self, view: ClusterView) -> None:
        self._waiting = [each for each in self._waiting if each[1] is not view]
        self._closing = asyncio.ensure_future(view.close())


_kept = KeptViews()
_parents: list[KeptViews] = []  # never let go of: a finalizer would close what is not ours


def kept_views() -> KeptViews:
    """Those of this process."""
    return _kept


def _begin_anew() -> None:
    global _kept  # noqa: PLW0603
    _parents.append(_kept)
    _kept = KeptViews()


@atexit.register
def _close() -> None:
    kept_views().close()


os.register_at_fork(after_in_child=_begin_anew)
