"""The throttle of replication (KIP-73) on one broker, for its leaders or for its followers.

The rate is a dynamic configuration of the broker. The throttled replicas are listed in the configs
of their topics. As in Kafka, bytes of all listed replicas are counted, but only replicas that are
not in sync are held. A throttle may delay a reassignment, but never a produce. So with a rate below
the producers' rate no replica catches up.
"""

import re
from collections.abc import Callable
from typing import Literal

from ...coordinator.metadata.cluster_model import Changes
from ...coordinator.metadata.cluster_state import ClusterState
from ...coordinator.quotas.rate import QuotaRate
from ...replication.replica_server import SendingThrottle
from ...wire.identifiers import TopicIdPartition
from ..config.broker_config import BrokerConfig
from ..config.dynamic import value_in_force
from ..config.quota_keys import UNLIMITED

PAUSE_MS_MAX = 1_000  # after this time the rate is read again, since it may have changed
EVERY_PARTITION = "*"
LISTED = re.compile(r"([0-9]{1,10}):([0-9]{1,10})")  # a partition and a broker


class ReplicationThrottle(SendingThrottle):
    """The throttle of one broker's leaders or followers. Its methods are called only while `is_on`.

    held: the partitions for which the followers of a leader wait.
    """

    def __init__(
        self,
        state: ClusterState,
        config: BrokerConfig,
        side: Literal["leader", "follower"],
        now_ms: Callable[[], int],
    ) -> None:
        self._state, self._config, self._now_ms = state, config, now_ms
        self._rate_key = f"{side}.replication.throttled.rate"
        self._replicas_key = f"{side}.replication.throttled.replicas"
        # The listed partitions by topic; None for all.
        self._listed: dict[str, frozenset[int] | None] = {}
        self.held: dict[TopicIdPartition, None] = {}
        self._set_limit()
        state.on_change(self._look)

    def holds(self, key: TopicIdPartition, replica: int) -> bool:
        """Return whether a replica must wait now because of the rate, and record it in `held`."""
        is_held = self.pause_ms() > 0 and self.may_hold(key, replica)
        if is_held:
            self.held[key] = None
        return is_held

    def released(self) -> list[TopicIdPartition]:
        """Clear `held`, and return the partitions that were held."""
        keys = list(self.held)
        self.held.clear()
        return keys

    def may_hold(self, key: TopicIdPartition, replica: int) -> bool:
        """Return whether the partition is throttled here and the replica is not in sync."""
        topic_id, index = key
        topic = self._state.topic_by_id(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            return False
        return replica not in topic.partitions[index].isr and self._lists(topic.name, index)

    def note(self, key: TopicIdPartition, size_bytes: int) -> None:
        """Count bytes of a partition that is throttled on this broker."""
        topic = self._state.topic_by_id(key[0])
        if topic is not None and self._lists(topic.name, key[1]):
            self._count(size_bytes)

    def pause_ms(self) -> int:
        """Return how long throttled replicas must wait until the rate is probably within its limit.

        The caller must call this again after that time. The result is cached until more bytes are
        counted, since the rate only falls meanwhile.
        """
        if not self._held_until_ms:
            return 0
        if (left_ms := self._held_until_ms - self._now_ms()) > 0:
            return left_ms
        self._count(0)
        return max(0, self._held_until_ms - self._now_ms())

    def _count(self, size_bytes: int) -> None:
        now_ms = self._now_ms()
        pause_ms = self._rate.record(size_bytes, self._limit, now_ms)
        self._held_until_ms = now_ms + min(PAUSE_MS_MAX, pause_ms) if pause_ms else 0

    def _lists(self, name: str, index: int) -> bool:
        if name not in self._listed:
            topic = self._state.topics.get(name)
            text = "" if topic is None else topic.configs.get(self._replicas_key, "")
            self._listed[name] = self._parsed(text)
        listed = self._listed[name]
        return listed is None or index in listed

    def _parsed(self, text: str) -> frozenset[int] | None:
        """Return the partitions that a list of throttled replicas names here, or None for all."""
        if text.strip() == EVERY_PARTITION:
            return None
        pairs = (LISTED.fullmatch(each.strip()) for each in text.split(","))
        own = self._config.node_id
        return frozenset(int(pair[1]) for pair in pairs if pair is not None and int(pair[2]) == own)

    def _look(self, changes: Changes) -> None:
        if changes.configs_changed or changes.topics_created or changes.topics_deleted:
            self._listed.clear()
        own = self._config.node_id in changes.broker_configs_changed
        if own or changes.cluster_configs_changed:
            self._set_limit()

    def _set_limit(self) -> None:
        limit = value_in_force(self._config, self._state.broker_configs, self._rate_key)
        self.is_on = limit < UNLIMITED
        self._limit = max(1, limit)
        self._rate = QuotaRate(
            samples=self._config.replication_quota_window_num,
            window_ms=self._config.replication_quota_window_size_seconds * 1_000,
        )
        self._held_until_ms = 0
