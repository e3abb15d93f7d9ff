"""The cluster's metadata as the bytes of a snapshot, encoded and decoded in slices.

Replicas have equal bytes, so snapshots can be compared by a hash. Small tables are sorted, and
topics are in the order of their creation, which a snapshot preserves. The bytes are equal only
within a release, because the results of recent operations have error messages, which may change.
The order of the fields never changes, and a new layout gets a new version.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

import msgpack

from ...runtime.sliced_work import Steps
from ...wire.security.scram_server import ScramCredential
from ..acls.bindings import AclBinding
from ..quotas.quota_table import QuotaEntity
from ..snapshot_reader import SnapshotReader
from .clock_advances import ClockAdvances
from .cluster_model import BrokerRegistration, Changes, FeatureLevel, PartitionRegistration, Topic
from .cluster_tables import ClusterTables

VERSION = 1
WITH_CLOCK_VERSION = 2  # adds one part, which is written only after an advance of the clock
WITH_GROUPS_VERSION = 3  # adds one part, which is written only if groups have configs
WITH_ACLS_VERSION = 4  # adds one part, which is written only if there are ACLs
WITH_USERS_VERSION = 5  # adds one part, which is written only if users have credentials
WITH_QUOTAS_VERSION = 6  # adds one part, which is written only if there are quotas
WITH_FEATURES_VERSION = 7  # adds one part, which is written only if levels of features were set
# Adds one part, which is written only if there are metrics subscriptions.
WITH_CLIENT_METRICS_VERSION = 8
WITH_FORMER_BROKERS_VERSION = 9  # adds one part, which is written only if brokers were unregistered
WITH_ADDRESS_QUOTAS_VERSION = 10  # adds one part, which is written only if addresses have quotas
VERSION_MAX = WITH_ADDRESS_QUOTAS_VERSION
SLICE_PARTITIONS = 64  # in one step, which takes less than half a millisecond
_List = tuple[Callable[[Any], Any], Sequence[object]]  # the encoder of an entry, and the entries
_TopicCut = tuple[str, bytes, dict[str, str], tuple[PartitionRegistration, ...]]
_broker_fields = attrgetter(*(field.name for field in fields(BrokerRegistration)))
_partition_fields = attrgetter(*(field.name for field in fields(PartitionRegistration)))
_acl_fields = attrgetter(*(field.name for field in fields(AclBinding)))


class UnreadableSnapshot(Exception):
    """The error of bytes that are a snapshot of another version, or no snapshot."""


def encode_tables(tables: ClusterTables, outcomes: Mapping[bytes, bytes]) -> Steps[list[bytes]]:
    """Encode the tables as they are now. Return the snapshot as a list of byte strings.

    outcomes: the encoded results of recent operations, oldest first.
    """
    steps, groups = tables.clock_advances.steps, _sorted(tables.group_configs)
    acls = list(tables.acls)
    version = WITH_GROUPS_VERSION if groups else WITH_CLOCK_VERSION if steps else VERSION
    users = [
        (name, mechanism, *credential)
        for name, found in sorted(tables.scram_credentials.items())
        for mechanism, credential in sorted(found.items())
    ]
    version = WITH_ACLS_VERSION if acls else version
    version = WITH_USERS_VERSION if users else version
    quotas = [
        (entity.user, entity.client_id, sorted(values.items()))
        for entity, values in tables.quotas.items()
        if entity.ip is None
    ]
    version = WITH_QUOTAS_VERSION if quotas else version
    features = [(name, *found) for name, found in sorted(tables.features.items())]
    version = WITH_FEATURES_VERSION if features else version
    subscriptions = _sorted(tables.client_metrics_configs)
    version = WITH_CLIENT_METRICS_VERSION if subscriptions else version
    former = [_broker_values(broker) for _, broker in sorted(tables.former_brokers.items())]
    version = WITH_FORMER_BROKERS_VERSION if former else version
    of_addresses = [
        (entity.user, entity.client_id, sorted(values.items()), entity.ip)
        for entity, values in tables.quotas.items()
        if entity.ip is not None
    ]
    version = WITH_ADDRESS_QUOTAS_VERSION if of_addresses else version
    head = (
        version,
        tables.cluster_id,
        tables.revision,
        tables.next_producer_id,
        tables.placement_counter,
        sorted(tables.defaults.items()),
        [_broker_values(broker) for _, broker in sorted(tables.brokers.items())],
    )
    tail = (_sorted(tables.broker_configs), list(outcomes.items()), steps, groups)
    tail = tail[: 1 + version]
    # Partitions and dicts of configs are replaced, never changed, so a shallow copy is consistent.
    topics = [
        (topic.name, topic.topic_id, topic.configs, tuple(topic.partitions))
        for topic in tables.topics.values()
    ]
    lists: list[_List] = [(_acl_fields, acls)]
    others = (users, quotas, features, subscriptions, former, of_addresses)
    lists += [(tuple, entries) for entries in others]
    return _encode(head, topics, tail, lists[: max(0, version - WITH_GROUPS_VERSION)])


def _broker_values(broker: BrokerRegistration) -> tuple[object, ...]:
    """Return a broker's fields, without empty `endpoints`, so that older releases read them."""
    values = _broker_fields(broker)
    return values if broker.endpoints else values[:-1]


