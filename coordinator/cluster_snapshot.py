"""The cluster's metadata as the bytes of a snapshot.

Equal tables have equal bytes (everything is written in sorted order), so replicas can be
compared by a hash. The order of the fields is for ever; a new layout gets a new version.
"""

from collections.abc import Mapping
from dataclasses import fields
from operator import attrgetter
from typing import cast

import msgpack

from .cluster_model import Broker, Changes, Partition, Topic
from .cluster_tables import ClusterTables

VERSION = 1
_broker_fields = attrgetter(*(field.name for field in fields(Broker)))
_partition_fields = attrgetter(*(field.name for field in fields(Partition)))


class UnreadableSnapshot(Exception):
    """A snapshot of another version, or no snapshot at all."""


def encode_tables(tables: ClusterTables, outcomes: Mapping[bytes, bytes]) -> bytes:
    """The snapshot. outcomes: the encoded results of recent operations, oldest first."""
    brokers = [_broker_fields(broker) for _, broker in sorted(tables.brokers.items())]
    topics = [
        (
            topic.name,
            topic.topic_id,
            sorted(topic.configs.items()),
            [_partition_fields(partition) for partition in topic.partitions],
        )
        for _, topic in sorted(tables.topics.items())
    ]
    configs = [(name, sorted(values.items())) for name, values in tables.broker_configs.items()]
    values = (
        VERSION,
        tables.cluster_id,
        tables.revision,
        tables.next_producer_id,
        tables.placement_counter,
        sorted(tables.defaults.items()),
        brokers,
        topics,
        sorted(configs),
        list(outcomes.items()),
    )
    return cast(bytes, msgpack.packb(values))


def decode_tables(snapshot: bytes) -> tuple[ClusterTables, dict[bytes, bytes]]:
    """New tables and the outcomes; raises UnreadableSnapshot."""
    tables = ClusterTables()
    try:
        values = msgpack.unpackb(snapshot, use_list=False)
        if values[0] != VERSION:
            raise UnreadableSnapshot(
                f"The snapshot of the cluster metadata has version {values[0]}; this release "
                f"reads version {VERSION}."
            )
        (
            _,
            tables.cluster_id,
            tables.revision,
            tables.next_producer_id,
            tables.placement_counter,
            defaults,
            brokers,
            topics,
            broker_configs,
            outcomes,
        ) = values
        tables.defaults = dict(defaults)
        for fields in brokers:
            tables.put_broker(Broker(*fields))
        for name, topic_id, configs, partitions in topics:
            tables.put_topic(
                Topic(name, topic_id, [Partition(*fields) for fields in partitions], dict(configs))
            )
        tables.broker_configs = {name: dict(configs) for name, configs in broker_configs}
        tables.take_changes()
        return tables, dict(outcomes)
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        msgpack.UnpackException,
    ) as error:
        raise UnreadableSnapshot(f"This is no snapshot of the cluster metadata: {error}") from error


def difference(before: ClusterTables, after: ClusterTables) -> Changes:
    """What a reader of `before` has to look at to know `after`."""
    changes = Changes()
    for name, topic in before.topics.items():
        kept = after.topics.get(name)
        if kept is None or kept.topic_id != topic.topic_id:
            changes.topics_deleted.append((name, topic.topic_id))
    for name, topic in after.topics.items():
        known = before.topics.get(name)
        if known is None or known.topic_id != topic.topic_id:
            changes.topics_created.add(name)
            continue
        for index, partition in enumerate(topic.partitions):
            if before.partition(name, index) != partition:
                changes.partitions_changed.add((name, index))
        if known.configs != topic.configs:
            changes.configs_changed.add(name)
    for node in before.brokers.keys() | after.brokers.keys():
        if before.brokers.get(node) != after.brokers.get(node) or before.broker_configs.get(
            str(node)
        ) != after.broker_configs.get(str(node)):
            changes.brokers_changed.add(node)
    changes.cluster_configs_changed = (
        before.defaults != after.defaults
        or before.broker_configs.get("") != after.broker_configs.get("")
    )
    changes.others_changed = before.revision != after.revision
    return changes
