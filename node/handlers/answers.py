"""Parts that the answers of several APIs have in common."""

import logging
from collections.abc import Callable, Iterable
from typing import Any, TypedDict, TypeVar

from ...coordinator.metadata.results import Item
from ...runtime.steps import MADE_A_STEP, StepCounter, Steps
from ...wire.errors import ErrorCode, KafkaError, error_for
from ...wire.framing import Buffer
from ...wire.messages.schema_encoder import Each
from ..listener.large_answers import ENTRY_BYTES
from ..listener.pending_answer import PendingAnswer

logger = logging.getLogger(__name__)
Asked = TypeVar("Asked")
# The fields that identify a topic; an API has one or two of them, depending on the version.
_TOPIC_NAMES = ("name", "topic", "topic_id")


class CodeAndMessage(TypedDict):
    """The error code and the error message of an answer."""

    error_code: int
    error_message: str | None


NO_ERROR: CodeAndMessage = {"error_code": ErrorCode.NONE, "error_message": None}


def code_and_message(error: KafkaError) -> CodeAndMessage:
    return {"error_code": error.number, "error_message": str(error)}


def outcome_of(item: Item) -> CodeAndMessage:
    """Return the error code and message of the controller's result for a topic or partition."""
    return code_and_message(error_for(item.error, item.message)) if item.error else NO_ERROR


def named(topic: Any, partitions: list[Any]) -> Any:
    return {"name": topic.name, "partitions": partitions}


def nested(
    topics: Iterable[Any],
    answer: Callable[[Any, Any], Any],
    entry: Callable[[Any, list[Any]], Any] = named,
    at_a_step: int = MADE_A_STEP,
) -> Steps[list[Any]]:
    """Return `entry(topic, answers)` for each topic of a request, in steps of `at_a_step` items.

    `entry` gets an empty list, which is filled afterwards with `answer(topic, partition)` for each
    partition of the topic.
    """
    entries: list[Any] = []
    counter = StepCounter(at_a_step)
    for topic in topics:
        answers: list[Any] = []
        entries.append(entry(topic, answers))
        if counter.ends_step():
            yield
        for wanted in topic.partitions:
            answers.append(answer(topic, wanted))
            if counter.ends_step():
                yield
    return entries


def completing(
    pending: PendingAnswer, encode: Callable[[Any], Buffer], broken: Any
) -> Callable[[Any], None]:
    """Return a function that encodes an answer and completes the waiting request `pending` with it.

    broken: the answer to send if the argument cannot be encoded. If `broken` cannot be encoded
    either, the connection is closed.
    """

    def complete(answer: Any) -> None:
        try:
            body = encode(answer)
        except Exception:
            logger.exception("an answer cannot be encoded, so an error is sent instead")
            try:
                body = encode(broken)
            except Exception as error:
                return pending.abort(f"the answer could not be encoded: {error!r}")
        pending.complete([body])

    return complete


def entries_bytes(count: Callable[[Asked], int], items: Iterable[Asked]) -> Steps[int]:
    """Return the estimated memory of an answer that has `count(item)` entries for each item."""
    entries = 0
    counter = StepCounter()
    for item in items:
        entries += count(item)
        if counter.ends_step():
            yield
    return entries * ENTRY_BYTES


# -- errors of a whole request: see `dispatch.control_api`, on_error


def code_only(request: object, error: KafkaError) -> Any:
    return {"error_code": error.number}


def code_with_message(request: object, error: KafkaError) -> Any:
    return code_and_message(error)


def of_each(
    answers: str, asked: str, refuse: Callable[[Any, KafkaError], Any]
) -> Callable[[Any, KafkaError], Any]:
    """Return an `on_error` function that answers each item of the request with the error.

    asked: the name of the array of items in the request.
    answers: the name of the array in the answer.
    refuse: returns the answer to one item.
    """

    def refuse_all(request: Any, error: KafkaError) -> Any:
        return {answers: Each(lambda each: refuse(each, error), getattr(request, asked))}

    return refuse_all


def of_partition(wanted: Any, error: KafkaError) -> Any:
    return {"partition_index": wanted.partition_index, "error_code": error.number}


def of_each_partition(
    refuse: Callable[[Any, KafkaError], Any] = of_partition, asked: str = "partitions"
) -> Callable[[Any, KafkaError], Any]:
    """Return an `on_error` function that answers each partition of each topic with the error.

    asked: the name of the array of partitions in a topic of the request.
    """

    def of_topic(topic: Any, error: KafkaError) -> Any:
        names = {name: getattr(topic, name) for name in _TOPIC_NAMES if hasattr(topic, name)}
        return names | of_each("partitions", asked, refuse)(topic, error)

    return of_each("topics", "topics", of_topic)
