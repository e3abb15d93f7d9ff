"""Reassignment of partitions to other brokers (KIP-455).

A reassignment first adds the new replicas to the old replicas, and they fetch and join the ISR like
any follower. When every remaining replica is in the ISR, the same command that completed the ISR
drops the old replicas (`elections.settle`). Until then the reassignment can be replaced by another
or cancelled. `adding` are the replicas that a reassignment adds, `removing` those that it removes.
A replica that a replaced reassignment added is in both lists.
"""

from collections import Counter

from ....runtime.sliced_work import Steps
from ....wire.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    KafkaError,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from ..cluster_model import PartitionRegistration, Topic
from ..cluster_tables import ClusterTables
from ..commands import AlterPartitionReassignments, Reassignment
from ..elections import Election, settle
from ..results import Item, Result
from .partitions import PARTITIONS_A_STEP, election_rules
from .topics import check_assignment


def alter_reassignments(
    tables: ClusterTables, command: AlterPartitionReassignments
) -> Steps[Result]:
    """Start, change and cancel reassignments.

    Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT,
    NO_REASSIGNMENT_IN_PROGRESS, INVALID_REPLICATION_FACTOR, INVALID_REQUEST.
    """
    times = Counter((wanted.topic, wanted.partition) for wanted in command.partitions)
    items: list[Item] = []
    for wanted in command.partitions:
        item = Item(name=wanted.topic, partition=wanted.partition)
        try:
            if times[wanted.topic, wanted.partition] > 1:
                raise InvalidRequest(
                    f"The partition {wanted.topic}-{wanted.partition} is asked for twice."
                )
            _alter(tables, wanted, command.allow_replication_factor_change)
        except KafkaError as error:
            item = item.refused(error)
        items.append(item)
        if len(items) % PARTITIONS_A_STEP == 0:
            yield
    return Result(items=tuple(items))


def _alter(tables: ClusterTables, wanted: Reassignment, may_change_factor: bool) -> None:
    topic = tables.topics.get(wanted.topic)
    before = tables.partition(wanted.topic, wanted.partition)
    if topic is None or before is None:
        raise UnknownTopicOrPartition(f"There is no partition {wanted.topic}-{wanted.partition}.")
    if wanted.replicas is None:
        _cancel(tables, topic, wanted.partition, before)
        return
    check_assignment(tables, wanted.replicas)
    original = tuple(node for node in before.replicas if node not in before.adding)
    if not may_change_factor and len(wanted.replicas) != len(original):
        raise InvalidReplicationFactor(
            f"The replication factor is changed from {len(original)} to {len(wanted.replicas)}, "
            "which this request forbids."
        )
    removing = tuple(sorted(node for node in before.replicas if node not in wanted.replicas))
    replicas = wanted.replicas + removing
    after = settle(
        before,
        election_rules(tables, topic),
        replicas=replicas,
        adding=tuple(sorted(node for node in replicas if node not in original)),
        removing=removing,
    )
    tables.put_partition((topic.name, wanted.partition), after)


def _cancel(tables: ClusterTables, topic: Topic, index: int, before: PartitionRegistration) -> None:
    if not before.is_reassigning:
        raise NoReassignmentInProgress(
            f"No partition reassignment is in progress. {topic.name}-{index} stays where it is."
        )
    rules = election_rules(tables, topic)
    replicas = tuple(node for node in before.replicas if node not in before.adding)
    isr = tuple(node for node in before.isr if node in replicas)
    min_isr = min(rules.min_insync_replicas, len(replicas))
    # Replicas with all committed records are dropped only if enough others have them. Kafka
    # requires one other, but that one may just have lost power without being noticed.
    holders = (*before.isr, *before.elr) or before.last_known_elr
    drops_holders = any(node not in replicas for node in holders)
    drops_too_much = drops_holders and len(isr) < min_isr
    if drops_too_much and not (
        rules.election is Election.UNCLEAN and any(tables.is_active(node) for node in replicas)
    ):
        raise InvalidReplicaAssignment(
            f"The reassignment of {topic.name}-{index} cannot be cancelled now: it would drop a "
            f"replica that may hold all committed records, and of {list(replicas)} only {len(isr)} "
            f"are in sync ({min_isr} are required)."
        )
    after = settle(before, rules, isr=isr, replicas=replicas, adding=(), removing=())
    tables.put_partition((topic.name, index), after)
