"""Test requests of the administration that are repeated after a lost answer."""

from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.client import Admin
from oncelog.wire.errors import (
    ErrorCode,
    KafkaError,
    NetworkException,
    UnknownServerError,
    UnknownTopicOrPartition,
)


class LossyView:
    """A view of one broker with scripted answers, each of which may be lost.

    A later answer shows whether a request with a lost answer has deleted its topics.
    """

    def __init__(self, *answers: dict[str, ErrorCode] | None) -> None:
        self.answers = list(answers)  # None: the answer is lost

    async def any_broker(self) -> "LossyView":
        return self

    async def retrying(self, attempt: Any, **_: Any) -> Any:
        while True:
            try:
                return await attempt()
            except KafkaError as problem:
                if not problem.retriable or not self.answers:
                    raise

    async def call(self, api_key: int, values: dict[str, Any]) -> SimpleNamespace:
        if (errors := self.answers.pop(0)) is None:
            raise NetworkException("the connection was lost")
        if api_key == ELECT_LEADERS:
            results = [SimpleNamespace(error_code=code) for code in errors.values()]
            topics = [SimpleNamespace(partition_result=results)]
            return SimpleNamespace(error_code=0, replica_election_results=topics)
        names = [name for name in values["topic_names"] if name in errors]
        return SimpleNamespace(
            responses=[SimpleNamespace(name=name, error_code=errors[name]) for name in names]
        )


ELECT_LEADERS = 43
UNKNOWN, MOVED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        ([{"a": ErrorCode.NONE}], type(None)),
        ([{"a": UNKNOWN}], UnknownTopicOrPartition),
        ([None, {"a": UNKNOWN}], type(None)),  # the first request has deleted the topic
        ([None, {"a": MOVED}, {"a": UNKNOWN}], type(None)),
        ([{"a": MOVED}, {"a": UNKNOWN}], UnknownTopicOrPartition),  # none of the requests has
        ([{"a": ErrorCode.REQUEST_TIMED_OUT}, {"a": UNKNOWN}], type(None)),
        ([{}], UnknownServerError),
    ],
)
async def test_delete_topics_each_returns_none_or_an_error_also_after_a_lost_answer(
    answers: Any, outcome: type
) -> None:
    admin = Admin("127.0.0.1:1")
    admin.view = LossyView(*answers)  # type: ignore[assignment]
    found = await admin.delete_topics_each(["a"])
    assert {name: type(problem) for name, problem in found.items()} == {"a": outcome}


async def test_elect_leaders_is_repeated_after_a_lost_answer() -> None:
    admin = Admin("127.0.0.1:1")
    admin.view = view = LossyView(None, {"a": ErrorCode.ELECTION_NOT_NEEDED})  # type: ignore[assignment]
    await admin.elect_leaders([("a", 0)])
    assert view.answers == []