def _sorted(configs: Mapping[str, dict[str, str]]) -> list[tuple[str, list[tuple[str, str]]]]:
    return sorted((name, sorted(values.items())) for name, values in configs.items())


def _encode(
    head: tuple[object, ...],
    topics: list[_TopicCut],
    tail: tuple[object, ...],
    lists: Sequence[_List],
) -> Steps[list[bytes]]:
    packer = msgpack.Packer()
    pieces = [packer.pack_array_header(len(head) + 1 + len(tail) + len(lists))]
    pieces += map(packer.pack, head)
    pieces.append(packer.pack_array_header(len(topics)))
    written = 0
    for name, topic_id, configs, partitions in topics:
        pieces.append(packer.pack_array_header(4))
        pieces += map(packer.pack, (name, topic_id, sorted(configs.items())))
        pieces.append(packer.pack_array_header(len(partitions)))
        for partition in partitions:
            pieces.append(packer.pack(_partition_fields(partition)))
            written += 1
            if written % SLICE_PARTITIONS == 0:
                yield
    pieces += map(packer.pack, tail)
    for fields_of, entries in lists:
        pieces.append(packer.pack_array_header(len(entries)))
        for number, entry in enumerate(entries, 1):
            pieces.append(packer.pack(fields_of(entry)))
            if number % SLICE_PARTITIONS == 0:
                yield
    return pieces


def decode_tables(
    snapshot: bytes | memoryview,
) -> Steps[tuple[ClusterTables, dict[bytes, bytes]]]:
    """Return the tables and the operation results of a snapshot, or raise UnreadableSnapshot."""
    try:
        return (yield from _decode(SnapshotReader(snapshot)))
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        msgpack.UnpackException,
    ) as error:
        raise UnreadableSnapshot(f"This is no snapshot of the cluster metadata: {error}") from error


