"""The creation, extension and deletion of topics.

Replicas are placed where the command is applied, so a command that creates 600 partitions is as
small as one that creates a single partition. Each topic has its own result. With validate_only the
result is computed and nothing is changed.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeVar

from ....runtime.sliced_work import Steps
from ....runtime.steps import StepCounter
from ....wire.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicException,
    KafkaError,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ..cluster_model import TOPIC_ID_BYTES, PartitionRegistration, Topic
from ..cluster_tables import ClusterTables
from ..commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    TopicReference,
)
from ..placement import UsableBroker, place
from ..results import Item, Result
from ..topic_names import why_invalid
from .partitions import PARTITIONS_A_STEP

PARTITIONS_MAX = 10_000  # the limit for one command, as in Kafka's controller
REFUSED_A_STEP = 32  # topics, which takes less than half a millisecond
REPLICATION_FACTOR_MAX = 2**15 - 1
NEVER_CREATED = "__cluster_metadata"
_NO_TOPIC_ID = bytes(TOPIC_ID_BYTES)


Wanted = TypeVar("Wanted", NewTopic, MorePartitions)


def create_topics(tables: ClusterTables, command: CreateTopics) -> Steps[Result]:
    """Create topics.

    Errors of a topic: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS,
    INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_REQUEST, POLICY_VIOLATION.
    """

    def create(wanted: NewTopic, budget: int) -> Steps[tuple[int, Item]]:
        topic = yield from _new_topic(tables, wanted, budget)
        yield
        count = len(topic.partitions)
        if not command.validate_only:
            tables.put_topic(topic)
            if not wanted.assignments:
                tables.advance_placement(count)
        return count, Item(
            name=wanted.name,
            topic_id=topic.topic_id,
            partition_count=count,
            replication_factor=len(topic.partitions[0].replicas),
        )

    return (yield from _create_each(command.topics, create))


def create_partitions(tables: ClusterTables, command: CreatePartitions) -> Steps[Result]:
    """Extend topics.

    Errors of a topic: UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS, INVALID_REPLICA_ASSIGNMENT,
    INVALID_REPLICATION_FACTOR, INVALID_REQUEST, POLICY_VIOLATION.
    """

    def create(wanted: MorePartitions, budget: int) -> Steps[tuple[int, Item]]:
        added = yield from _more_partitions(tables, wanted, budget)
        yield
        if not command.validate_only:
            have = len(tables.topics[wanted.name].partitions)
            for offset, partition in enumerate(added):
                tables.put_partition((wanted.name, have + offset), partition)
            if wanted.assignments is None:
                tables.advance_placement(len(added))
        return len(added), Item(name=wanted.name, partition_count=wanted.total_count)

    return (yield from _create_each(command.topics, create))


def _create_each(
    topics: tuple[Wanted, ...], create: Callable[[Wanted, int], Steps[tuple[int, Item]]]
) -> Steps[Result]:
    """Call `create` for each topic, with the number of partitions that may still be created."""
    times = Counter(topic.name for topic in topics)
    items: dict[str, Item] = {}
    refused = StepCounter(REFUSED_A_STEP)
    budget = PARTITIONS_MAX
    for wanted in topics:
        try:
            if times[wanted.name] > 1:
                raise InvalidRequest(f"The topic {wanted.name!r} is asked for twice.")
            count, items[wanted.name] = yield from create(wanted, budget)
            budget -= count
        except KafkaError as error:
            items[wanted.name] = Item(name=wanted.name).refused(error)
            if refused.ends_step():
                yield
    return Result(items=tuple(items.values()))


def delete_topics(tables: ClusterTables, command: DeleteTopics) -> Steps[Result]:
    """Delete topics.

    Errors of a topic: UNKNOWN_TOPIC_OR_PARTITION (by name), UNKNOWN_TOPIC_ID, INVALID_REQUEST. A
    topic that is requested twice, by name or id, is not deleted, as in Kafka.
    """
    found = [
        reference.name if reference.name is not None else _name_of(tables, reference.topic_id)
        for reference in command.topics
    ]
    times = Counter(name for name in found if name is not None)
    items: list[Item] = []
    refused = StepCounter(REFUSED_A_STEP)
    for reference, name in zip(command.topics, found, strict=True):
        try:
            topic = _to_delete(tables, reference, name, times)
        except KafkaError as error:
            item = Item(name=reference.name or "", topic_id=reference.topic_id)
            items.append(item.refused(error))
            if refused.ends_step():
                yield
            continue
        items.append(Item(name=topic.name, topic_id=topic.topic_id))
        tables.remove_topic(topic.name)
        yield
    return Result(items=tuple(items))


def _to_delete(
    tables: ClusterTables, reference: TopicReference, name: str | None, times: Counter[str]
) -> Topic:
    if (reference.name is None) == (reference.topic_id in (b"", _NO_TOPIC_ID)):
        raise InvalidRequest("Give either the name or the id of a topic.")
    if name is None:
        raise UnknownTopicId("This server does not host this topic ID.")
    if times[name] > 1:
        raise InvalidRequest(f"The topic {name!r} is asked for twice.")
    if name not in tables.topics:
        raise UnknownTopicOrPartition(
            f"This server does not host this topic-partition. There is no topic {name!r}."
        )
    return tables.topics[name]


def check_assignment(
    tables: ClusterTables, replicas: tuple[int, ...], replication_factor: int | None = None
) -> None:
    """Raise InvalidReplicaAssignment unless `replicas` are different registered brokers.

    If `replication_factor` is given, it must be the number of replicas.
    """
    if not replicas:
        raise InvalidReplicaAssignment("An assignment has at least one replica.")
    for node in replicas:
        if node not in tables.brokers:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {node}, but no such broker is "
                "registered."
            )
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(f"The assignment {list(replicas)} names a broker twice.")
    if replication_factor is not None and len(replicas) != replication_factor:
        raise InvalidReplicaAssignment(
            f"The assignment {list(replicas)} has {len(replicas)} replicas, where the other "
            f"partitions have {replication_factor}."
        )


def _name_of(tables: ClusterTables, topic_id: bytes) -> str | None:
    topic = tables.topic_by_id(topic_id)
    return None if topic is None else topic.name


def _new_topic(tables: ClusterTables, wanted: NewTopic, budget: int) -> Steps[Topic]:
    if wanted.name == NEVER_CREATED:
        raise InvalidRequest(
            f"{NEVER_CREATED} is the cluster's own log and cannot be a topic.",
        )
    if wanted.name in tables.topics:
        raise TopicAlreadyExists(f"Topic '{wanted.name}' already exists.")
    if reason := why_invalid(wanted.name):
        raise InvalidTopicException(reason)
    if other := tables.colliding_topic(wanted.name):
        raise InvalidTopicException(
            f"Topic '{wanted.name}' collides with existing topic: {other}",
        )
    if (
        len(wanted.topic_id) != TOPIC_ID_BYTES
        or wanted.topic_id == _NO_TOPIC_ID
        or tables.topic_by_id(wanted.topic_id) is not None
    ):
        raise InvalidRequest("The topic id is missing or taken.")
    if wanted.assignments:
        partitions = yield from _as_assigned(tables, wanted, budget)
    else:
        partitions = yield from _as_placed(tables, wanted, budget)
    return Topic(wanted.name, wanted.topic_id, partitions, dict(wanted.configs))


def _as_assigned(
    tables: ClusterTables, wanted: NewTopic, budget: int
) -> Steps[list[PartitionRegistration]]:
    if wanted.replication_factor != -1 or wanted.partition_count != -1:
        raise InvalidRequest(
            "With an assignment, partition count and replication factor must both be -1.",
        )
    _check_budget(len(wanted.assignments), budget)
    by_index: dict[int, tuple[int, ...]] = {}
    for index, replicas in wanted.assignments:
        if index in by_index:
            raise InvalidReplicaAssignment(f"Partition {index} is assigned twice.")
        by_index[index] = replicas
    if sorted(by_index) != list(range(len(by_index))):
        raise InvalidReplicaAssignment(
            "The assigned partitions must be numbered from 0 without a gap.",
        )
    assignments = [by_index[index] for index in range(len(by_index))]
    return (yield from _assigned(tables, assignments, None))


def _as_placed(
    tables: ClusterTables, wanted: NewTopic, budget: int
) -> Steps[list[PartitionRegistration]]:
    if not (
        wanted.replication_factor == -1 or 1 <= wanted.replication_factor <= REPLICATION_FACTOR_MAX
    ):
        raise InvalidReplicationFactor(
            "The replication factor must be 1 or more, or -1 for the default.",
        )
    if wanted.partition_count != -1 and wanted.partition_count < 1:
        raise InvalidPartitions(
            "The number of partitions must be 1 or more, or -1 for the default.",
        )
    count, factor = wanted.partition_count, wanted.replication_factor
    if count == -1:
        count = max(1, tables.default_number("num.partitions"))
    if factor == -1:
        factor = max(1, tables.default_number("default.replication.factor"))
    return (yield from _placed(tables, count, factor, budget))


def _more_partitions(
    tables: ClusterTables, wanted: MorePartitions, budget: int
) -> Steps[list[PartitionRegistration]]:
    topic = tables.topics.get(wanted.name)
    if topic is None:
        raise UnknownTopicOrPartition("This server does not host this topic-partition.")
    have = len(topic.partitions)
    added = wanted.total_count - have
    if added <= 0:
        raise InvalidPartitions(
            f"The topic {wanted.name} currently has {have} partition(s); {wanted.total_count} "
            "would not be an increase.",
        )
    factor = len(topic.partitions[0].replicas)
    if wanted.assignments is None:
        return (yield from _placed(tables, added, factor, budget))
    if len(wanted.assignments) != added:
        raise InvalidReplicaAssignment(
            f"{added} partitions are to be added, but {len(wanted.assignments)} are assigned.",
        )
    _check_budget(added, budget)
    return (yield from _assigned(tables, wanted.assignments, factor))


def _placed(
    tables: ClusterTables, count: int, factor: int, budget: int
) -> Steps[list[PartitionRegistration]]:
    _check_budget(count, budget)
    brokers = [
        UsableBroker(broker.node_id, broker.rack, broker.is_fenced)
        for broker in tables.brokers.values()
        if not broker.is_shutting_down
    ]
    partitions: list[PartitionRegistration] = []
    while len(partitions) < count:
        placed = place(
            brokers,
            partition_count=min(count - len(partitions), PARTITIONS_A_STEP),
            replication_factor=factor,
            start=tables.placement_counter + len(partitions),
        )
        partitions += [_partition(tables, replicas) for replicas in placed]
        yield
    return partitions


def _assigned(
    tables: ClusterTables, assignments: Iterable[tuple[int, ...]], factor: int | None
) -> Steps[list[PartitionRegistration]]:
    partitions: list[PartitionRegistration] = []
    for replicas in assignments:
        check_assignment(tables, replicas, factor)
        if not any(tables.is_active(node) for node in replicas):
            raise InvalidReplicaAssignment(
                f"All brokers of the assignment {list(replicas)} are fenced or shutting down.",
            )
        factor = len(replicas)
        partitions.append(_partition(tables, replicas))
        if len(partitions) % PARTITIONS_A_STEP == 0:
            yield
    return partitions


def _partition(tables: ClusterTables, replicas: tuple[int, ...]) -> PartitionRegistration:
    """Return a new partition, in which every live replica is in the ISR, because logs are empty."""
    isr = tuple(node for node in replicas if tables.is_active(node))
    # Equal tuples are shared, since a cluster has many partitions with few different placements.
    isr = replicas if isr == replicas else isr
    return PartitionRegistration(replicas=replicas, isr=isr, leader=isr[0])


def _check_budget(count: int, budget: int) -> None:
    if count > budget:
        raise PolicyViolation(
            f"No more than {PARTITIONS_MAX} partitions can be created at once.",
        )
