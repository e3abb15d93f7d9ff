"""The APIs of replicas, leaders, and the metadata quorum.

ElectLeaders 0-2                  KIP-183; v1 unclean elections (KIP-460).
AlterPartitionReassignments 0-1   KIP-455; v1 can forbid another replication factor (KIP-1073).
ListPartitionReassignments 0      KIP-455.
DescribeLogDirs 1-5               v3 top-level error, v4 size of the volume (KIP-827), v5 cordoned.
DescribeQuorum 0-2                KIP-595; v1 times (KIP-836), v2 nodes (KIP-853). The quorum is the
                                  Raft group of the metadata, and its offsets are log indexes. Any
                                  broker answers, as in Kafka, after a request to the leader.
"""

import shutil
from collections import defaultdict
from collections.abc import Iterable
from itertools import islice
from typing import Any

from ....coordinator.controller.quorum import UNKNOWN, Quorum
from ....coordinator.metadata.commands import (
    PREFERRED,
    UNCLEAN,
    AlterPartitionReassignments,
    ElectLeaders,
    Reassignment,
)
from ....coordinator.metadata.results import Item
from ....runtime.steps import StepCounter, Steps, made
from ....wire.acls import AclOperation
from ....wire.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    UnknownTopicOrPartition,
    error_for,
)
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ....wire.messages.schema_encoder import Each
from ...listener.dispatch import Api, RequestContext, control_api
from ...security.rights import on_cluster
from ..answers import (
    code_and_message,
    code_only,
    code_with_message,
    entries_bytes,
    outcome_of,
)
from ..transactions.producers import named_partitions
from .topics import bounded_timeout_ms

PARTITIONS_A_STEP = 100
METADATA_TOPIC = "__cluster_metadata"


async def elect_leaders(
    context: RequestContext, header: RequestHeader, request: "requests.ElectLeadersRequest"
) -> "responses.ElectLeaders.Response":
    """Elect leaders, and return a result for each partition.

    The result is NONE, ELECTION_NOT_NEEDED, or another error. The answer to a request for all
    partitions omits those that need no election.
    """
    election_type = getattr(request, "election_type", PREFERRED)
    if election_type not in (PREFERRED, UNCLEAN):
        raise InvalidRequest(f"Unknown election type {election_type}")
    if request.topic_partitions is not None:
        naming = named_partitions((t.topic, t.partitions) for t in request.topic_partitions)
        partitions = await context.broker.work.finish("ElectLeaders", naming)
        if not partitions:
            return {"replica_election_results": []}
    else:  # submit the partitions that may need an election, in several commands
        state = context.broker.state
        partitions = sorted([*state.leaderless_partitions(), *state.imbalanced_partitions()])
    result = await context.broker.controller.submit(
        ElectLeaders(election_type, tuple(partitions) or None),
        timeout_ms=bounded_timeout_ms(request.timeout),
    )
    if result.error:
        raise error_for(result.error, result.message)
    names_all = request.topic_partitions is not None
    items = result.items if names_all else filter(_was_needed, result.items)
    results = _election_results(items)
    return {"replica_election_results": await context.broker.work.finish("ElectLeaders", results)}


def _was_needed(item: Item) -> bool:
    return item.error != ErrorCode.ELECTION_NOT_NEEDED


def _election_results(
    items: Iterable[Item],
) -> "Steps[Each[responses.ElectLeaders.ReplicaElectionResult]]":
    by_topic: dict[str, list[Item]] = defaultdict(list)
    counter = StepCounter()
    for item in items:
        by_topic[item.name].append(item)
        if counter.ends_step():
            yield
    return Each(_election_topic, by_topic.items())


def _election_topic(
    outcome: tuple[str, list[Item]],
) -> "responses.ElectLeaders.ReplicaElectionResult":
    topic, items = outcome
    return {"topic": topic, "partition_result": Each(_election_result, items)}


def _election_result(item: Item) -> "responses.ElectLeaders.PartitionResult":
    return {"partition_id": item.partition, **outcome_of(item)}


def _election_error(
    request: "requests.ElectLeadersRequest", error: KafkaError
) -> "responses.ElectLeaders.Response":
    def of_topic(
        topic: "requests.ElectLeadersRequest.TopicPartitions",
    ) -> "responses.ElectLeaders.ReplicaElectionResult":
        return {"topic": topic.topic, "partition_result": Each(refused, topic.partitions)}

    def refused(index: int) -> "responses.ElectLeaders.PartitionResult":
        return {"partition_id": index, **code_and_message(error)}

    topics = Each(of_topic, request.topic_partitions or ())
    return {"error_code": error.number, "replica_election_results": topics}


