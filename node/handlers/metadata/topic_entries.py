"""The entry of one existing, missing, or denied topic in a Metadata answer."""

from typing import TypedDict

from ....coordinator.metadata.cluster_model import NO_LEADER, PartitionRegistration, Topic
from ....coordinator.metadata.cluster_state import ClusterState
from ....coordinator.metadata.topic_names import why_invalid
from ....runtime.steps import StepCounter, Steps
from ....wire.errors import ErrorCode
from ....wire.messages import responses

ZERO_ID = bytes(16)
PARTITIONS_PER_STEP = 50


class MissingTopic(TypedDict):
    """The entry of a missing topic."""

    error_code: int
    name: str
    is_internal: bool


def denied_topic(asked: str | bytes) -> "responses.Metadata.MetadataResponseTopic":
    """Return the entry of a denied topic, with only the name or the id of the request."""
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if isinstance(asked, bytes):
        return {"error_code": error, "name": None, "topic_id": asked}
    return {"error_code": error, "name": asked}


def topic_values(
    state: ClusterState, topic: Topic, version: int, counter: StepCounter
) -> "Steps[responses.Metadata.MetadataResponseTopic]":
    """Return the entry of a topic with all its partitions, in the format of Metadata."""
    partitions: list[responses.Metadata.MetadataResponsePartition] = []
    for index, partition in enumerate(topic.partitions):
        partitions.append(partition_values(state, index, partition, hides_dead=version == 0))
        if counter.ends_step():
            yield
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": partitions,
    }


def partition_values(
    state: ClusterState, index: int, partition: PartitionRegistration, *, hides_dead: bool = False
) -> "responses.Metadata.MetadataResponsePartition":
    """Return the entry of one partition in a Metadata answer.

    hides_dead: omit replicas on dead brokers and report an error, as in version 0.
    """
    offline = [
        node
        for node in partition.replicas
        if (broker := state.brokers.get(node)) is None or broker.is_fenced
    ]
    replicas, isr = partition.replicas, partition.isr
    error = ErrorCode.NONE
    if partition.leader == NO_LEADER:
        error = ErrorCode.LEADER_NOT_AVAILABLE
    if hides_dead and offline:
        replicas = tuple(node for node in replicas if node not in offline)
        isr = tuple(node for node in isr if node not in offline)
        error = error or ErrorCode.REPLICA_NOT_AVAILABLE
    return {
        "error_code": error,
        "partition_index": index,
        "leader_id": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "replica_nodes": replicas,
        "isr_nodes": isr,
        "offline_replicas": offline,
    }


def missing_topic(name: str, error: int | None = None) -> MissingTopic:
    """Return the entry of a topic that is missing or has an invalid name."""
    if error is None:
        error = (
            ErrorCode.INVALID_TOPIC_EXCEPTION
            if why_invalid(name)
            else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    return {
        "error_code": error,
        "name": name,
        "is_internal": Topic(name, ZERO_ID, [], {}).is_internal,
    }
