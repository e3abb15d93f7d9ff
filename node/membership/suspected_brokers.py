"""Brokers whose link has just closed: dead or not, that is decided within moments.

When a broker is killed its clients lose their connections at once and ask the others who leads
now. The fence takes some 50 ms more; whoever is answered before it hears of the dead leader
again, and librdkafka then asks no more for a second. So such a question waits: until the broker
is fenced, or its link is back, or HOLD_MS are over (a link that stays down while its broker lives
holds nobody up a second time).

A client hears of a death as early as we do, and asks a moment before our link is found closed
(0.2 to 1.1 ms were seen). So where there are links, every such question waits for NEWS_MS, but on
a new connection: who has just come cannot have lost another, and librdkafka's first transaction
begins 500 ms later when its first answers come a millisecond late.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from ...coordinator.metadata.cluster_state import ClusterState

HOLD_MS = 400  # link_state.GRACE_MS and the decision of the controller, twice over
NEWS_MS = 3
NEW_CONNECTION_MS = 250


class Links(Protocol):
    def on_link_change(self, callback: Callable[[int, bool], None]) -> None:
        """Called with (peer, is open)."""
        ...


class SuspectedBrokers:
    """Who waits until it is decided. `age_ms` is that of the connection that asks."""

    def __init__(self) -> None:
        self._open_links: set[int] = set()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._settled: asyncio.Future[None] | None = None

    def watch(self, links: Links, state: ClusterState) -> None:
        """Hear of broken links, and of the decisions."""

        def link_changed(node_id: int, is_open: bool) -> None:
            if is_open:
                self._open_links.add(node_id)
                if node_id in self._timers:
                    self._over(node_id)
                return
            if node_id not in self._open_links:
                return  # another attempt to connect has failed
            self._open_links.remove(node_id)
            if not _is_gone(state, node_id):
                loop = asyncio.get_running_loop()
                self._timers[node_id] = loop.call_later(HOLD_MS / 1000, self._over, node_id)

        def metadata_changed(_: object) -> None:
            for node_id in [n for n in self._timers if _is_gone(state, n)]:
                self._over(node_id)

        links.on_link_change(link_changed)
        state.on_change(metadata_changed)

    def must_wait(self, age_ms: int) -> bool:
        """Whether somebody's fate is being decided, or may have to be in a moment."""
        return bool(self._timers) or self._may_have_news(age_ms)

    async def settled(self, age_ms: int) -> None:
        """Wait until nobody is in doubt, HOLD_MS at most: others may follow without end."""
        if not self._timers and self._may_have_news(age_ms):
            await asyncio.sleep(NEWS_MS / 1000)
        with suppress(TimeoutError):
            async with asyncio.timeout(HOLD_MS / 1000):
                while self._timers:
                    if self._settled is None:
                        self._settled = asyncio.get_running_loop().create_future()
                    await asyncio.shield(self._settled)

    def _may_have_news(self, age_ms: int) -> bool:
        return bool(self._open_links) and age_ms >= NEW_CONNECTION_MS

    def _over(self, node_id: int) -> None:
        self._timers.pop(node_id).cancel()
        if not self._timers and self._settled is not None:
            self._settled.set_result(None)
            self._settled = None


def _is_gone(state: ClusterState, node_id: int) -> bool:
    """Fenced, and that in full: what it led may be given to others in many steps."""
    broker = state.brokers.get(node_id)
    return broker is None or (broker.is_fenced and not state.leads_any(node_id))
