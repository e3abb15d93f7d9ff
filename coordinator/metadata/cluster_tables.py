"""The cluster's metadata as tables, with indexes for fast lookups.

Two rules keep this file simple. Every change goes through the `put_` and `remove_` methods below,
which update the indexes and record the changes. Every index is ordered, so nothing depends on the
order of a Python set.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from ...wire.features import FEATURES
from ...wire.identifiers import TopicPartition
from ...wire.security.scram_server import ScramCredential
from ..acls.acl_table import AclTable
from ..acls.bindings import AclBinding
from ..quotas.quota_table import QuotaEntity, QuotaTable
from .clock_advances import ClockAdvances
from .cluster_model import (
    NO_LEADER,
    BrokerRegistration,
    Changes,
    FeatureLevel,
    PartitionRegistration,
    Topic,
)
from .commands import GROUP_RESOURCE


class PartitionSet:
    """A set of partitions. Their order is arbitrary, and snapshots do not contain the set."""

    __slots__ = ("_indexes",)

    def __init__(self) -> None:
        self._indexes: dict[str, dict[int, None]] = {}  # only topics with partitions in the set

    def __bool__(self) -> bool:
        return bool(self._indexes)

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, indexes in self._indexes.items():
            for index in indexes:
                yield topic, index

    def add(self, key: TopicPartition) -> None:
        """Add a partition."""
        topic, index = key
        self._indexes.setdefault(topic, {})[index] = None

    def add_all(self, topic: str, indexes: Iterable[int]) -> None:
        """Add these partitions of a topic that has no partition in the set yet."""
        self._indexes[topic] = dict.fromkeys(indexes)

    def discard(self, key: TopicPartition) -> None:
        """Remove a partition if it is in the set."""
        topic, index = key
        indexes = self._indexes.get(topic)
        if indexes is not None:
            indexes.pop(index, None)
            if not indexes:
                del self._indexes[topic]

    def discard_topic(self, topic: str) -> None:
        """Remove all partitions of a topic."""
        self._indexes.pop(topic, None)


# The values without a dynamic or static configuration of the cluster.
BUILT_IN_DEFAULTS: Mapping[str, str] = {
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
    "num.partitions": "1",
    "default.replication.factor": "1",
}
WHOLE_CLUSTER = ""  # the resource name that stands for all brokers

_ABSENT = PartitionRegistration(replicas=(), isr=(), leader=NO_LEADER)
_Index = dict[int, PartitionSet]  # by node id


class ClusterTables:
    """Brokers, topics, configurations, and the replicas, leaders and ISRs of partitions.

    Readers must not change the values.
    """

    def __init__(self) -> None:
        self.cluster_id = ""
        self.revision = 0  # the number of commands that changed something
        self.next_producer_id = 0
        # The number of partitions placed so far, where the next placement starts.
        self.placement_counter = 0
        self.clock_advances = ClockAdvances()
        self.defaults: dict[str, str] = {}
        self.brokers: dict[int, BrokerRegistration] = {}
        # Needed to detect a replaced disk or a power failure when an unregistered broker registers
        # again.
        self.former_brokers: dict[int, BrokerRegistration] = {}
        self.topics: dict[str, Topic] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}  # by node id as text, or WHOLE_CLUSTER
        # By group id, also for groups that do not exist yet.
        self.group_configs: dict[str, dict[str, str]] = {}
        self.client_metrics_configs: dict[str, dict[str, str]] = {}  # by the subscription's name
        self.acls = AclTable()
        self.scram_credentials: dict[str, dict[int, ScramCredential]] = {}  # by user and mechanism
        self.quotas = QuotaTable()
        self.features: dict[str, FeatureLevel] = {}  # levels that were set at least once
        self.live_brokers: dict[int, int] = {}  # node id -> broker epoch of active brokers
        self._names_by_id: dict[bytes, str] = {}
        self._names_by_metric: dict[str, dict[str, None]] = {}  # see `colliding_topic`
        self._led: _Index = {}  # NO_LEADER has the partitions without a leader
        self._held: _Index = {}
        self._in_isr: _Index = {}
        self._in_elr: _Index = {}
        self._imbalanced = PartitionSet()
        self._reassigning = PartitionSet()
        self._changes = Changes()

    # -- questions

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the current topic with this id, or None."""
        name = self._names_by_id.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, name: str, index: int) -> PartitionRegistration | None:
        """Return the partition of this topic and index, or None if it does not exist."""
        topic = self.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def is_active(self, node_id: int) -> bool:
        """Return whether the broker is registered, unfenced, and not shutting down."""
        return node_id in self.live_brokers

    def leads_any(self, node_id: int) -> bool:
        """Return whether the node leads a partition."""
        return bool(self._led.get(node_id))

    def leaderless_partitions(self) -> Iterator[TopicPartition]:
        return iter(self._led.get(NO_LEADER, ()))

    def partitions_held_by(self, node_id: int) -> Iterator[TopicPartition]:
        """Iterate over the partitions that have a replica on the node."""
        return iter(self._held.get(node_id, ()))

    def partitions_in_sync_on(self, node_id: int) -> Iterator[TopicPartition]:
        """Iterate over the partitions that have the node in their ISR."""
        return iter(self._in_isr.get(node_id, ()))

    def partitions_eligible_on(self, node_id: int) -> Iterator[TopicPartition]:
        """Iterate over the partitions that have the node in their ELR or last known ELR."""
        return iter(self._in_elr.get(node_id, ()))

    def imbalanced_partitions(self) -> Iterator[TopicPartition]:
        """Iterate over the partitions with another leader than their preferred leader."""
        return iter(self._imbalanced)

    def reassigning_partitions(self) -> Iterator[TopicPartition]:
        """Iterate over the partitions with an ongoing reassignment."""
        return iter(self._reassigning)

    def setting(self, name: str, topic: Topic | None = None) -> str:
        """Return the effective value of a topic's setting.

        The topic's value comes first, then the cluster's dynamic value, its static value, and the
        built-in value. A value of a single broker does not count, because the setting of a topic
        concerns the whole cluster.
        """
        for configs in (
            topic.configs if topic is not None else {},
            self.broker_configs.get(WHOLE_CLUSTER, {}),
            self.defaults,
        ):
            if name in configs:
                return configs[name]
        return BUILT_IN_DEFAULTS[name]

    def min_insync_replicas(self, topic: Topic) -> int:
        """Return the configured min.insync.replicas of a topic, or 1 for an invalid text."""
        return max(1, _integer(self.setting("min.insync.replicas", topic), 1))

    def effective_min_insync_replicas(self, topic: Topic, partition: PartitionRegistration) -> int:
        """Return min.insync.replicas, or the partition's number of replicas if that is lower."""
        return min(self.min_insync_replicas(topic), len(partition.replicas))

    def allows_unclean_election(self, topic: Topic) -> bool:
        return self.setting("unclean.leader.election.enable", topic).strip().lower() == "true"

    def default_number(self, name: str) -> int:
        return _integer(self.setting(name), 1)

    def feature_level(self, name: str) -> int:
        """Return the level of a feature, or 0 for an unknown feature."""
        if (found := self.features.get(name)) is not None:
            return found.level
        return FEATURES[name].default if name in FEATURES else 0

    @property
    def features_epoch(self) -> int:
        """Return the epoch of the features for ApiVersions.

        It rises with each change of a level.
        """
        return max((found.log_index for found in self.features.values()), default=0)

    def colliding_topic(self, name: str) -> str | None:
        """Return another topic with the same metric name, in which '.' and '_' are equal."""
        alike = self._names_by_metric.get(metric_name(name), {})
        return next((other for other in alike if other != name), None)

    # -- changes: for the rules only

    def put_broker(self, broker: BrokerRegistration) -> None:
        """Add or replace a registration."""
        self.brokers[broker.node_id] = broker
        self.former_brokers.pop(broker.node_id, None)
        if broker.is_active:
            self.live_brokers[broker.node_id] = broker.broker_epoch
        else:
            self.live_brokers.pop(broker.node_id, None)
        self._changes.brokers_changed.add(broker.node_id)

    def remove_broker(self, node_id: int) -> None:
        """Remove a registration, and keep it in `former_brokers`."""
        self.former_brokers[node_id] = self.brokers.pop(node_id)
        self.live_brokers.pop(node_id, None)
        self._changes.brokers_changed.add(node_id)

    def put_topic(self, topic: Topic) -> None:
        """Add a topic with its partitions."""
        self.topics[topic.name] = topic
        self._names_by_id[topic.topic_id] = topic.name
        self._names_by_metric.setdefault(metric_name(topic.name), {})[topic.name] = None
        self._enter_all(topic)
        self._changes.topics_created.add(topic.name)

    def remove_topic(self, name: str) -> None:
        """Remove a topic, its partitions and its configs."""
        topic = self.topics.pop(name)
        del self._names_by_id[topic.topic_id]
        alike = self._names_by_metric[metric_name(name)]
        del alike[name]
        if not alike:
            del self._names_by_metric[metric_name(name)]
        for index_of in (self._led, self._held, self._in_isr, self._in_elr):
            for node, partitions in list(index_of.items()):
                partitions.discard_topic(name)
                if not partitions:
                    del index_of[node]
        self._imbalanced.discard_topic(name)
        self._reassigning.discard_topic(name)
        self._changes.topics_deleted.append((name, topic.topic_id))

    def put_partition(self, key: TopicPartition, partition: PartitionRegistration) -> None:
        """Replace a partition if its value differs, or append the next partition of its topic."""
        name, index = key
        partitions = self.topics[name].partitions
        before = None
        if index == len(partitions):
            partitions.append(partition)
        else:
            before, partitions[index] = partitions[index], partition
        if before is partition:
            return
        self._enter(key, before, partition)
        first, _ = self._changes.partitions_changed.get(key, (before, partition))
        self._changes.partitions_changed[key] = first, partition

    def put_topic_configs(self, name: str, configs: dict[str, str]) -> None:
        """Replace the configs of a topic."""
        self.topics[name].configs = configs
        self._changes.configs_changed.add(name)

    def put_broker_configs(self, name: str, configs: dict[str, str]) -> None:
        """Replace the configs of one broker, or of all brokers (WHOLE_CLUSTER)."""
        if configs:
            self.broker_configs[name] = configs
        else:
            self.broker_configs.pop(name, None)
        if name == WHOLE_CLUSTER:
            self._changes.cluster_configs_changed = True
        else:
            self._changes.broker_configs_changed.add(int(name))

    def named_configs(self, kind: int) -> dict[str, dict[str, str]]:
        """Return the configs of all groups, or of all client metrics subscriptions, by name."""
        return self.group_configs if kind == GROUP_RESOURCE else self.client_metrics_configs

    def put_named_configs(self, kind: int, name: str, configs: dict[str, str]) -> None:
        """Replace the configs of a group, or of a client metrics subscription."""
        if configs:
            self.named_configs(kind)[name] = configs
        else:
            self.named_configs(kind).pop(name, None)
        self._changes.others_changed = True

    def put_acl(self, acl: AclBinding) -> None:
        """Add an ACL unless it exists."""
        if self.acls.add(acl):
            self._changes.others_changed = True

    def remove_acl(self, acl: AclBinding) -> None:
        """Remove an ACL if it exists."""
        if self.acls.remove(acl):
            self._changes.others_changed = True

    def put_scram_credential(
        self, name: str, mechanism: int, credential: ScramCredential | None
    ) -> None:
        """Replace a user's credential for a mechanism, or remove it if `credential` is None."""
        found = {**self.scram_credentials.pop(name, {})}
        if credential is None:
            found.pop(mechanism, None)
        else:
            found[mechanism] = credential
        if found:
            self.scram_credentials[name] = found
        self._changes.others_changed = True

    def put_quota(self, entity: QuotaEntity, key: str, value: float | None) -> None:
        """Set a quota, or remove it if `value` is None."""
        if self.quotas.put(entity, key, value):
            self._changes.others_changed = True

    def put_feature_level(self, name: str, level: int, index: int) -> None:
        """Set the level of a feature if it differs."""
        if self.feature_level(name) != level:
            self.features[name] = FeatureLevel(level, index)
            self._changes.others_changed = True

    def put_defaults(self, defaults: dict[str, str]) -> None:
        """Replace the static defaults of the cluster."""
        self.defaults = defaults
        self._changes.cluster_configs_changed = True

    def put_cluster_id(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self._changes.others_changed = True

    def put_clock_advances(self, advances: ClockAdvances) -> None:
        self.clock_advances = advances
        self._changes.others_changed = True

    def take_producer_ids(self, count: int) -> int:
        """Reserve `count` unused producer ids. Return the first."""
        first = self.next_producer_id
        self.next_producer_id += count
        self._changes.others_changed = True
        return first

    def advance_placement(self, count: int) -> None:
        """Add `count` partitions to the counter from which the next placement starts."""
        self.placement_counter += count
        self._changes.others_changed = True

    def take_changes(self) -> Changes:
        """Return the changes since the last call of this method."""
        changes, self._changes = self._changes, Changes()
        return changes

    def _enter_all(self, topic: Topic) -> None:
        """Add each partition of a new topic to the indexes."""
        held, in_isr, led = (defaultdict[int, list[int]](list) for _ in range(3))
        for index, partition in enumerate(topic.partitions):
            for node in partition.replicas:
                held[node].append(index)
            for node in partition.isr:
                in_isr[node].append(index)
            led[partition.leader].append(index)
        for index_of, entered in ((self._held, held), (self._in_isr, in_isr), (self._led, led)):
            for node, indexes in entered.items():
                index_of.setdefault(node, PartitionSet()).add_all(topic.name, indexes)
        for index, partition in enumerate(topic.partitions):
            if (
                partition.elr
                or partition.last_known_elr
                or partition.is_imbalanced
                or partition.is_reassigning
            ):
                self._enter((topic.name, index), None, partition)

    def _enter(
        self, key: TopicPartition, old: PartitionRegistration | None, new: PartitionRegistration
    ) -> None:
        """Update the indexes from the old value of a partition to the new one."""
        was, now = old or _ABSENT, new
        if was.replicas != now.replicas:
            _move(self._held, key, was.replicas, now.replicas)
        if was.isr != now.isr:
            _move(self._in_isr, key, was.isr, now.isr)
        if was.elr != now.elr or was.last_known_elr != now.last_known_elr:
            before, after = (*was.elr, *was.last_known_elr), (*now.elr, *now.last_known_elr)
            _move(self._in_elr, key, before, after)
        if old is None or old.leader != new.leader:
            _move(self._led, key, (old.leader,) if old else (), (new.leader,))
        _mark(self._imbalanced, key, new.is_imbalanced)
        _mark(self._reassigning, key, new.is_reassigning)


def metric_name(topic: str) -> str:
    """Return the name of a topic in Kafka's metrics."""
    return topic.replace(".", "_")


def _move(
    index: _Index, key: TopicPartition, before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    for node in before:
        if node not in after:
            of_node = index[node]
            of_node.discard(key)
            if not of_node:
                del index[node]
    for node in after:
        if node not in before:
            index.setdefault(node, PartitionSet()).add(key)


def _mark(marked: PartitionSet, key: TopicPartition, is_marked: bool) -> None:
    if is_marked:
        marked.add(key)
    else:
        marked.discard(key)


def _integer(text: str, otherwise: int) -> int:
    try:
        return int(text)
    except ValueError:
        return otherwise
