"""The APIs to create, extend and delete topics, which any broker forwards to the controller.

CreateTopics 2-7      v4 accepts -1 for the default (KIP-464), v5 answers with the topic's configs
                      (KIP-525), v7 with its id.
DeleteTopics 1-6      v5 has error messages, v6 accepts ids (KIP-516).
CreatePartitions 0-3  KIP-195.

A request is answered when this broker's own metadata shows the change. Other brokers follow within
milliseconds. A request that timed out may still take effect.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ....coordinator.metadata.cluster_model import INTERNAL_TOPICS
from ....coordinator.metadata.cluster_state import ClusterState
from ....coordinator.metadata.commands import (
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    TopicReference,
)
from ....coordinator.metadata.results import Item
from ....runtime.steps import StepCounter, Steps, made
from ....wire.acls import AclOperation, ResourceType
from ....wire.errors import (
    ErrorCode,
    InvalidConfig,
    InvalidRequest,
    KafkaError,
    PolicyViolation,
    error_for,
)
from ....wire.framing import RequestHeader
from ....wire.messages import api_keys, requests, responses
from ....wire.messages.schema_encoder import Each
from ...listener.dispatch import Api, RequestContext, control_api
from ...listener.partial_decision import DecisionInPart
from ...security.rights import ByHandler, judge, on_cluster, on_each_topic
from ..answers import NO_ERROR, CodeAndMessage, code_and_message, of_each, outcome_of
from .config_entries import CONFIGS_MAX, effective_topic_configs
from .topic_ids import new_topic_id

ZERO_ID = bytes(16)
# The limit for one topic, which is the number of partitions that one command creates.
ASSIGNMENTS_MAX = 10_000
REFERENCES_FROM = 6  # versions of DeleteTopics with names or ids
TIMEOUT_MS_MIN = 100  # a shorter timeout would expire before most decisions
_MAY_DELETE = (on_each_topic(AclOperation.DELETE),)
# So that a topic without a decision never counts as a success.
UNDECIDED = Item(error=ErrorCode.UNKNOWN_SERVER_ERROR)


def bounded_timeout_ms(timeout_ms: int) -> int:
    """Return the client's timeout, limited to the allowed range."""
    return max(TIMEOUT_MS_MIN, min(timeout_ms, 10 * 60 * 1000))


async def create_topics(
    context: RequestContext, header: RequestHeader, request: "requests.CreateTopicsRequest"
) -> "responses.CreateTopics.Response":
    """Create topics, and return the result for each."""

    broker = context.broker

    def change(wanted: Sequence[NewTopic]) -> CreateTopics:
        return CreateTopics(tuple(wanted), request.validate_only)

    outcomes = await _decide(context, request, _wanted, change)
    configs = {topic.name: topic.configs for topic in request.topics}

    def answer(name: str) -> "responses.CreateTopics.CreatableTopicResult":
        item = outcomes[name]
        if item.error:
            return _refused_topic(name, outcome_of(item))
        given = {each.name: each.value for each in configs[name] if each.value is not None}
        if broker.authorizer is not None and not context.access.allows(
            AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name
        ):
            return _created_unseen(item)
        return _created(context, item, given)

    return {"topics": Each(answer, outcomes)}


