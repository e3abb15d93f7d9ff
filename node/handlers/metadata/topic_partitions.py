"""DescribeTopicPartitions 0, which returns pages of topics.

Each partition has its eligible leader replicas (KIP-966).
"""

from bisect import bisect_left
from typing import TYPE_CHECKING

from ....runtime.steps import StepCounter, Steps, made
from ....wire.acls import AclOperation, ResourceType
from ....wire.errors import ErrorCode, InvalidRequest, KafkaError
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ...listener.dispatch import Api, RequestContext, control_api
from ...listener.large_answers import ENTRY_BYTES
from ...security.rights import on_each_topic, shows_each
from ..answers import entries_bytes, of_each
from .cluster import operations_on
from .topic_entries import PARTITIONS_PER_STEP, missing_topic, partition_values

RIGHTS_TAKE = 10  # the check of a topic's rights takes as long as this number of partitions
if TYPE_CHECKING:
    _Topic = responses.DescribeTopicPartitions.DescribeTopicPartitionsResponseTopic
    _Partition = responses.DescribeTopicPartitions.DescribeTopicPartitionsResponsePartition


def describe_topic_partitions(
    context: RequestContext,
    header: RequestHeader,
    request: "requests.DescribeTopicPartitionsRequest",
) -> "Steps[responses.DescribeTopicPartitions.Response]":
    """Return topics in the order of their names, from the cursor on, up to the limit."""
    state, config = context.broker.state, context.broker.config
    cursor = request.cursor
    asked = set((yield from made(_name_of, request.topics)))
    names = sorted(asked or state.topics)
    if cursor is not None:
        names = names[bisect_left(names, cursor.topic_name) :]
        if asked and cursor.topic_name not in asked:
            raise InvalidRequest(
                "DescribeTopicPartitionsRequest topic list should contain the cursor topic: "
                f"{cursor.topic_name}"
            )
        if cursor.partition_index < 0:
            raise InvalidRequest(
                "DescribeTopicPartitionsRequest cursor partition must be valid: "
                f"{cursor.partition_index}"
            )
    limit = min(config.max_request_partition_size_limit, request.response_partition_limit)
    remaining = max(limit, 1)
    topics: list[_Topic] = []
    counter = StepCounter(PARTITIONS_PER_STEP)
    takes = 1 if context.broker.authorizer is None else RIGHTS_TAKE
    for name in names:
        if counter.ends_steps(takes):
            yield
        if remaining == 0:
            return _page(topics, name, 0)
        topic = state.topics.get(name)
        if topic is None and not asked:  # deleted after the answer was begun
            continue
        if topic is None:
            operations = operations_on(context, ResourceType.TOPIC, name)
            topics.append({**missing_topic(name), "topic_authorized_operations": operations})
            continue
        start = cursor.partition_index if cursor and cursor.topic_name == name else 0
        end = min(len(topic.partitions), start + remaining)
        partitions: list[_Partition] = []
        for index, partition in enumerate(topic.partitions[start:end], start):
            partitions.append(
                {
                    **partition_values(state, index, partition),  # without the ELR, as in Metadata
                    "error_code": ErrorCode.NONE,
                    "eligible_leader_replicas": partition.elr,
                    "last_known_elr": partition.last_known_elr,
                }
            )
            if counter.ends_step():
                yield
        topics.append(
            {
                "name": name,
                "topic_id": topic.topic_id,
                "is_internal": topic.is_internal,
                "partitions": partitions,
                "topic_authorized_operations": operations_on(context, ResourceType.TOPIC, name),
            }
        )
        if end < len(topic.partitions):
            return _page(topics, name, end)
        remaining -= max(0, end - start)
    return {"topics": topics}


def _answer_bytes(
    context: RequestContext, request: "requests.DescribeTopicPartitionsRequest"
) -> Steps[int]:
    topics = context.broker.state.topics

    def count(name: str) -> int:
        return 1 + len(topics[name].partitions) if name in topics else 1

    asked = map(_name_of, request.topics) if request.topics else list(topics)
    limit_bytes = context.broker.config.max_request_partition_size_limit * ENTRY_BYTES
    return min(limit_bytes, (yield from entries_bytes(count, asked)))


def _name_of(topic: "requests.DescribeTopicPartitionsRequest.TopicRequest") -> str:
    return topic.name


def _page(
    topics: "list[_Topic]", next_name: str, next_index: int
) -> "responses.DescribeTopicPartitions.Response":
    return {
        "topics": topics,
        "next_cursor": {"topic_name": next_name, "partition_index": next_index},
    }


def _failed(
    topic: "requests.DescribeTopicPartitionsRequest.TopicRequest", error: KafkaError
) -> "_Topic":
    return {"error_code": error.number, "name": topic.name}


def apis() -> tuple[Api, ...]:
    """Return this file's row of the API table."""
    return (
        control_api(
            api_keys.DESCRIBE_TOPIC_PARTITIONS,
            (0, 0),
            describe_topic_partitions,
            of_each("topics", "topics", _failed),
            rights=(
                on_each_topic(AclOperation.DESCRIBE),
                shows_each(
                    AclOperation.DESCRIBE, ResourceType.TOPIC, "topics", "name", asked="topics"
                ),
            ),
            answer_bytes=_answer_bytes,
        ),
    )
