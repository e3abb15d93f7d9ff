"""The wait of control requests for partitions that this broker will soon lead."""

from collections.abc import Callable, Iterable, Iterator
from inspect import iscoroutine
from typing import Any, TypeVar

from ...runtime.steps import StepCounter, Steps, begin_steps
from ...wire.framing import RequestHeader
from ...wire.identifiers import TopicPartition
from ...wire.messages.apis import API_NAMES
from ..listener.dispatch import Decide, RequestContext
from ..partitions.awaited_leaders import WAIT_MS_MAX
from ..partitions.replica_manager import ReplicaManager

PARTITIONS_PER_STEP = 100  # about 0.1 ms
Request = TypeVar("Request")
Response = TypeVar("Response")


def when_led(
    decide: Decide[Request, Response], named: Callable[[Any], Iterable[TopicPartition]]
) -> Decide[Request, Response]:
    """Return a handler that waits until this broker leads the partitions of a request.

    The handler then calls `decide`. Only partitions that this broker is about to lead are waited
    for (`awaited_leaders`). named: returns the partitions of a request. The timeout in the request
    limits the wait.
    """

    def decide_when_led(context: RequestContext, header: RequestHeader, request: Request) -> Any:
        is_done, found = begin_steps(_awaited(context.broker.replicas, named(request)))
        if is_done and not found:
            return decide(context, header, request)
        return wait(context, header, request, is_done, found)

    async def wait(
        context: RequestContext, header: RequestHeader, request: Request, is_done: bool, found: Any
    ) -> Any:
        work, name = context.broker.work, API_NAMES[header.api_key]
        awaited = context.broker.replicas.awaited
        deadline_ms = awaited.deadline_ms(getattr(request, "timeout", WAIT_MS_MAX))
        await awaited.wait(found if is_done else await work.run(name, found), deadline_ms)
        values: Any = decide(context, header, request)
        # `decide` may return steps, which build the answer later.
        return await values if iscoroutine(values) else values

    return decide_when_led


def named_partitions(request: Any) -> Iterator[TopicPartition]:
    """Return the partitions of a request with the topic fields `name` and `partitions`."""
    return (
        (topic.name, wanted.partition_index)
        for topic in request.topics
        for wanted in topic.partitions
    )


def named_indexes(request: Any) -> Iterator[TopicPartition]:
    """Return the partitions of a request with the topic fields `name` and `partition_indexes`."""
    return ((topic.name, index) for topic in request.topics for index in topic.partition_indexes)


def _awaited(
    replicas: ReplicaManager, named: Iterable[TopicPartition]
) -> Steps[dict[TopicPartition, None]]:
    # Without duplicates, since a request may repeat a partition a million times.
    found: dict[TopicPartition, None] = {}
    counter = StepCounter(PARTITIONS_PER_STEP)
    for topic, index in named:
        hosted = replicas.get(topic, index)
        if (hosted is None or hosted.leader is None) and replicas.awaited.is_awaited(topic, index):
            found[topic, index] = None
        if counter.ends_step():
            yield
    return found
