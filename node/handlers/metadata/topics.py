"""Topics come, grow, and go; any broker takes the request and has the controller decide.

CreateTopics 2-7      v4 takes -1 for "the default" (KIP-464), v5 answers with the topic's configs
                      (KIP-525), v7 with its id.
DeleteTopics 1-6      v5 explains errors, v6 takes ids (KIP-516).
CreatePartitions 0-3  KIP-195.

An answer leaves when this broker's own metadata shows the change; other brokers follow within
milliseconds. A request that timed out may still take effect.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial

from ....coordinator.metadata.cluster_model import INTERNAL_TOPICS
from ....coordinator.metadata.commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    TopicReference,
)
from ....coordinator.metadata.results import Item, Result
from ....wire.errors import ErrorCode, KafkaError, error_for
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ....wire.messages.schema_encoder import Each
from ....wire.steps import made
from ...listener.dispatch import Api, RequestContext, control_api
from .cluster import NO_ERROR, CodeAndMessage, code_and_message
from .config_entries import CONFIGS_MAX, effective_topic_configs
from .topic_ids import new_topic_id

ZERO_ID = bytes(16)
ASSIGNMENTS_MAX = 10_000  # of one topic, as many as one command creates partitions
TIMEOUT_MS_MIN = 100  # a shorter one would time out what has been done


def bounded_timeout_ms(timeout_ms: int) -> int:
    """How long the client wants to wait, in bounds."""
    return max(TIMEOUT_MS_MIN, min(timeout_ms, 10 * 60 * 1000))


async def create_topics(
    context: RequestContext, header: RequestHeader, request: "requests.CreateTopicsRequest"
) -> "responses.CreateTopics.Response":
    """Per topic: what came of it."""
    times = Counter(topic.name for topic in request.topics)
    refused: dict[str, KafkaError] = {}
    wanted: list[NewTopic] = []

    def sort(topic: "requests.CreateTopicsRequest.CreatableTopic") -> None:
        if times[topic.name] > 1:
            refused[topic.name] = error_for(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        elif len(topic.configs) > CONFIGS_MAX or len(topic.assignments) > ASSIGNMENTS_MAX:
            refused[topic.name] = error_for(
                ErrorCode.INVALID_REQUEST,
                f"A topic is created with at most {CONFIGS_MAX} configs and {ASSIGNMENTS_MAX} "
                "assigned partitions.",
            )
        elif nulls := [config.name for config in topic.configs if config.value is None]:
            refused[topic.name] = error_for(
                ErrorCode.INVALID_CONFIG,
                f"Null value not supported for topic configs: {', '.join(nulls)}",
            )
        else:
            wanted.append(_wanted(topic))

    await context.broker.work.finish("CreateTopics", made(sort, request.topics))
    items: dict[str, Item] = {}
    if wanted:
        result = await context.broker.controller.submit(
            CreateTopics(tuple(wanted), request.validate_only),
            timeout_ms=bounded_timeout_ms(request.timeout),
        )
        items = _by_name(result, [topic.name for topic in wanted])
    configs = {topic.name: topic.configs for topic in wanted}

    def answer(name: str) -> "responses.CreateTopics.CreatableTopicResult":
        if name in refused:
            return _refused_topic(name, code_and_message(refused[name]))
        if items[name].error:
            return _refused_topic(name, _error_of(items[name]))
        return _created(context, items[name], configs[name])

    return {"topics": Each(answer, times)}


def _wanted(topic: "requests.CreateTopicsRequest.CreatableTopic") -> NewTopic:
    return NewTopic(
        name=topic.name,
        topic_id=new_topic_id(),
        partition_count=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple(
            (assignment.partition_index, tuple(assignment.broker_ids))
            for assignment in topic.assignments
        ),
        configs={c.name: c.value for c in topic.configs if c.value is not None},
    )


def _created(
    context: RequestContext, item: Item, configs: dict[str, str]
) -> "responses.CreateTopics.CreatableTopicResult":
    return {
        "name": item.name,
        "topic_id": item.topic_id,
        **NO_ERROR,
        "num_partitions": item.partition_count,
        "replication_factor": item.replication_factor,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "read_only": False,
                "config_source": entry.source,
                "is_sensitive": False,
            }
            for entry in effective_topic_configs(context.broker, configs)
        ],
    }


def _refused_topic(
    name: str, error: CodeAndMessage
) -> "responses.CreateTopics.CreatableTopicResult":
    return {"name": name, **error, "num_partitions": -1, "replication_factor": -1, "configs": []}


async def delete_topics(
    context: RequestContext, header: RequestHeader, request: "requests.DeleteTopicsRequest"
) -> "responses.DeleteTopics.Response":
    """Per topic, asked for by name or by id."""
    if header.api_version < 6:
        making = made(TopicReference, request.topic_names)
    else:
        making = made(_reference, request.topics)
    references = await context.broker.work.finish("DeleteTopics", making)
    if not context.broker.config.delete_topic_enable:
        code = (
            ErrorCode.TOPIC_DELETION_DISABLED
            if header.api_version >= 3
            else ErrorCode.INVALID_REQUEST
        )
        error = code_and_message(error_for(code, "Topic deletion is disabled."))
        return {"responses": Each(partial(_deleted, error), references)}
    if not references:
        return {"responses": []}
    result = await context.broker.controller.submit(
        DeleteTopics(tuple(references)), timeout_ms=bounded_timeout_ms(request.timeout)
    )
    if result.error:
        error = code_and_message(error_for(result.error, result.message))
        return {"responses": Each(partial(_deleted, error), references)}
    answers: dict[tuple[str | None, bytes], responses.DeleteTopics.DeletableTopicResult]
    answers = {}  # Kafka says once what is wrong with a topic that is asked for twice

    def answer(outcome: tuple[TopicReference, Item]) -> None:
        reference, item = outcome
        name = item.name or reference.name
        topic_id = item.topic_id or ZERO_ID
        answers[name, topic_id] = {"name": name, "topic_id": topic_id, **_error_of(item)}

    outcomes = zip(references, result.items, strict=True)
    await context.broker.work.finish("DeleteTopics", made(answer, outcomes))
    return {"responses": list(answers.values())}


def _reference(topic: "requests.DeleteTopicsRequest.DeleteTopicState") -> TopicReference:
    return TopicReference(topic.name, b"" if topic.topic_id == ZERO_ID else topic.topic_id)


def _deleted(
    error: CodeAndMessage, reference: TopicReference
) -> "responses.DeleteTopics.DeletableTopicResult":
    return {"name": reference.name, "topic_id": reference.topic_id or ZERO_ID, **error}


async def create_partitions(
    context: RequestContext, header: RequestHeader, request: "requests.CreatePartitionsRequest"
) -> "responses.CreatePartitions.Response":
    """Per topic: more partitions, placed by the cluster or by the client.

    Against Kafka (KAFKA-14418): not of __consumer_offsets. Where a group's offsets are follows from
    their number; with another one they would not be found, and transactions be torn.
    """
    times = Counter(topic.name for topic in request.topics)
    wanted: list[MorePartitions] = []
    refused: dict[str, CodeAndMessage] = {}
    too_many = code_and_message(
        error_for(ErrorCode.INVALID_REQUEST, f"At most {ASSIGNMENTS_MAX} partitions are assigned.")
    )
    fixed = code_and_message(
        error_for(
            ErrorCode.POLICY_VIOLATION,
            "Groups are spread over the partitions of this topic: with more of them the offsets "
            "that are committed would not be found. Its number of partitions stays as it is.",
        )
    )

    def sort(topic: "requests.CreatePartitionsRequest.CreatePartitionsTopic") -> None:
        if topic.name in INTERNAL_TOPICS:
            refused[topic.name] = fixed
        elif len(topic.assignments or ()) > ASSIGNMENTS_MAX:
            refused[topic.name] = too_many
        elif times[topic.name] == 1:
            wanted.append(_more(topic))

    await context.broker.work.finish("CreatePartitions", made(sort, request.topics))
    items: dict[str, Item] = {}
    if wanted:
        result = await context.broker.controller.submit(
            CreatePartitions(tuple(wanted), request.validate_only),
            timeout_ms=bounded_timeout_ms(request.timeout),
        )
        items = _by_name(result, [topic.name for topic in wanted])
    duplicate = code_and_message(error_for(ErrorCode.INVALID_REQUEST, "Duplicate topic name."))

    def answer(name: str) -> "responses.CreatePartitions.CreatePartitionsTopicResult":
        if name in refused:
            return {"name": name, **refused[name]}
        return {"name": name, **(_error_of(items[name]) if name in items else duplicate)}

    return {"results": Each(answer, times)}


def _more(topic: "requests.CreatePartitionsRequest.CreatePartitionsTopic") -> MorePartitions:
    assignments = topic.assignments
    if assignments is not None:
        assignments = tuple(tuple(assignment.broker_ids) for assignment in assignments)
    return MorePartitions(topic.name, topic.count, assignments)


def _by_name(result: Result, names: Sequence[str]) -> dict[str, Item]:
    """The items of a result; all of them the same when the command failed as a whole."""
    if result.error:
        return {name: Item(name=name, error=result.error, message=result.message) for name in names}
    items = {item.name: item for item in result.items}
    assert items.keys() == set(names), "the controller answered for other topics"
    return items


def _error_of(item: Item) -> CodeAndMessage:
    if not item.error:
        return NO_ERROR
    return code_and_message(error_for(item.error, item.message))


def _creation_error(
    request: "requests.CreateTopicsRequest", error: KafkaError
) -> "responses.CreateTopics.Response":
    refusal = code_and_message(error)
    return {"topics": Each(lambda topic: _refused_topic(topic.name, refusal), request.topics)}


def _deletion_error(
    request: "requests.DeleteTopicsRequest", error: KafkaError
) -> "responses.DeleteTopics.Response":
    refusal = code_and_message(error)
    if not hasattr(request, "topics"):
        return {"responses": Each(lambda name: {"name": name, **refusal}, request.topic_names)}
    return {"responses": Each(lambda topic: _deleted(refusal, _reference(topic)), request.topics)}


def _extension_error(
    request: "requests.CreatePartitionsRequest", error: KafkaError
) -> "responses.CreatePartitions.Response":
    refusal = code_and_message(error)
    return {"results": Each(lambda topic: {"name": topic.name, **refusal}, request.topics)}


def apis() -> tuple[Api, ...]:
    """The rows of this file."""
    return (
        control_api(api_keys.CREATE_TOPICS, (2, 7), create_topics, _creation_error),
        control_api(api_keys.DELETE_TOPICS, (1, 6), delete_topics, _deletion_error),
        control_api(api_keys.CREATE_PARTITIONS, (0, 3), create_partitions, _extension_error),
    )
