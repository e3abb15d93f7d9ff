"""Fetches that ask for much: partitions, bytes, or one partition again and again."""

from pathlib import Path

import pytest

from oncelog.node.handlers.fetch.fetch import PARTITIONS_AT_ONCE_MAX
from oncelog.wire.errors import ErrorCode

from ....awaiting import settle
from ...leading_broker import LeadingBroker, batch, wanted

E = ErrorCode
MANY = PARTITIONS_AT_ONCE_MAX + 100


@pytest.mark.parametrize("topics", [1, 3])
async def test_a_partition_that_is_named_often_is_read_once(tmp_path: Path, topics: int) -> None:
    """As with Kafka: in the place of the first, with the words of the last."""
    broker = LeadingBroker(tmp_path, partitions=2)
    for _ in range(3):
        await broker.write()
    often = [wanted()] * 30_000 + [wanted(1), wanted(0, offset=2)]
    (topic,) = (await broker.fetch_partitions(often, topics=topics).value()).topics
    assert [p.index for p in topic.partitions] == [0, 1]
    assert len(topic.partitions[0].records) == len(batch(0))


async def test_many_partitions_are_read_in_slices(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, partitions=2)
    await broker.write(1)
    answer = broker.fetch(indexes=range(MANY))
    assert not answer.is_there
    (topic,) = (await answer.value()).topics
    assert [p.index for p in topic.partitions] == list(range(MANY))
    assert [p.index for p in topic.partitions if p.records] == [1]
    assert {p.error_code for p in topic.partitions[2:]} == {E.NOT_LEADER_OR_FOLLOWER}


@pytest.mark.parametrize("turns", range(6))
async def test_what_comes_while_many_partitions_are_read_is_not_waited_for(
    tmp_path: Path, turns: int
) -> None:
    """The first partition has been read already when it gets its record."""
    broker = LeadingBroker(tmp_path, partitions=MANY)
    answer = broker.fetch(indexes=range(MANY), max_wait_ms=60_000)
    await settle(turns)
    await broker.write()
    (topic,) = (await answer.value(timeout_s=10)).topics
    assert [p.index for p in topic.partitions if p.records] == [0]
    assert broker.replicas.purgatory.waiting_count == 0


@pytest.mark.parametrize("turns", [1, 2, 50])
async def test_a_fetch_of_many_partitions_ends_with_its_client(tmp_path: Path, turns: int) -> None:
    """It waited on, for as long as its max_wait_ms: 24 days at most."""
    broker = LeadingBroker(tmp_path, partitions=MANY)
    answer = broker.fetch(indexes=range(MANY), max_wait_ms=2**31 - 1)
    await settle(turns)
    answer.abandon()
    await settle(50)
    assert broker.replicas.purgatory.waiting_count == 0
    assert not broker.dispatcher._tasks


async def test_many_partitions_without_records_are_answered_at_the_deadline(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, partitions=MANY)
    answer = broker.fetch(indexes=range(MANY), max_wait_ms=50)
    await settle(200)
    assert not answer.is_there
    (topic,) = (await answer.value()).topics
    assert len(topic.partitions) == MANY


@pytest.mark.parametrize(
    ("held_bytes", "batches"), [(0, 4), (40_000, 2), (99_000, 1), (500_000, 1)]
)
async def test_a_read_is_as_large_as_the_memory_that_is_left(
    broker: LeadingBroker, held_bytes: int, batches: int
) -> None:
    """Half of what is left, but one batch at least: a reader must get on."""
    for _ in range(8):
        await broker.write(size=10_000)
    connection = broker.connect()
    connection.budget.limit_bytes, connection.budget.held_bytes = 100_000, held_bytes
    answer = broker.fetch_partitions([wanted()], connection=connection)
    (topic,) = (await answer.value()).topics
    size_bytes = len(batch(0, size=10_000))
    assert len(topic.partitions[0].records) == batches * size_bytes
