"""From the replicated metadata to the part each local replica plays.

The metadata is applied on every node in the same order, so this file needs no messages: it
compares what the tables say with what is hosted, and moves the difference. A replica's log is
opened here, made here when it is new, and set aside here when its topic is gone; a topic that
came back under the same name has another topic id and gets an empty log.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from ..coordinator.cluster_model import NO_LEADER, Changes, Partition, Topic
from ..coordinator.cluster_state import ClusterState
from ..storage.log_config import LogConfig
from ..storage.partition_log import PartitionLog
from ..wire.errors import ErrorCode, KafkaStorageError
from .hosted_partition import HostedPartition
from .replica_manager import ReplicaManager

logger = logging.getLogger(__name__)


class LogOpener(Protocol):
    """Where logs come from: `logs.Logs`."""

    def config_of(self, topic: Topic) -> LogConfig: ...  # noqa: D102
    def open_partition(self, topic: Topic, index: int) -> PartitionLog: ...  # noqa: D102
    def delete_partition(self, topic: str, index: int) -> None: ...  # noqa: D102
    def drop_unused(self) -> None: ...  # noqa: D102


class Followers(Protocol):
    """Who fetches for the replicas that follow: `replica_fetcher.ReplicaFetchers`."""

    def follow(self, partition: HostedPartition) -> None: ...  # noqa: D102
    def stop_following(self, partition: HostedPartition) -> None: ...  # noqa: D102


class PartitionRoles:
    """Applies the metadata's changes to the replicas of one broker."""

    def __init__(
        self,
        *,
        node_id: int,
        state: ClusterState,
        replicas: ReplicaManager,
        logs: LogOpener,
        followers: Followers,
        lag_time_max_ms: int,
    ) -> None:
        self.broker_epoch = -1
        self.log_unusable: Callable[[bytes, int], None] = lambda topic_id, index: None
        self._node_id = node_id
        self._state = state
        self._replicas = replicas
        self._logs = logs
        self._followers = followers
        self._lag_time_max_ms = lag_time_max_ms

    # -- changes

    def start(self, broker_epoch: int) -> None:
        """Take up every replica the metadata places here, once, when this broker is registered."""
        self.broker_epoch = broker_epoch
        self._replicas.peers.live = self._state.live_brokers
        for name, index in list(self._state.partitions_held_by(self._node_id)):
            self._apply(self._state.topics[name], index)
        self._logs.drop_unused()

    def apply(self, changes: Changes) -> None:
        """Follow the metadata by one step. Nothing happens before `start`."""
        if self.broker_epoch < 0:
            return
        if changes.brokers_changed:
            self._replicas.peers.live = self._state.live_brokers
        for name, topic_id in changes.topics_deleted:
            self._forget(name, topic_id)
        for name in changes.topics_created:
            topic = self._state.topics.get(name)
            if topic is not None:
                for index in range(len(topic.partitions)):
                    self._apply(topic, index)
        for name, index in changes.partitions_changed:
            topic = self._state.topics.get(name)
            if topic is not None and index < len(topic.partitions):
                self._apply(topic, index)
        if changes.cluster_configs_changed:
            self._reconfigure(hosted.topic for hosted in self._replicas)
        elif changes.configs_changed:
            self._reconfigure(changes.configs_changed)
        if changes.brokers_changed:
            for hosted in self._replicas:
                if hosted.leader is not None:
                    self._replicas.isr_may_change(hosted)

    # -- one partition

    def _apply(self, topic: Topic, index: int) -> None:
        record = topic.partitions[index]
        hosted = self._replicas.get(topic.name, index)
        if hosted is not None and hosted.topic_id != topic.topic_id:
            self._drop(hosted)
            hosted = None
        if self._node_id not in record.replicas:
            if hosted is not None:
                self._drop(hosted)
            return
        if hosted is None:
            hosted = self._open(topic, index)
            if hosted is None:
                return
        if hosted.log.is_failed:
            return
        try:
            self._play(hosted, topic, record)
        except KafkaStorageError as error:
            logger.error("%r: %s", hosted, error)
            self._replicas.fail(hosted)

    def _play(self, hosted: HostedPartition, topic: Topic, record: Partition) -> None:
        now_ms = self._replicas.clock.monotonic_ms()
        min_insync_replicas = self._state.min_insync_replicas(topic)
        if record.leader == self._node_id:
            if hosted.leader is not None and hosted.leader_epoch == record.leader_epoch:
                hosted.partition_epoch = record.partition_epoch
                hosted.replicas = record.replicas
                if hosted.leader.metadata_applied(
                    isr=record.isr,
                    partition_epoch=record.partition_epoch,
                    now_ms=now_ms,
                    replicas=record.replicas,
                    min_insync_replicas=min_insync_replicas,
                ):
                    self._replicas.high_watermark_advanced(hosted)
                self._replicas.isr_may_change(hosted)
                return
            self._followers.stop_following(hosted)
            hosted.lead(
                record,
                node_id=self._node_id,
                broker_epoch=self.broker_epoch,
                min_insync_replicas=min_insync_replicas,
                peers=self._replicas.peers,
                now_ms=now_ms,
                lag_time_max_ms=self._lag_time_max_ms,
            )
            assert hosted.leader is not None
            if hosted.leader.high_watermark > hosted.log.high_watermark:
                self._replicas.high_watermark_advanced(hosted)
            self._replicas.part_changed(hosted)
            return
        if hosted.leader_epoch == record.leader_epoch and hosted.leader_id == record.leader:
            hosted.partition_epoch = record.partition_epoch
            hosted.replicas = record.replicas
            return
        led_before = hosted.leader is not None
        self._followers.stop_following(hosted)
        if record.leader == NO_LEADER:
            hosted.wait_for_a_leader(record)
        else:
            hosted.follow(record)
            self._followers.follow(hosted)
        self._replicas.part_changed(hosted)
        if led_before:
            self._replicas.release_waiters(hosted, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _open(self, topic: Topic, index: int) -> HostedPartition | None:
        try:
            log = self._logs.open_partition(topic, index)
        except KafkaStorageError as error:
            logger.error("%s-%d cannot be opened: %s", topic.name, index, error)
            self.log_unusable(topic.topic_id, index)
            return None
        hosted = HostedPartition(topic.name, index, topic.topic_id, log)
        self._replicas.add(hosted)
        return hosted

    def _forget(self, name: str, topic_id: bytes) -> None:
        for hosted in self._replicas:
            if hosted.topic == name and hosted.topic_id == topic_id:
                self._drop(hosted)

    def _drop(self, hosted: HostedPartition) -> None:
        self._followers.stop_following(hosted)
        hosted.leader = hosted.follower = None
        self._replicas.remove(hosted)
        self._logs.delete_partition(hosted.topic, hosted.index)

    # -- configuration

    def _reconfigure(self, names: Iterable[str]) -> None:
        for name in set(names):
            topic = self._state.topics.get(name)
            if topic is None:
                continue
            config = self._logs.config_of(topic)
            for index, record in enumerate(topic.partitions):
                hosted = self._replicas.get(name, index)
                if hosted is not None:
                    hosted.log.config = config
                    if hosted.leader is not None:
                        self._play(hosted, topic, record)