async def alter_partition_reassignments(
    context: RequestContext,
    header: RequestHeader,
    request: "requests.AlterPartitionReassignmentsRequest",
) -> "responses.AlterPartitionReassignments.Response":
    """Begin or cancel the reassignment of each partition, and return the error of each."""
    making = made(_reassignment, ((t.name, p) for t in request.topics for p in t.partitions))
    wanted = await context.broker.work.finish("AlterPartitionReassignments", making)
    items: Iterable[Item] = ()
    may_change_factor = getattr(request, "allow_replication_factor_change", True)
    if wanted:
        result = await context.broker.controller.submit(
            AlterPartitionReassignments(tuple(wanted), may_change_factor),
            timeout_ms=bounded_timeout_ms(request.timeout),
        )
        if result.error:
            raise error_for(result.error, result.message)
        items = result.items
    in_order = iter(items)

    def answer(
        topic: "requests.AlterPartitionReassignmentsRequest.ReassignableTopic",
    ) -> "responses.AlterPartitionReassignments.ReassignableTopicResponse":
        outcomes = list(islice(in_order, len(topic.partitions)))
        return {"name": topic.name, "partitions": Each(_outcome, outcomes)}

    answering = made(answer, request.topics)
    return {
        "error_message": None,
        "allow_replication_factor_change": may_change_factor,
        "responses": await context.broker.work.finish("AlterPartitionReassignments", answering),
    }


def _reassignment(
    wanted: "tuple[str, requests.AlterPartitionReassignmentsRequest.ReassignablePartition]",
) -> Reassignment:
    name, partition = wanted
    replicas = None if partition.replicas is None else tuple(partition.replicas)
    return Reassignment(name, partition.partition_index, replicas)


def _outcome(item: Item) -> "responses.AlterPartitionReassignments.ReassignablePartitionResponse":
    return {"partition_index": item.partition, **outcome_of(item)}


def list_partition_reassignments(
    context: RequestContext,
    header: RequestHeader,
    request: "requests.ListPartitionReassignmentsRequest",
) -> "Steps[responses.ListPartitionReassignments.Response]":
    """Return the ongoing reassignments in this broker's metadata."""
    state = context.broker.state
    topics = request.topics
    asked = None if topics is None else ((t.name, t.partition_indexes) for t in topics)
    found = (
        (
            name,
            {
                "partition_index": index,
                "replicas": partition.replicas,
                "adding_replicas": partition.adding,
                "removing_replicas": partition.removing,
            },
        )
        for name, index in sorted(state.reassigning_partitions())
        if (partition := state.partition(name, index)) is not None
        # The reassignment may have ended during the request.
        and (partition.adding or partition.removing)
    )
    return {"error_message": None, "topics": (yield from _by_topic(found, asked))}


def _by_topic(
    found: Iterable[tuple[str, dict[str, Any]]], topics: Iterable[tuple[str, Iterable[int]]] | None
) -> Steps[list[Any]]:
    """Return the entries of the requested partitions by topic, or of all partitions for None."""
    asked: dict[str, set[int]] = defaultdict(set)
    by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
    counter = StepCounter(PARTITIONS_A_STEP)
    for name, indexes in topics or ():
        asked[name].update(indexes)
        if counter.ends_step():
            yield
    for name, answer in found:
        if topics is None or answer["partition_index"] in asked[name]:
            by_topic[name].append(answer)
        if counter.ends_step():
            yield
    return [{"name": name, "partitions": answers} for name, answers in sorted(by_topic.items())]


def describe_log_dirs(
    context: RequestContext, header: RequestHeader, request: "requests.DescribeLogDirsRequest"
) -> "Steps[responses.DescribeLogDirs.Response]":
    """Return the data directory with the sizes of its partitions and the space of its volume."""
    topics = request.topics
    asked = None if topics is None else ((t.topic, t.partitions) for t in topics)
    found = (
        (
            hosted.topic,
            {
                "partition_index": hosted.index,
                "partition_size": hosted.log.segments.size_bytes,
                "offset_lag": max(0, hosted.log.high_watermark - hosted.log.log_end_offset),
            },
        )
        for hosted in context.broker.replicas
    )
    by_topic = yield from _by_topic(found, asked)
    directory = context.broker.config.log_directory
    log_dir = str(directory.absolute())
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return {"results": [{"log_dir": log_dir, "error_code": ErrorCode.KAFKA_STORAGE_ERROR}]}
    return {
        "results": [
            {
                "log_dir": log_dir,
                "topics": by_topic,
                "total_bytes": usage.total,
                "usable_bytes": usage.free,
            }
        ]
    }


