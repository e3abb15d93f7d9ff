"""Test that large answers are built one at a time, after their size is charged to the budget."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from oncelog.coordinator.metadata.commands import CreateTopics, NewTopic
from oncelog.node.listener.large_answers import ENTRY_BYTES, WAITS_BEYOND_BYTES, LargeAnswers
from oncelog.node.listener.large_requests import ClientGone, Nobody
from oncelog.node.listener.memory_budget import MemoryBudget
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.apis import APIS
from oncelog.wire.security.scram_server import ScramCredential

from ...awaiting import settle, turns_until
from ..fake_broker import FakeBroker

LIST_GROUPS, DESCRIBE_CONFIGS = 16, 32
LARGE = 10 * WAITS_BEYOND_BYTES


class Making:
    """A large answer that is being built until `may_end` is set."""

    def __init__(self, line: LargeAnswers, budget: MemoryBudget, size_bytes: int) -> None:
        self.client, self.began = Nobody(), False
        self.may_end = asyncio.Event()
        self.error: Exception | None = None
        self.task = asyncio.ensure_future(self._make(line, budget, size_bytes))

    async def _make(self, line: LargeAnswers, budget: MemoryBudget, size_bytes: int) -> None:
        async with line.turn(self.client, budget, size_bytes):
            self.began = True
            await self.may_end.wait()
            if self.error is not None:
                raise self.error

    def leave(self) -> None:
        self.client.is_closed = True
        for callback in self.client.on_close:
            callback()


async def test_large_answers_are_built_one_after_the_other_and_charged_to_the_budget() -> None:
    line, budget = LargeAnswers(LARGE), MemoryBudget(100 * LARGE)
    made = [Making(line, budget, LARGE) for _ in range(3)]
    for number, each in enumerate(made):
        await settle()
        assert [other.began for other in made] == [other <= number for other in range(3)]
        assert budget.held_bytes == line.in_work_bytes == LARGE
        each.may_end.set()
    await asyncio.gather(*(each.task for each in made))
    assert budget.held_bytes == line.in_work_bytes == 0


async def test_small_answer_does_not_wait_for_a_large_answer() -> None:
    line, budget = LargeAnswers(LARGE), MemoryBudget(100 * LARGE)
    large, small = Making(line, budget, LARGE), Making(line, budget, WAITS_BEYOND_BYTES)
    await settle()
    assert small.began and budget.held_bytes == LARGE
    for each in (large, small):
        each.may_end.set()
        await each.task


async def test_answer_larger_than_the_memory_budget_is_built_alone() -> None:
    line, budget = LargeAnswers(LARGE), MemoryBudget(LARGE)
    budget.hold(2 * LARGE)  # held for slow readers
    first, larger, last = (Making(line, budget, size) for size in (LARGE, 100 * LARGE, LARGE))
    for number, each in enumerate((first, larger, last)):
        await settle()
        assert [one.began for one in (first, larger, last)] == [n <= number for n in range(3)]
        each.may_end.set()
        await each.task
    assert budget.held_bytes == 2 * LARGE


async def test_answer_larger_than_the_memory_budget_does_not_stop_reading_requests() -> None:
    line, budget = LargeAnswers(LARGE), MemoryBudget(LARGE)
    larger = Making(line, budget, 100 * LARGE)
    await settle()
    assert larger.began and budget.held_bytes == LARGE // 2
    larger.may_end.set()
    await larger.task
    assert budget.held_bytes == 0


@pytest.mark.parametrize("how", ["gone", "error", "cancelled"])
async def test_answer_memory_is_released_however_the_answer_ends(how: str) -> None:
    line, budget = LargeAnswers(LARGE), MemoryBudget(100 * LARGE)
    first, second, third = (Making(line, budget, LARGE) for _ in range(3))
    await settle()
    if how == "gone":  # while its answer waits; its place is freed
        second.leave()
        with pytest.raises(ClientGone):
            await second.task
        first.may_end.set()
    elif how == "error":
        first.error = LookupError()
        second.may_end.set()
        first.may_end.set()
        with pytest.raises(LookupError):
            await first.task
    else:
        first.task.cancel()
        second.may_end.set()
    await turns_until(lambda: third.began)
    assert budget.held_bytes == line.in_work_bytes == LARGE
    third.may_end.set()
    await third.task
    assert budget.held_bytes == line.in_work_bytes == 0


def fill(broker: FakeBroker) -> None:
    """Create many topics, partitions, users and groups, so that their lists are long."""
    for number in range(40):
        broker.controller.apply(
            CreateTopics((NewTopic(name=f"topic-{number}", topic_id=bytes([number]) * 16,
                                   partition_count=10, replication_factor=3),))
        )  # fmt: skip
    for number in range(400):
        credential = ScramCredential(b"s", b"k", b"k", 4_096)
        broker.services.state.put_scram_credential(f"user-{number}", 1, credential)
    kind = SimpleNamespace(value="Classic")
    table = {
        f"group-{number}": SimpleNamespace(
            group_id=f"group-{number}", protocol_type="consumer", state_name="Empty", type=kind
        )
        for number in range(400)
    }
    shard = SimpleNamespace(groups=table, state="serving")
    broker.services.groups = SimpleNamespace(shards=[shard], is_stopping=False)  # type: ignore[assignment]
    log = SimpleNamespace(
        segments=SimpleNamespace(size_bytes=1), high_watermark=0, log_end_offset=0
    )
    broker.hosted.extend(SimpleNamespace(topic="topic-1", index=n, log=log) for n in range(400))


QUESTIONS: dict[str, dict[str, Any]] = {
    "Metadata": {"topics": None},
    "ListGroups": {},
    "DescribeLogDirs": {"topics": None},
    "DescribeTopicPartitions": {"topics": [], "response_partition_limit": 2_000, "cursor": None},
    "DescribeUserScramCredentials": {"users": None},
    "DescribeConfigs": {
        "resources": [{"resource_type": 2, "resource_name": f"topic-{n}"} for n in range(40)]
    },
}


@pytest.mark.parametrize("name", QUESTIONS)
async def test_answer_memory_is_charged_before_a_long_answer_is_built(name: str) -> None:
    broker = FakeBroker()
    fill(broker)
    broker.services.large_answers = line = LargeAnswers(1)
    budget = broker.context.budget
    key = next(key for key, api in APIS.items() if api.name == name)
    version = broker.dispatcher.table[key].max_version
    first = Making(line, budget, LARGE)
    await settle()
    asked = broker.request(key, version, QUESTIONS[name])
    await settle(10)
    assert not asked.is_there and budget.held_bytes == LARGE, "it has its turn after the first"
    first.may_end.set()
    await turns_until(lambda: budget.held_bytes not in (0, LARGE))
    assert budget.held_bytes >= 400 * ENTRY_BYTES
    await asked.value()
    assert budget.held_bytes == line.in_work_bytes == 0


async def test_request_with_an_answer_that_would_fill_the_memory_is_refused() -> None:
    """A request has 5 bytes for each broker resource, and its answer 15 kB."""
    broker = FakeBroker()
    resource = {"resource_type": 4, "resource_name": str(broker.services.node_id)}
    question = {"resources": [resource] * 20_000, "include_documentation": True}
    answer = await broker.request(DESCRIBE_CONFIGS, 4, question).value()
    assert {each.error_code for each in answer.results} == {ErrorCode.INVALID_REQUEST}
    assert len(answer.results) == 20_000


async def test_answer_is_not_built_when_its_client_closes_before_its_turn() -> None:
    broker = FakeBroker()
    fill(broker)
    broker.services.large_answers = line = LargeAnswers(1)
    budget = broker.context.budget
    first = Making(line, budget, LARGE)
    await settle()
    asked = broker.request(LIST_GROUPS, 5, {})
    await settle()
    broker.context.is_closed = True
    for callback in list(broker.context.on_close):
        callback()
    await turns_until(lambda: asked.is_there)
    assert budget.held_bytes == LARGE
    first.may_end.set()
    await first.task
    assert budget.held_bytes == line.in_work_bytes == 0
