"""Test the APIs of transactions, with the coordinator's calls and the answers by version."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from oncelog.node.handlers.transactions.admin import compile_pattern
from oncelog.wire.errors import ErrorCode, InvalidRegularExpression

from ...fake_broker import CLOSED, FakeBroker
from ...transactions.one_node import OneNode

E = ErrorCode
INIT, ADD, OFFSETS, END, DESCRIBE, LIST, API_VERSIONS = 22, 24, 25, 26, 65, 66, 18


class World:
    """A broker with the topic `t`, and a coordinator with markers that are written at once."""

    def __init__(self, **settings: Any) -> None:
        self.node = OneNode(hold_ms=20, two_phase_commit_enabled=True, **settings)
        self.broker = FakeBroker()
        self.broker.services.transactions = self.node.coordinators

    async def make_topic(self) -> None:
        topic = {"name": "t", "num_partitions": 2, "replication_factor": 3}
        answer = await self.broker.answer(19, 7, {"topics": [topic], "timeout": 1000})
        assert answer.topics[0].error_code == 0

    async def ask(self, key: int, version: int, **values: Any) -> Any:
        return await self.broker.answer(key, version, values)

    async def init(self, version: int = 5, **values: Any) -> Any:
        asked = {"transactional_id": "id", "transaction_timeout": 60_000, **values}
        return await self.ask(INIT, version, **asked)

    async def add(self, who: Any, version: int = 3, partitions: tuple[int, ...] = (0,)) -> Any:
        topics = [{"name": "t", "partitions": partitions}]
        if version < 4:
            old = {f"v3_and_below_{name}": value for name, value in identity(who).items()}
            return await self.ask(ADD, version, v3_and_below_topics=topics, **old)
        transaction = identity(who) | {"topics": topics}
        verifying = {**transaction, "verify_only": True}
        return await self.ask(ADD, version, transactions=[transaction, verifying])

    async def end(self, who: Any, version: int = 4, committed: bool = True) -> Any:
        return await self.ask(END, version, committed=committed, **identity(who))


def identity(who: Any) -> dict[str, Any]:
    return {
        "transactional_id": "id",
        "producer_id": who.producer_id,
        "producer_epoch": who.producer_epoch,
    }


@pytest.fixture
@asynccontextmanager
async def world() -> AsyncIterator[World]:
    world = World()
    await world.make_topic()
    yield world


def errors_of(results: Any) -> list[int]:
    return [p.partition_error_code for topic in results for p in topic.results_by_partition]


async def test_transaction_requests_of_every_version_complete_a_transaction(world: World) -> None:
    for version in range(7):
        who = await world.init(version)
        assert who.error_code == 0 and who.producer_epoch >= 0
        for add_version in range(4):
            added = await world.add(who, add_version)
            assert errors_of(added.results_by_topic_v3_and_below) == [0]
        for offsets_version in range(5):
            answer = await world.ask(OFFSETS, offsets_version, group_id="g", **identity(who))
            assert answer.error_code == 0
        partitions = world.node.shards[0].records["id"].partitions
        assert {topic for topic, _ in partitions} == {"t", "__consumer_offsets"}
        ended = await world.end(who, min(version, 5), committed=version % 2 == 0)
        assert ended.error_code == 0
        if version >= 5:
            assert ended.producer_epoch == who.producer_epoch + 1


async def test_fenced_producer_gets_the_error_of_its_request_version(world: World) -> None:
    old = await world.init()
    await world.init()
    for version in range(4):
        fenced = E.INVALID_PRODUCER_EPOCH if version < 2 else E.PRODUCER_FENCED
        added = await world.add(old, version)
        assert errors_of(added.results_by_topic_v3_and_below) == [fenced]
        assert (await world.end(old, version)).error_code == fenced
    for version in (3, 4):
        fenced = E.INVALID_PRODUCER_EPOCH if version < 4 else E.PRODUCER_FENCED
        mine = {"producer_id": old.producer_id + 5, "producer_epoch": 3}
        answer = await world.init(version, **mine)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (fenced, -1, -1)


@pytest.mark.parametrize("version", [4, 5])
async def test_add_partitions_from_a_broker_of_kafka_adds_and_verifies_partitions(
    world: World, version: int
) -> None:
    who = await world.init()
    answer = await world.add(who, version, (0, 1))
    assert answer.error_code == 0
    assert [errors_of(r.topic_results) for r in answer.results_by_transaction] == [
        [0, 0],
        [0, 0],
    ]
    answer = await world.add(who, version, (0, 9))
    missing = [E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert errors_of(answer.results_by_transaction[0].topic_results) == missing


async def test_add_partitions_with_one_unknown_partition_adds_no_partition(world: World) -> None:
    who = await world.init()
    added = await world.add(who, 3, (0, 9))
    assert errors_of(added.results_by_topic_v3_and_below) == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert world.node.state() == "Empty"


async def test_transaction_request_that_is_invalid_is_refused(world: World) -> None:
    assert (await world.init(transactional_id="")).error_code == E.INVALID_REQUEST
    assert (await world.init(producer_id=5)).error_code == E.INVALID_REQUEST
    assert (await world.init(producer_epoch=5)).error_code == E.INVALID_REQUEST
    answer = await world.init(transaction_timeout=0)
    assert answer.error_code == E.INVALID_TRANSACTION_TIMEOUT
    who = await world.init()
    unknown = await world.ask(
        END, 3, transactional_id="other", producer_id=who.producer_id, producer_epoch=0
    )
    assert unknown.error_code == E.INVALID_PRODUCER_ID_MAPPING


async def test_init_producer_id_with_keep_prepared_keeps_the_transaction(world: World) -> None:
    who = await world.init(6, enable2_pc=True)
    await world.add(who)
    kept = await world.init(6, enable2_pc=True, keep_prepared_txn=True)
    assert (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == (
        who.producer_id, who.producer_epoch,
    )  # fmt: skip
    assert kept.producer_epoch == who.producer_epoch + 1
    assert (await world.end(who)).error_code == E.PRODUCER_FENCED
    assert (await world.end(kept)).error_code == 0
    await world.node.until_state("CompleteCommit")


async def test_transaction_request_on_an_older_connection_closes_the_connection(
    world: World,
) -> None:
    who = await world.init()
    await world.add(who)
    broker = world.broker
    broker.context.connection_id = 9
    await world.add(who, 3, (1,))
    broker.context.connection_id = 1
    late = broker.request(END, 4, identity(who) | {"committed": True})
    assert await late.value() == CLOSED
    assert world.node.state() == "Ongoing"


async def test_describe_transactions_shows_state_and_partitions(world: World) -> None:
    who = await world.init()
    await world.add(who, 3, (0, 1))
    answer = await world.ask(DESCRIBE, 0, transactional_ids=["id", "other", ""])
    found, missing, empty = answer.transaction_states
    assert (found.error_code, found.transaction_state) == (0, "Ongoing")
    assert (found.producer_id, found.producer_epoch) == (who.producer_id, who.producer_epoch)
    assert [(topic.topic, list(topic.partitions)) for topic in found.topics] == [("t", [0, 1])]
    assert missing.error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == E.INVALID_REQUEST


async def test_list_transactions_is_filtered_by_state_id_and_duration(world: World) -> None:
    for name in ("orders-1", "orders-2", "bills-1"):
        await world.init(transactional_id=name)
    who = await world.init()
    await world.add(who)
    world.node.wall_ms = world.broker.services.clock.wall_ms()

    async def listed(version: int = 2, **filters: Any) -> list[str]:
        answer = await world.ask(LIST, version, **filters)
        assert answer.error_code == 0
        return sorted(state.transactional_id for state in answer.transaction_states)

    everything = ["bills-1", "id", "orders-1", "orders-2"]
    for version in range(3):
        assert await listed(version) == everything
        assert await listed(version, state_filters=["Ongoing"]) == ["id"]
        assert await listed(version, producer_id_filters=[who.producer_id]) == ["id"]
    assert await listed(transactional_id_pattern="orders-.*") == ["orders-1", "orders-2"]
    assert await listed(transactional_id_pattern="") == everything
    assert await listed(duration_filter=10**15) == []
    answer = await world.ask(LIST, 2, state_filters=["Ongoing", "Nonsense"])
    assert list(answer.unknown_state_filters) == ["Nonsense"]
    answer = await world.ask(LIST, 2, transactional_id_pattern="(a+)+")
    assert answer.error_code == E.INVALID_REGULAR_EXPRESSION
    world.node.groups[0].resign()
    world.node.groups[0].leader_id = 1
    answer = await world.ask(LIST, 2)
    assert answer.error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    world.node.groups[0].leader_id = None
    answer = await world.ask(LIST, 2)  # the id's next leader may have been asked before
    assert answer.error_code == E.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("text", [".*", "orders-[0-9]+", r"a\.b*", "a|b", "(?:a|b)c", "[*+{(]x"])
def test_list_transactions_with_a_common_pattern_is_accepted(text: str) -> None:
    assert compile_pattern(text).pattern == text


@pytest.mark.parametrize(
    "text", ["(a+)+", "(a|a)*", ".*.*.*x", r"(a)\1", "(?=a)", "(?i)a", "(", "[", "a" * 257]
)
def test_list_transactions_with_a_slow_or_invalid_pattern_is_refused(text: str) -> None:
    with pytest.raises(InvalidRegularExpression):
        compile_pattern(text)
