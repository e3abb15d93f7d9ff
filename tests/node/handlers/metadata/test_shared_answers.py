"""Test that equal requests share a computation, unless the state changed after its begin."""

import asyncio
import itertools
from typing import Any

import pytest

from oncelog.coordinator.metadata.commands import (
    CreateTopics,
    DeleteTopics,
    NewTopic,
    TopicReference,
)
from oncelog.node.handlers.metadata import metadata
from oncelog.node.handlers.metadata.shared_answers import Computation, SharedAnswers
from oncelog.node.listener.dispatch import RequestContext
from oncelog.node.listener.large_answers import ENTRY_BYTES, WAITS_BEYOND_BYTES
from oncelog.node.listener.large_requests import Nobody
from oncelog.runtime.sliced_work import SlicedWork
from oncelog.wire.errors import ErrorCode

from ....awaiting import settle
from ...fake_broker import FakeBroker, request

METADATA, DESCRIBE_TOPIC_PARTITIONS = 3, 75
ALL_TOPICS = {
    METADATA: {"topics": None},
    DESCRIBE_TOPIC_PARTITIONS: {"topics": [], "response_partition_limit": 2_000, "cursor": None},
}
MANY = WAITS_BEYOND_BYTES // ENTRY_BYTES + 1  # entries of an answer that waits for its turn


class Asked:
    """Shared answers that show `state`. A computation ends when the test lets it continue."""

    def __init__(self) -> None:
        self.state = 0
        self.began: list[int] = []
        self.go_on = asyncio.Event()
        self.failure: Exception | None = None
        self.shared: SharedAnswers[int] = SharedAnswers(lambda: self.state)

    def ask(self, key: str = "all") -> "asyncio.Task[int]":
        return asyncio.ensure_future(self.shared.get(key, Nobody(), self._make))

    async def _make(self, computation: Computation[int]) -> int:
        await asyncio.sleep(0)  # its turn in the line of large answers
        computation.begin()
        state = self.state
        self.began.append(state)
        await self.go_on.wait()
        if self.failure is not None:
            raise self.failure
        return state

    async def end(self) -> None:
        self.go_on.set()
        await settle()
        self.go_on.clear()


async def test_shared_answer_without_a_state_change_is_computed_once_for_all_requests() -> None:
    asked = Asked()
    answers = [asked.ask()]
    await settle()
    answers += [asked.ask() for _ in range(9)]
    await settle()
    await asked.end()
    assert await asyncio.gather(*answers) == [0] * 10
    assert asked.began == [0]


async def test_shared_answer_requested_after_a_change_has_the_new_state() -> None:
    """All requests after the change share the next computation."""
    asked = Asked()
    before = asked.ask()
    await settle()
    after = []
    for asked.state in range(1, 6):
        after.append(asked.ask())
        await settle()
    assert asked.began == [0], "one at a time"
    await asked.end()
    assert await before == 0
    assert asked.began == [0, 5], "for any number of changes and requests"
    late = asked.ask()
    await settle()
    await asked.end()
    assert await asyncio.gather(*after, late) == [5] * 6


async def test_shared_answer_is_never_used_for_a_different_request() -> None:
    asked = Asked()
    answers = [asked.ask("a"), asked.ask("b")]
    await settle()
    assert asked.began == [0, 0]
    await asked.end()
    assert await asyncio.gather(*answers) == [0, 0]


async def test_shared_answer_is_not_cancelled_by_a_closed_client() -> None:
    asked = Asked()
    gone, stays = asked.ask(), asked.ask()
    await settle()
    gone.cancel()
    await settle()
    await asked.end()
    assert await stays == 0
    assert asked.began == [0]


