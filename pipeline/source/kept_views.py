"""Connections and metadata that a Spark process keeps from one range to the next.

Without kept views, a range of a few records would need two connections, their handshakes and two
metadata requests. A Python worker reads many ranges, so it lends a view of the cluster to one
reader at a time. A reader that has come to its end returns the view. The view of a reader that
stopped early or failed is closed. The key of a view includes all settings of a connection, so a
reader without a permission never gets the connection of another user.

At most KEPT_MAX views are kept, and none longer than IDLE_S. Spark forks its workers. A child never
uses or closes its parent's views, but forgets them and starts over. A close in the child would end
the parent's TLS session, or remove its sockets from an epoll that both share.
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
IDLE_S = 60.0  # Spark ends a worker that was idle for a minute
Key = tuple[Any, ...]


def key_of(settings: Settings) -> Key:
    """Return the key of a view's connections. Settings with equal keys may share them."""
    return (
        tuple(settings.bootstrap_servers),
        settings.client_id,
        settings.request_timeout_ms,
        security_config(settings),
    )


class KeptViews:
    """The views that wait for a reader, oldest first, and the thread of their event loop."""

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
        """Return the thread of the views' event loop. The first call starts it."""
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("oncelog-ranges")
            return self._thread

    async def take(self, settings: Settings) -> ClusterView:
        """Return a view for one reader, which is a waiting view with equal settings or a new one.

        Must be called on the event loop of `thread`.
        """
        key = key_of(settings)
        for place in reversed(range(len(self._waiting))):
            if self._waiting[place][0] == key:
                _, view, expiry = self._waiting.pop(place)
                expiry.cancel()
                return view
        return self._make(settings)

    async def give_back(self, settings: Settings, view: ClusterView, *, is_sound: bool) -> None:
        """Keep a view for the next reader, or close it if not `is_sound` (its reader failed or
        stopped early).

        Must be called on the event loop of `thread`.
        """
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
        """Close the waiting views and the thread. The next use of `thread` starts another one."""
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
_parents: list[KeptViews] = []  # kept, or a finalizer would close the parent's connections


def kept_views() -> KeptViews:
    """Return the KeptViews that all readers of this process share."""
    return _kept


def _begin_anew() -> None:
    global _kept  # noqa: PLW0603
    _parents.append(_kept)
    _kept = KeptViews()


@atexit.register
def _close() -> None:
    kept_views().close()


os.register_at_fork(after_in_child=_begin_anew)