async def _decide(
    context: RequestContext,
    request: Any,
    wanted_of: Callable[[Any], Any],
    command_of: Callable[[Sequence[Any]], CreateTopics | CreatePartitions],
) -> dict[str, Item]:
    """Return the result for each topic of a request, from the checks here or from the controller.

    wanted_of: returns a topic's part of the command, or raises a KafkaError, which becomes its
    result. command_of: returns the command with these parts.
    """
    work, times = context.broker.work, Counter(topic.name for topic in request.topics)
    outcomes = dict.fromkeys(times, UNDECIDED)
    wanted: list[Any] = []

    def sort(topic: Any) -> None:
        try:
            if times[topic.name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            wanted.append(wanted_of(topic))
        except KafkaError as error:
            outcomes[topic.name] = Item(error=error.number, message=str(error))

    await work.finish("topics", made(sort, request.topics))
    if wanted:
        result = await context.broker.controller.submit(
            command_of(wanted), timeout_ms=bounded_timeout_ms(request.timeout)
        )
        if result.error:
            failed = Item(error=result.error, message=result.message)
            outcomes |= dict.fromkeys((topic.name for topic in wanted), failed)
        outcomes |= {item.name: item for item in result.items}
    return outcomes


def _wanted(topic: "requests.CreateTopicsRequest.CreatableTopic") -> NewTopic:
    if len(topic.configs) > CONFIGS_MAX or len(topic.assignments) > ASSIGNMENTS_MAX:
        raise InvalidRequest(
            f"A topic is created with at most {CONFIGS_MAX} configs and {ASSIGNMENTS_MAX} "
            "assigned partitions."
        )
    if nulls := [config.name for config in topic.configs if config.value is None]:
        raise InvalidConfig(f"Null value not supported for topic configs: {', '.join(nulls)}")
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


def _created_unseen(item: Item) -> "responses.CreateTopics.CreatableTopicResult":
    """Return a created topic without its configs, which the client may not describe."""
    return {
        "name": item.name,
        "topic_id": item.topic_id,
        **NO_ERROR,
        "topic_config_error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": None,
    }


def _refused_topic(
    name: str, error: CodeAndMessage
) -> "responses.CreateTopics.CreatableTopicResult":
    return {"name": name, **error, "num_partitions": -1, "replication_factor": -1, "configs": []}


async def delete_topics(
    context: RequestContext, header: RequestHeader, request: "requests.DeleteTopicsRequest"
) -> "responses.DeleteTopics.Response":
    """Delete the topics that the client may delete, and return the result for each.

    The rights on a topic id are those on the topic's name. If this broker does not know the id yet,
    it first applies all committed metadata. (In Kafka the controller checks the rights.)
    """
    broker = context.broker
    if broker.authorizer is None or header.api_version < REFERENCES_FROM:
        return await _delete_topics(context, header, request)
    finish = broker.work.finish
    if await finish("DeleteTopics", _names_unknown_id(broker.state, request)):
        timeout_ms = bounded_timeout_ms(request.timeout)
        await broker.controller.catch_up(broker.controller.now_ms() + timeout_ms)
    judging = judge(_MAY_DELETE, context.access, broker.state, request)
    verdict = await finish("DeleteTopics", judging)
    in_part = DecisionInPart(verdict, _delete_topics, _deletion_error, name="DeleteTopics")
    return await in_part.decide(context, header, request)


def _names_unknown_id(state: ClusterState, request: "requests.DeleteTopicsRequest") -> Steps[bool]:
    counter = StepCounter()
    for topic in request.topics:
        if topic.topic_id != ZERO_ID and state.topic_by_id(topic.topic_id) is None:
            return True
        if counter.ends_step():
            yield
    return False


async def _delete_topics(
    context: RequestContext, header: RequestHeader, request: "requests.DeleteTopicsRequest"
) -> "responses.DeleteTopics.Response":
    if header.api_version < REFERENCES_FROM:
        making = made(TopicReference, request.topic_names)
    else:
        making = made(_reference, request.topics)
    references = await context.broker.work.finish("DeleteTopics", making)
    if not context.broker.config.delete_topic_enable:
        is_old = header.api_version < 3
        code = ErrorCode.INVALID_REQUEST if is_old else ErrorCode.TOPIC_DELETION_DISABLED
        raise error_for(code, "Topic deletion is disabled.")
    if not references:
        return {"responses": []}
    result = await context.broker.controller.submit(
        DeleteTopics(tuple(references)), timeout_ms=bounded_timeout_ms(request.timeout)
    )
    if result.error:
        raise error_for(result.error, result.message)
    answers: dict[tuple[str | None, bytes], responses.DeleteTopics.DeletableTopicResult]
    answers = {}  # Kafka reports a topic that is requested twice only once

    def answer(outcome: tuple[TopicReference, Item]) -> None:
        reference, item = outcome
        name = item.name or reference.name
        topic_id = item.topic_id or ZERO_ID
        answers[name, topic_id] = {"name": name, "topic_id": topic_id, **outcome_of(item)}

    outcomes = zip(references, result.items, strict=True)
    await context.broker.work.finish("DeleteTopics", made(answer, outcomes))
    return {"responses": list(answers.values())}


def _reference(topic: "requests.DeleteTopicsRequest.DeleteTopicState") -> TopicReference:
    return TopicReference(topic.name, b"" if topic.topic_id == ZERO_ID else topic.topic_id)


async def create_partitions(
    context: RequestContext, header: RequestHeader, request: "requests.CreatePartitionsRequest"
) -> "responses.CreatePartitions.Response":
    """Add partitions to topics, placed by the cluster or by the client.

    Difference from Kafka (KAFKA-14418): __consumer_offsets cannot be extended. The number of its
    partitions determines the partition of each group, so groups would lose their offsets and
    transactions.
    """

    def change(wanted: Sequence[MorePartitions]) -> CreatePartitions:
        return CreatePartitions(tuple(wanted), request.validate_only)

    outcomes = await _decide(context, request, _more, change)

    def answer(name: str) -> "responses.CreatePartitions.CreatePartitionsTopicResult":
        return {"name": name, **outcome_of(outcomes[name])}

    return {"results": Each(answer, outcomes)}


def _more(topic: "requests.CreatePartitionsRequest.CreatePartitionsTopic") -> MorePartitions:
    if topic.name in INTERNAL_TOPICS:
        raise PolicyViolation(
            "Groups are spread over the partitions of this topic: with more of them the offsets "
            "that are committed would not be found. Its number of partitions stays as it is."
        )
    assignments = topic.assignments
    if assignments is not None:
        if len(assignments) > ASSIGNMENTS_MAX:
            raise InvalidRequest(f"At most {ASSIGNMENTS_MAX} partitions are assigned.")
        assignments = tuple(tuple(assignment.broker_ids) for assignment in assignments)
    return MorePartitions(topic.name, topic.count, assignments)


def _not_created(
    topic: "requests.CreateTopicsRequest.CreatableTopic", error: KafkaError
) -> "responses.CreateTopics.CreatableTopicResult":
    return _refused_topic(topic.name, code_and_message(error))


def _deletion_error(
    request: "requests.DeleteTopicsRequest", error: KafkaError
) -> "responses.DeleteTopics.Response":
    refusal = code_and_message(error)
    if not hasattr(request, "topics"):
        return {"responses": Each(lambda name: {"name": name, **refusal}, request.topic_names)}
    return {
        "responses": Each(
            lambda topic: {"name": topic.name, "topic_id": topic.topic_id, **refusal},
            request.topics,
        )
    }


def _not_extended(
    topic: "requests.CreatePartitionsRequest.CreatePartitionsTopic", error: KafkaError
) -> "responses.CreatePartitions.CreatePartitionsTopicResult":
    return {"name": topic.name, **code_and_message(error)}


def apis() -> tuple[Api, ...]:
    """Return this file's rows of the API table."""
    return (
        control_api(
            api_keys.CREATE_TOPICS,
            (2, 7),
            create_topics,
            of_each("topics", "topics", _not_created),
            rights=(
                on_each_topic(AclOperation.CREATE, unless=on_cluster(AclOperation.CREATE)),
                ByHandler(((AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC),)),
            ),
        ),
        control_api(
            api_keys.DELETE_TOPICS,
            (1, 6),
            delete_topics,
            _deletion_error,
            rights=(
                on_each_topic(AclOperation.DELETE, "topic_names"),
                ByHandler(((AclOperation.DELETE, ResourceType.TOPIC),)),
            ),
        ),
        control_api(
            api_keys.CREATE_PARTITIONS,
            (0, 3),
            create_partitions,
            of_each("results", "topics", _not_extended),
            rights=(on_each_topic(AclOperation.ALTER),),
        ),
    )
