"""Recently fenced brokers, which Metadata lists a little longer.

librdkafka closes its handle of a broker that is missing in the list. If the same answer moves that
broker's partitions to another broker, they have no leader for librdkafka until its one-second timer
fires. Apache Kafka lists a dead broker for the 9 s of its session. Here a dead broker is fenced
after about 50 ms, before its clients have moved. So it stays listed for LISTED_MS, while the same
answer names the new leaders of its partitions.
"""

import asyncio

from ...coordinator.metadata.cluster_state import ClusterState

LISTED_MS = 15_000


class RecentlyFencedBrokers:
    """The ids of the brokers that were fenced within LISTED_MS, and are still listed.

    `revision` counts the ends of such listings.
    """

    def __init__(self) -> None:
        self.revision = 0
        self._live: frozenset[int] = frozenset()
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def __contains__(self, node_id: object) -> bool:
        """Return whether a broker is listed even if it is fenced."""
        return node_id in self._timers

    def watch(self, state: ClusterState) -> None:
        self._live = frozenset(state.live_brokers)

        def metadata_changed(_: object) -> None:
            before, self._live = self._live, frozenset(state.live_brokers)
            for node_id in before - self._live:
                self._over(node_id)
                loop = asyncio.get_running_loop()
                self._timers[node_id] = loop.call_later(LISTED_MS / 1000, self._over, node_id)

        state.on_change(metadata_changed)

    def _over(self, node_id: int) -> None:
        timer = self._timers.pop(node_id, None)
        if timer is not None:
            timer.cancel()
            self.revision += 1
