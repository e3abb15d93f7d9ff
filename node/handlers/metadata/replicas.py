"""Where partitions live, who leads them, and who decides that.

ElectLeaders 0-2                  KIP-183; v1 unclean elections (KIP-460).
AlterPartitionReassignments 0-1   KIP-455; v1 can forbid another replication factor (KIP-1073).
ListPartitionReassignments 0      KIP-455.
DescribeLogDirs 1-5               v3 top-level error, v4 size of the volume (KIP-827), v5 cordoned.
DescribeQuorum 0-2                KIP-595; v1 times (KIP-836), v2 nodes (KIP-853). The quorum is the
                                  Raft group of the metadata; its offsets are log indexes. Any
                                  broker answers, as in Kafka: it asks the leader.
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
from ....wire.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    UnknownTopicOrPartition,
    error_for,
)
from ....wire.framing import RequestHeader
from ....wire.messages.control import Each
from ....wire.steps import StepCounter, Steps, made
from ...listener.dispatch import Api, RequestContext, Values, control_api
from ..transactions.producers import named_partitions
from .cluster import code_and_message
from .topics import timeout_of

PARTITIONS_A_STEP = 100
METADATA_TOPIC = "__cluster_metadata"


async def elect_leaders(context: RequestContext, header: RequestHeader, request: Any) -> Values:
    """Per partition: elected, not needed, or why not."""
    election_type = getattr(request, "election_type", PREFERRED)
    if election_type not in (PREFERRED, UNCLEAN):
        raise InvalidRequest(f"Unknown election type {election_type}")
    if request.topic_partitions is not None:
        naming = named_partitions((t.topic, t.partitions) for t in request.topic_partitions)
        partitions = await context.broker.work.finish("ElectLeaders", naming)
        if not partitions:
            return {"replica_election_results": []}
    else:  # by name, which can be split, those that may need one
        state = context.broker.state
        partitions = sorted([*state.leaderless_partitions(), *state.imbalanced_partitions()])
    result = await context.broker.controller.submit(
        ElectLeaders(election_type, tuple(partitions) or None), timeout_ms=timeout_of(request)
    )
    if result.error:
        raise error_for(result.error, result.message)
    names_all = request.topic_partitions is not None
    items = result.items if names_all else filter(_was_needed, result.items)
    results = _election_results(items)
    return {"replica_election_results": await context.broker.work.finish("ElectLeaders", results)}


def _was_needed(item: Item) -> bool:
    return item.error != ErrorCode.ELECTION_NOT_NEEDED


def _election_results(items: Iterable[Item]) -> Steps[Each]:
    by_topic: dict[str, list[Item]] = defaultdict(list)
    counter = StepCounter()
    for item in items:
        by_topic[item.name].append(item)
        if counter.ends_step():
            yield
    return Each(_election_topic, by_topic.items())


def _election_topic(outcome: tuple[str, list[Item]]) -> dict[str, Any]:
    topic, items = outcome
    return {"topic": topic, "partition_result": Each(_election_result, items)}


def _election_result(item: Item) -> dict[str, Any]:
    return {"partition_id": item.partition, **_error_of(item)}


def _election_error(request: Any, error: KafkaError) -> Values:
    def of_topic(topic: Any) -> dict[str, Any]:
        return {"topic": topic.topic, "partition_result": Each(refused, topic.partitions)}

    def refused(index: int) -> dict[str, Any]:
        return {"partition_id": index, **code_and_message(error)}

    topics = Each(of_topic, request.topic_partitions or ())
    return {"error_code": error.number, "replica_election_results": topics}


async def alter_partition_reassignments(
    context: RequestContext, header: RequestHeader, request: Any
) -> Values:
    """Per partition: its move began, or was taken back, or why not."""
    making = made(_reassignment, ((t.name, p) for t in request.topics for p in t.partitions))
    wanted = await context.broker.work.finish("AlterPartitionReassignments", making)
    items: Iterable[Item] = ()
    may_change_factor = getattr(request, "allow_replication_factor_change", True)
    if wanted:
        result = await context.broker.controller.submit(
            AlterPartitionReassignments(tuple(wanted), may_change_factor),
            timeout_ms=timeout_of(request),
        )
        if result.error:
            raise error_for(result.error, result.message)
        items = result.items
    in_order = iter(items)

    def answer(topic: Any) -> dict[str, Any]:
        outcomes = list(islice(in_order, len(topic.partitions)))
        return {"name": topic.name, "partitions": Each(_outcome, outcomes)}

    answering = made(answer, request.topics)
    return {
        "error_message": None,
        "allow_replication_factor_change": may_change_factor,
        "responses": await context.broker.work.finish("AlterPartitionReassignments", answering),
    }


def _reassignment(wanted: tuple[str, Any]) -> Reassignment:
    name, partition = wanted
    replicas = None if partition.replicas is None else tuple(partition.replicas)
    return Reassignment(name, partition.partition_index, replicas)


def _outcome(item: Item) -> dict[str, Any]:
    return {"partition_index": item.partition, **_error_of(item)}


def list_partition_reassignments(
    context: RequestContext, header: RequestHeader, request: Any
) -> Steps[Values]:
    """The moves that are under way, as this broker knows them."""
    state = context.broker.state
    asked = (
        None
        if request.topics is None
        else (yield from _asked((t.name, t.partition_indexes) for t in request.topics))
    )
    by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, (name, index) in enumerate(sorted(state.reassigning_partitions()), 1):
        if number % PARTITIONS_A_STEP == 0:
            yield
        partition = state.partition(name, index)
        if partition is not None and (asked is None or index in asked[name]):
            by_topic[name].append(
                {
                    "partition_index": index,
                    "replicas": partition.replicas,
                    "adding_replicas": partition.adding,
                    "removing_replicas": partition.removing,
                }
            )
    return {
        "error_message": None,
        "topics": [
            {"name": name, "partitions": partitions} for name, partitions in by_topic.items()
        ],
    }


def _asked(topics: Iterable[tuple[str, Iterable[int]]]) -> Steps[dict[str, set[int]]]:
    asked: dict[str, set[int]] = defaultdict(set)
    counter = StepCounter()
    for name, indexes in topics:
        asked[name].update(indexes)
        if counter.ends_step():
            yield
    return asked


def describe_log_dirs(
    context: RequestContext, header: RequestHeader, request: Any
) -> Steps[Values]:
    """The data directory: its partitions and their sizes, the volume's size and room."""
    asked = (
        None
        if request.topics is None
        else (yield from _asked((t.topic, t.partitions) for t in request.topics))
    )
    by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, hosted in enumerate(context.broker.replicas, 1):
        if number % PARTITIONS_A_STEP == 0:
            yield
        if asked is None or hosted.index in asked[hosted.topic]:
            log = hosted.log
            by_topic[hosted.topic].append(
                {
                    "partition_index": hosted.index,
                    "partition_size": log.size_bytes,
                    "offset_lag": max(0, log.high_watermark - log.log_end_offset),
                }
            )
    directory = context.broker.config.log_directory
    volume = {"log_dir": str(directory.absolute())}
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return {"results": [volume | {"error_code": ErrorCode.KAFKA_STORAGE_ERROR}]}
    return {
        "results": [
            volume
            | {
                "topics": [
                    {"name": name, "partitions": partitions}
                    for name, partitions in sorted(by_topic.items())
                ],
                "total_bytes": usage.total,
                "usable_bytes": usage.free,
            }
        ]
    }


