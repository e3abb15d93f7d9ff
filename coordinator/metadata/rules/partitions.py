"""The changes of partitions, by ISR proposals of leaders and by requested elections.

An ISR proposal is a compare-and-set on all facts that the leader relies on (KIP-497, 841, 903). The
sender must be the leader in its current incarnation, with the current leader epoch and partition
epoch. Each proposed member must be live, in the incarnation whose fetches the leader has counted.
"""

from collections.abc import Iterable
from dataclasses import replace

from ....replication.isr_change import UNKNOWN_BROKER_EPOCH
from ....runtime.sliced_work import Steps
from ....wire.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    ErrorCode,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    PreferredLeaderNotAvailable,
    StaleBrokerEpoch,
    UnknownTopicOrPartition,
)
from ....wire.identifiers import TopicPartition
from ..cluster_model import NO_LEADER, PartitionRegistration, Topic
from ..cluster_tables import ClusterTables
from ..commands import UNCLEAN, AlterPartition, ElectLeaders, IsrProposal
from ..elections import NO_BROKER, Election, ElectionRules, settle
from ..results import Item, Result

PARTITIONS_A_STEP = 32  # takes less than half a millisecond


def settle_each(
    tables: ClusterTables,
    keys: Iterable[TopicPartition],
    *,
    without: int = NO_BROKER,
    untrusted: int = NO_BROKER,
    emptied: int = NO_BROKER,
    failed: int = NO_BROKER,
) -> Steps[None]:
    """Apply the election rules to partitions after a change of their brokers or settings.

    without: a node that leaves the ISRs. untrusted, emptied: a node that also leaves the ELRs.
    failed: a node that must fetch under a new leader epoch before it is in sync again.
    """
    rules: dict[str, ElectionRules] = {}
    for number, key in enumerate(list(keys), 1):
        if number % PARTITIONS_A_STEP == 0:
            yield
        name, index = key
        topic = tables.topics[name]
        if name not in rules:
            rules[name] = election_rules(tables, topic)
        before = topic.partitions[index]
        after = settle(
            before,
            rules[name],
            isr=tuple(node for node in before.isr if node != without),
            untrusted=untrusted,
            emptied=emptied,
            failed=failed,
        )
        tables.put_partition(key, after)


def election_rules(
    tables: ClusterTables, topic: Topic, election: Election | None = None
) -> ElectionRules:
    """Return the election rules of a topic by its configs, with `election` if it is given."""
    if election is None:
        is_unclean = tables.allows_unclean_election(topic)
        election = Election.UNCLEAN if is_unclean else Election.ONLINE
    return ElectionRules(tables.live_brokers, tables.min_insync_replicas(topic), election)


def partitions_of(topic: Topic) -> list[TopicPartition]:
    """Return the keys of all partitions of a topic."""
    return [(topic.name, index) for index in range(len(topic.partitions))]


def alter_partition(tables: ClusterTables, command: AlterPartition) -> Steps[Result]:
    """Decide each ISR change that a leader proposes.

    Raises STALE_BROKER_EPOCH for a leader with an outdated broker epoch. Errors of a partition:
    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, FENCED_LEADER_EPOCH, INVALID_REQUEST,
    INVALID_UPDATE_VERSION, INELIGIBLE_REPLICA. NEW_LEADER_ELECTED means that the change was made,
    completed a reassignment, and therefore moved the leadership away from the sender.
    """
    broker = tables.brokers.get(command.node_id)
    if broker is None or broker.broker_epoch != command.broker_epoch:
        raise StaleBrokerEpoch(
            f"{command.broker_epoch} is not the current epoch of broker {command.node_id}."
        )
    items: list[Item] = []
    for change in command.changes:
        items.append(_alter(tables, command, change))
        if len(items) % PARTITIONS_A_STEP == 0:
            yield
    return Result(items=tuple(items))