def _log_dirs_bytes(
    context: RequestContext, request: "requests.DescribeLogDirsRequest"
) -> Steps[int]:
    return entries_bytes(len, [context.broker.replicas])


def _reassignments_bytes(
    context: RequestContext, request: "requests.ListPartitionReassignmentsRequest"
) -> Steps[int]:
    return entries_bytes(len, [list(context.broker.state.reassigning_partitions())])


async def describe_quorum(
    context: RequestContext, header: RequestHeader, request: "requests.DescribeQuorumRequest"
) -> "responses.DescribeQuorum.Response":
    """Return the metadata quorum's leader and its voters' offsets.

    They are requested from that leader, because other nodes do not know them. Raises
    RequestTimedOut.
    """
    broker = context.broker
    quorum: Quorum | None = None
    if await broker.work.finish("DescribeQuorum", _names_quorum(request)):
        timeout_ms = broker.config.request_timeout_ms
        quorum = await broker.controller.describe_quorum(timeout_ms=timeout_ms)
    now_ms = broker.clock.wall_ms()
    unknown = code_and_message(UnknownTopicOrPartition())

    def of_topic(
        topic: "requests.DescribeQuorumRequest.TopicData",
    ) -> "responses.DescribeQuorum.TopicData":
        def of_partition(
            partition: "requests.DescribeQuorumRequest.PartitionData",
        ) -> "responses.DescribeQuorum.PartitionData":
            index = partition.partition_index
            if quorum is None or (topic.topic_name, index) != (METADATA_TOPIC, 0):
                return {"partition_index": index, **unknown}
            return _quorum_partition(quorum, now_ms)

        return {"topic_name": topic.topic_name, "partitions": Each(of_partition, topic.partitions)}

    voters = set() if quorum is None else {voter.node_id for voter in quorum.voters}
    brokers = broker.state.brokers
    return {
        "topics": Each(of_topic, request.topics),
        "nodes": [
            {
                "node_id": node,
                "listeners": [
                    {"name": name, "host": host, "port": port}
                    for name, host, port in brokers[node].advertised
                ],
            }
            for node in sorted(voters)
            if node in brokers
        ],
    }


def _names_quorum(request: "requests.DescribeQuorumRequest") -> Steps[bool]:
    counter = StepCounter()
    for topic in request.topics:
        for partition in topic.partitions:
            if (topic.topic_name, partition.partition_index) == (METADATA_TOPIC, 0):
                return True
            if counter.ends_step():
                yield
        if counter.ends_step():
            yield
    return False


def _quorum_partition(quorum: Quorum, now_ms: int) -> "responses.DescribeQuorum.PartitionData":
    def wall_ms(age_ms: int) -> int:
        return UNKNOWN if age_ms == UNKNOWN else now_ms - age_ms

    return {
        "partition_index": 0,
        "leader_id": quorum.leader_id,
        "leader_epoch": quorum.term,
        "high_watermark": quorum.commit_index + 1,
        "current_voters": [
            {
                "replica_id": voter.node_id,
                "log_end_offset": voter.log_end,
                "last_fetch_timestamp": wall_ms(voter.contact_age_ms),
                "last_caught_up_timestamp": wall_ms(voter.caught_up_age_ms),
            }
            for voter in quorum.voters
        ],
        "observers": [],
    }


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    altering = (on_cluster(AclOperation.ALTER),)
    describing = (on_cluster(AclOperation.DESCRIBE),)
    return (
        control_api(
            api_keys.DESCRIBE_LOG_DIRS,
            (1, 5),
            describe_log_dirs,
            code_only,
            rights=describing,
            answer_bytes=_log_dirs_bytes,
        ),
        control_api(
            api_keys.ELECT_LEADERS, (0, 2), elect_leaders, _election_error, rights=altering
        ),
        control_api(
            api_keys.ALTER_PARTITION_REASSIGNMENTS,
            (0, 1),
            alter_partition_reassignments,
            code_with_message,
            rights=altering,
        ),
        control_api(
            api_keys.LIST_PARTITION_REASSIGNMENTS,
            (0, 0),
            list_partition_reassignments,
            code_with_message,
            rights=describing,
            answer_bytes=_reassignments_bytes,
        ),
        control_api(
            api_keys.DESCRIBE_QUORUM, (0, 2), describe_quorum, code_with_message, rights=describing
        ),
    )