async def describe_quorum(context: RequestContext, header: RequestHeader, request: Any) -> Values:
    """Who leads the metadata, and how far its voters are; only its leader knows, so it is asked."""
    broker = context.broker
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    if await broker.work.finish("DescribeQuorum", _names_quorum(request)):
        timeout_ms = broker.config.request_timeout_ms
        quorum = await broker.controller.describe_quorum(timeout_ms=timeout_ms)
        rows[METADATA_TOPIC, 0] = _quorum_partition(quorum, broker.clock.wall_ms())
    unknown = code_and_message(UnknownTopicOrPartition())

    def of_topic(topic: Any) -> dict[str, Any]:
        def of_partition(partition: Any) -> dict[str, Any]:
            index = partition.partition_index
            return {"partition_index": index} | rows.get((topic.topic_name, index), unknown)

        return {"topic_name": topic.topic_name, "partitions": Each(of_partition, topic.partitions)}

    voters = {voter["replica_id"] for row in rows.values() for voter in row["current_voters"]}
    brokers = broker.state.brokers
    return {
        "topics": Each(of_topic, request.topics),
        "nodes": [
            {
                "node_id": node,
                "listeners": [
                    {
                        "name": context.listener,
                        "host": brokers[node].host,
                        "port": brokers[node].port,
                    }
                ],
            }
            for node in sorted(voters)
            if node in brokers
        ],
    }


def _names_quorum(request: Any) -> Steps[bool]:
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


def _quorum_partition(quorum: Quorum, now_ms: int) -> dict[str, Any]:
    def wall_ms(age_ms: int) -> int:
        return UNKNOWN if age_ms == UNKNOWN else now_ms - age_ms

    return {
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


def _error_of(item: Item) -> dict[str, Any]:
    if not item.error:
        return {"error_code": ErrorCode.NONE, "error_message": None}
    return code_and_message(error_for(item.error, item.message))


def _code_and_message(request: Any, error: KafkaError) -> Values:
    return code_and_message(error)


def apis() -> tuple[Api, ...]:
    """The rows of this file."""
    return (
        control_api(35, (1, 5), describe_log_dirs, _code_and_message),
        control_api(43, (0, 2), elect_leaders, _election_error),
        control_api(45, (0, 1), alter_partition_reassignments, _code_and_message),
        control_api(46, (0, 0), list_partition_reassignments, _code_and_message),
        control_api(55, (0, 2), describe_quorum, _code_and_message),
    )