def _alter(tables: ClusterTables, command: AlterPartition, change: IsrProposal) -> Item:
    item = Item(topic_id=change.topic_id, partition=change.partition)
    topic = tables.topic_by_id(change.topic_id)
    if topic is None:
        return replace(item, error=ErrorCode.UNKNOWN_TOPIC_ID)
    item = replace(item, name=topic.name)
    before = after = tables.partition(topic.name, change.partition)
    if before is None or after is None:
        return replace(item, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        _validate(tables, command.node_id, before, change)
        isr = tuple(node for node, _ in change.isr)
        after = settle(before, election_rules(tables, topic), isr=isr)
        tables.put_partition((topic.name, change.partition), after)
    except KafkaError as error:
        item = item.refused(error)
        if isinstance(error, IneligibleReplica):
            after = _outdate(tables, (topic.name, change.partition), before)
    else:
        if after.leader != command.node_id:
            message = "The reassignment is complete, and the leader is another."
            item = replace(item, error=ErrorCode.NEW_LEADER_ELECTED, message=message)
    return replace(
        item,
        leader=after.leader,
        leader_epoch=after.leader_epoch,
        isr=after.isr,
        partition_epoch=after.partition_epoch,
        min_insync_replicas=tables.effective_min_insync_replicas(topic, after),
    )


def _outdate(
    tables: ClusterTables, key: TopicPartition, before: PartitionRegistration
) -> PartitionRegistration:
    """Raise the partition epoch, so that no late copy of a refused proposal is accepted.

    The leader stops counting the refused member when it gets the refusal. A late copy of the
    proposal (a repeated request) must not add that member to the ISR once the member is unfenced.
    Kafka relies on the order of a connection here.
    """
    after = replace(before, partition_epoch=before.partition_epoch + 1)
    tables.put_partition(key, after)
    return after


def _validate(
    tables: ClusterTables, sender: int, partition: PartitionRegistration, change: IsrProposal
) -> None:
    if change.leader_epoch != partition.leader_epoch:
        raise FencedLeaderEpoch(
            f"The leader epoch is {partition.leader_epoch}, not {change.leader_epoch}."
        )
    if partition.leader != sender:
        raise InvalidRequest(f"Broker {sender} does not lead this partition.")
    if change.partition_epoch != partition.partition_epoch:
        raise InvalidUpdateVersion(
            f"The partition epoch is {partition.partition_epoch}, not {change.partition_epoch}."
        )
    members = [node for node, _ in change.isr]
    if (
        sender not in members
        or len(set(members)) != len(members)
        or any(node not in partition.replicas for node in members)
    ):
        raise InvalidRequest(
            f"{members} is no ISR of the replicas {list(partition.replicas)} led by {sender}."
        )
    for node, broker_epoch in change.isr:
        # A member that has not fetched from this leader yet. It is the incarnation that joined the
        # ISR, because its failure would have removed it and raised the partition epoch.
        is_known_by_being_in = broker_epoch == UNKNOWN_BROKER_EPOCH and node in partition.isr
        if reason := _why_ineligible(tables, node, None if is_known_by_being_in else broker_epoch):
            raise IneligibleReplica(f"Broker {node} {reason}.")


def _why_ineligible(tables: ClusterTables, node: int, broker_epoch: int | None) -> str | None:
    broker = tables.brokers.get(node)
    if broker is None:
        return "is not registered"
    if broker.is_shutting_down:
        return "is shutting down"
    if broker.is_fenced:
        return "is fenced"
    if broker_epoch is not None and broker.broker_epoch != broker_epoch:
        return f"has the broker epoch {broker.broker_epoch} by now, not {broker_epoch}"
    return None


def elect_leaders(tables: ClusterTables, command: ElectLeaders) -> Steps[Result]:
    """Elect the preferred replica, or any live replica (KIP-460).

    Errors of a partition: UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED,
    PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE. If all partitions are requested,
    those that need no election are omitted from the answer, as in Kafka.
    """
    if command.election_type not in (0, UNCLEAN):
        raise InvalidRequest(f"There is no election type {command.election_type}.")
    keys: Iterable[TopicPartition] | None = command.partitions
    if keys is None:
        topics = [tables.topics[name] for name in sorted(tables.topics)]
        keys = (key for topic in topics for key in partitions_of(topic))
    items: list[Item] = []
    for number, (name, index) in enumerate(keys, 1):
        item = Item(name=name, partition=index)
        try:
            items.append(
                replace(item, leader=_elect_leader(tables, name, index, command.election_type))
            )
        except KafkaError as error:
            if command.partitions is not None or not isinstance(error, ElectionNotNeeded):
                items.append(item.refused(error))
        if number % PARTITIONS_A_STEP == 0:
            yield
    return Result(items=tuple(items))


def _elect_leader(tables: ClusterTables, name: str, index: int, election_type: int) -> int:
    topic = tables.topics.get(name)
    before = tables.partition(name, index)
    if topic is None or before is None:
        missing = f"topic as {name}" if topic is None else f"partition as {name}-{index}"
        raise UnknownTopicOrPartition(f"No such {missing}")
    is_unclean = election_type == UNCLEAN
    if before.leader == before.replicas[0] or (is_unclean and before.leader != NO_LEADER):
        raise ElectionNotNeeded(
            "Leader election not needed for topic partition. "
            f"Broker {before.leader} leads {name}-{index} already."
        )
    election = Election.UNCLEAN if is_unclean else Election.PREFERRED
    after = settle(before, election_rules(tables, topic, election))
    if after is not before:
        tables.put_partition((name, index), after)
        return after.leader
    if is_unclean:
        raise EligibleLeadersNotAvailable(f"No replica of {name}-{index} is alive.")
    raise PreferredLeaderNotAvailable(
        f"Broker {before.replicas[0]}, the preferred leader of {name}-{index}, "
        f"is not in the ISR or not alive."
    )
