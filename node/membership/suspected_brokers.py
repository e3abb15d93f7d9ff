"""Brokers with a link that has just closed, which the controller may be about to fence.

When a broker is killed its clients lose their connections immediately, and ask other brokers for
the new leader. The controller fences the broker about 50 ms later. An answer before that would name
the dead leader again, and librdkafka would not ask again for a second. So such a request waits
until the broker is fenced, its link is open again, or HOLD_MS have passed. A link that stays closed
while its broker lives delays requests only once.

A client notices a dead broker as early as other brokers do, so its request may arrive before the
link is closed (0.2 to 1.1 ms were measured). So every such request waits for NEWS_MS, if there are
links. Only a request on a new connection does not wait so. Its client cannot have lost another
connection to this cluster, and librdkafka's first transaction begins 500 ms later if its first
answers are a millisecond late.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from ...coordinator.metadata.cluster_state import ClusterState

HOLD_MS = 400  # twice the sum of link_state.GRACE_MS and the controller's decision
NEWS_MS = 3
NEW_CONNECTION_MS = 250


class Links(Protocol):
    def on_link_change(self, callback: Callable[[int, bool], None]) -> None:
        """Register a callback with the arguments (peer, is_open)."""
        ...


class SuspectedBrokers:
    """The suspected brokers, whose links have just closed, and the requests that wait meanwhile.

    `age_ms` is the age of the connection of a request.
    """

    def __init__(self) -> None:
        self._open_links: set[int] = set()
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._settled: asyncio.Future[None] | None = None

    def watch(self, links: Links, state: ClusterState) -> None:
        """Subscribe to changes of links and of the metadata."""

        def link_changed(node_id: int, is_open: bool) -> None:
            if is_open:
                self._open_links.add(node_id)
                if node_id in self._timers:
                    self._over(node_id)
                return
            if node_id not in self._open_links:
                return  # a failed attempt to connect
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
        """Return whether a request must wait, as a broker is suspected or may just have died."""
        return bool(self._timers) or self._may_have_news(age_ms)

    async def settled(self, age_ms: int) -> None:
        """Wait until no broker is suspected, or until HOLD_MS have passed."""
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
    """Return whether a broker is fenced and leads no partition any more."""
    broker = state.brokers.get(node_id)
    return broker is None or (broker.is_fenced and not state.leads_any(node_id))