def _decode(
    reader: SnapshotReader,
) -> Steps[tuple[ClusterTables, dict[bytes, bytes]]]:
    tables = ClusterTables()
    count, version = reader.array(), reader.value()
    if version not in range(VERSION, VERSION_MAX + 1):
        raise UnreadableSnapshot(
            f"The snapshot of the cluster metadata has version {version}; this release reads "
            f"versions {VERSION} to {VERSION_MAX}."
        )
    if count != 9 + version:
        raise ValueError(f"it has {count} parts, not {9 + version}")
    tables.cluster_id = reader.value()
    tables.revision = reader.value()
    tables.next_producer_id = reader.value()
    tables.placement_counter = reader.value()
    tables.defaults = dict(reader.value())
    for values in reader.value():
        tables.put_broker(BrokerRegistration(*values))
    read = 0
    for _ in range(reader.array()):
        if reader.array() != 4:
            raise ValueError("a topic has four parts")
        topic = Topic(reader.value(), reader.value(), [], dict(reader.value()))
        tables.put_topic(topic)
        for index in range(reader.array()):
            tables.put_partition((topic.name, index), PartitionRegistration(*reader.value()))
            read += 1
            if read % SLICE_PARTITIONS == 0:
                # Drop the changes, of which there may be thousands, in slices.
                tables.take_changes()
                yield
    tables.broker_configs = {name: dict(configs) for name, configs in reader.value()}
    outcomes = dict(reader.value())
    if version >= WITH_CLOCK_VERSION:
        tables.clock_advances = ClockAdvances(tuple((at, total) for at, total in reader.value()))
    if version >= WITH_GROUPS_VERSION:
        tables.group_configs = {name: dict(configs) for name, configs in reader.value()}
    for number in range(1, 1 + (reader.array() if version >= WITH_ACLS_VERSION else 0)):
        tables.put_acl(AclBinding(*reader.value()))
        if number % SLICE_PARTITIONS == 0:
            yield
    for number in range(1, 1 + (reader.array() if version >= WITH_USERS_VERSION else 0)):
        name, mechanism, *values = reader.value()
        tables.put_scram_credential(name, mechanism, ScramCredential(*values))
        if number % SLICE_PARTITIONS == 0:
            yield
    if version >= WITH_QUOTAS_VERSION:
        yield from _decode_quotas(reader, tables)
    for _ in range(reader.array() if version >= WITH_FEATURES_VERSION else 0):
        name, level, index = reader.value()
        tables.features[name] = FeatureLevel(level, index)
    for _ in range(reader.array() if version >= WITH_CLIENT_METRICS_VERSION else 0):
        name, configs = reader.value()
        tables.client_metrics_configs[name] = dict(configs)
    for _ in range(reader.array() if version >= WITH_FORMER_BROKERS_VERSION else 0):
        broker = BrokerRegistration(*reader.value())
        tables.former_brokers[broker.node_id] = broker
    if version >= WITH_ADDRESS_QUOTAS_VERSION:
        yield from _decode_quotas(reader, tables)
    reader.end()
    tables.take_changes()
    return tables, outcomes


def _decode_quotas(reader: SnapshotReader, tables: ClusterTables) -> Steps[None]:
    for number in range(1, 1 + reader.array()):
        user, client_id, quotas, *ip = reader.value()
        for key, value in quotas:
            tables.put_quota(QuotaEntity(user, client_id, *ip), key, value)
        if number % SLICE_PARTITIONS == 0:
            yield


def difference(before: ClusterTables, after: ClusterTables) -> Steps[Changes]:
    """Return the changes from `before` to `after`, which must not change meanwhile."""
    changes = Changes()
    for looked_at, (name, topic) in enumerate(before.topics.items()):
        kept = after.topics.get(name)
        if kept is None or kept.topic_id != topic.topic_id:
            changes.topics_deleted.append((name, topic.topic_id))
        if looked_at % SLICE_PARTITIONS == 0:
            yield
    for name, topic in after.topics.items():
        known = before.topics.get(name)
        if known is None or known.topic_id != topic.topic_id:
            changes.topics_created.add(name)
            yield
            continue
        for index, partition in enumerate(topic.partitions):
            if (was := before.partition(name, index)) != partition:
                changes.partitions_changed[name, index] = was, partition
            if index % SLICE_PARTITIONS == 0:
                yield
        if known.configs != topic.configs:
            changes.configs_changed.add(name)
    for node in before.brokers.keys() | after.brokers.keys():
        if before.brokers.get(node) != after.brokers.get(node):
            changes.brokers_changed.add(node)
        if before.broker_configs.get(str(node)) != after.broker_configs.get(str(node)):
            changes.broker_configs_changed.add(node)
    changes.cluster_configs_changed = (
        before.defaults != after.defaults
        or before.broker_configs.get("") != after.broker_configs.get("")
    )
    changes.others_changed = before.revision != after.revision
    return changes


def discarding(tables: ClusterTables) -> Steps[None]:
    """Free large tables in slices. The tables must not be read afterwards."""
    freed = 0
    for name in list(tables.topics):
        freed += 1 + len(tables.topics[name].partitions)
        tables.remove_topic(name)
        if freed >= SLICE_PARTITIONS:
            freed = 0
            tables.take_changes()
            yield
    yield from tables.acls.discarding()