async def test_shared_answer_error_reaches_all_requests_and_is_not_cached() -> None:
    asked = Asked()
    asked.failure = LookupError()
    answers = [asked.ask(), asked.ask()]
    await settle()
    await asked.end()
    assert all(isinstance(each.exception(), LookupError) for each in answers)
    asked.failure = None
    again = asked.ask()
    await settle()
    await asked.end()
    assert await again == 0


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the metadata version of each computation when it begins."""
    computed: list[int] = []
    values = metadata._values

    def counted(question: Any, errors: dict[str, int]) -> Any:
        computed.append(question.state.version)
        return values(question, errors)

    monkeypatch.setattr(metadata, "_values", counted)
    return computed


def create(broker: FakeBroker, name: str, partitions: int = 1) -> None:
    topic = NewTopic(name, name.encode().ljust(16), partitions, 3)
    broker.controller.apply(CreateTopics((topic,)))


async def test_shared_metadata_of_all_topics_is_computed_once_for_many_clients(
    broker: FakeBroker, computed: list[int]
) -> None:
    create(broker, "wide", MANY)
    contexts = [RequestContext(broker.services, number, "127.0.0.1") for number in range(20)]
    asked = [request(broker.dispatcher, c, METADATA, 12, {"topics": None}) for c in contexts]
    answers = [await each.value() for each in asked]
    assert len(computed) == 1
    assert all(len(answer.topics[0].partitions) == MANY for answer in answers)


@pytest.mark.parametrize(
    ("topics", "partitions"), [(1, 49), (1, 120), (25, 1), (3, 40), (60, 1), (120, 1)]
)
async def test_shared_metadata_answer_that_takes_several_turns_is_computed_once(
    broker: FakeBroker, computed: list[int], topics: int, partitions: int
) -> None:
    names = [f"t{number}" for number in range(topics)]
    for name in names:
        create(broker, name, partitions)
    question = {"topics": [{"name": each} for each in names], "allow_auto_topic_creation": False}
    contexts = [RequestContext(broker.services, number, "127.0.0.1") for number in range(20)]
    asked = [request(broker.dispatcher, each, METADATA, 9, question) for each in contexts]
    for each in asked:
        assert len((await each.value()).topics) == topics
    assert len(computed) == 1


async def test_shared_metadata_requested_after_a_change_shows_the_change(
    broker: FakeBroker, computed: list[int]
) -> None:
    create(broker, "wide", MANY)
    asked = [broker.request(METADATA, 12, {"topics": None})]
    while not computed:
        await asyncio.sleep(0)
    context = RequestContext(broker.services, 2, "127.0.0.1")
    for number in range(5):
        create(broker, f"new-{number}")
        asked.append(request(broker.dispatcher, context, METADATA, 12, {"topics": None}))
        names = {topic.name for topic in (await asked[-1].value()).topics}
        assert f"new-{number}" in names


def delete(broker: FakeBroker, name: str) -> None:
    broker.controller.apply(DeleteTopics((TopicReference(name),)))


async def test_shared_metadata_by_id_of_a_recreated_topic_does_not_show_the_new_topic(
    broker: FakeBroker, computed: list[int]
) -> None:
    create(broker, "wide", MANY)
    wide = broker.state.topics["wide"].topic_id
    asked = broker.request(METADATA, 12, {"topics": [{"name": None, "topic_id": wide}]})
    delete(broker, "wide")
    broker.controller.apply(CreateTopics((NewTopic("wide", b"another".ljust(16), 1, 3),)))
    (topic,) = (await asked.value()).topics
    assert (topic.error_code, topic.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, wide)


@pytest.mark.parametrize("key", [METADATA, DESCRIBE_TOPIC_PARTITIONS])
async def test_shared_metadata_of_all_topics_omits_a_topic_deleted_meanwhile(
    broker: FakeBroker, key: int
) -> None:
    ticks = itertools.count(0, 0.003)
    broker.services.work = SlicedWork(lambda: next(ticks)).clients  # a step a turn
    create(broker, "a", 2 * MANY)
    create(broker, "gone")
    asked = broker.request(key, 12 if key == METADATA else 0, ALL_TOPICS[key])
    while not broker.services.large_answers.in_work_bytes:
        await asyncio.sleep(0)
    await settle(3)
    delete(broker, "gone")
    assert not asked.is_there
    assert [topic.name for topic in (await asked.value()).topics] == ["a"]


async def test_shared_metadata_by_id_requested_after_a_change_shows_the_change(
    broker: FakeBroker,
) -> None:
    """The request joins the computation for an earlier request, which has not begun yet."""
    create(broker, "wide", MANY)
    ids = [name.ljust(16) for name in (b"wide", b"new")]
    question = {"topics": [{"name": None, "topic_id": each} for each in ids]}
    before = broker.request(METADATA, 12, question)
    create(broker, "new")
    context = RequestContext(broker.services, 2, "127.0.0.1")
    after = await request(broker.dispatcher, context, METADATA, 12, question).value()
    assert [topic.error_code for topic in after.topics] == [0, 0]
    assert [topic.error_code for topic in (await before.value()).topics] == [0, 0]


async def test_shared_metadata_for_closed_clients_is_not_computed(
    broker: FakeBroker, computed: list[int]
) -> None:
    """Answers for clients that close immediately would delay the requests of all others."""
    create(broker, "wide", MANY)
    contexts = [RequestContext(broker.services, number, "127.0.0.1") for number in range(20)]
    more = {"allow_auto_topic_creation": False}
    asked = []
    for number, context in enumerate(contexts):
        names = ["wide", f"none-{number // 2}"]  # each question comes from two clients
        question = {"topics": [{"name": name, "topic_id": bytes(16)} for name in names], **more}
        asked.append(request(broker.dispatcher, context, METADATA, 12, question))
    for context in contexts[:-1]:
        context.is_closed = True
    assert len((await asked[-1].value()).topics) == 2
    await settle()
    assert len(computed) == 1
