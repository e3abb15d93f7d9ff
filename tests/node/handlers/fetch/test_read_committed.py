"""Readers of committed data: how far they get, what they leave out, and when they wake."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from oncelog.wire.errors import ErrorCode

from ...leading_broker import LeadingBroker, batch, settle

E = ErrorCode
Test = Callable[[LeadingBroker], Awaitable[None]]
LIST_OFFSETS, LATEST = 2, -1


def run(directory: Path, test: Test, **options: object) -> None:
    async def make() -> None:
        await test(LeadingBroker(directory, **options))  # type: ignore[arg-type]

    asyncio.run(make())


async def latest(broker: LeadingBroker, isolation_level: int) -> int:
    values = {
        "replica_id": -1,
        "isolation_level": isolation_level,
        "topics": [
            {
                "name": "t",
                "partitions": [
                    {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
                ],
            }
        ],
    }
    answer = await broker.ask(LIST_OFFSETS, 7, values)
    return answer.topics[0].partitions[0].offset


async def test_a_reader_stops_before_the_first_open_transaction(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path)
    connection = broker.connect()
    broker.produce(connection, {0: batch(0, producer_id=1, transactional=False)})
    await broker.produce(connection, {0: batch(0, count=3)}).value()
    broker.produce(connection, {0: batch(1, producer_id=1, transactional=False)})
    (topic,) = (await broker.fetch(0).value()).topics
    (read,) = topic.partitions
    assert (read.last_stable_offset, read.high_watermark) == (1, 5)
    assert len(read.records) == len(batch(0, producer_id=1, transactional=False))
    assert read.aborted_transactions == []
    assert (await latest(broker, 0), await latest(broker, 1)) == (5, 1)
    assert await broker.mark(commits=False) == [E.NONE]
    (topic,) = (await broker.fetch(1).value()).topics
    assert list(topic.partitions[0].aborted_transactions) == [(7, 1)]
    assert (await latest(broker, 0), await latest(broker, 1)) == (6, 6)
    (topic,) = (await broker.fetch(0, isolation_level=0).value()).topics
    assert topic.partitions[0].aborted_transactions is None


@pytest.mark.parametrize("min_bytes", [1, 400])
async def test_a_waiting_reader_wakes_when_the_transaction_ends(
    tmp_path: Path, min_bytes: int
) -> None:
    """The data was there for long; what moves is the last stable offset."""
    broker = LeadingBroker(tmp_path, replicas=(1, 2), min_insync_replicas=2)
    before = broker.fetch(0, max_wait_ms=60_000, min_bytes=min_bytes)
    connection = broker.connect()
    for n in range(4):
        broker.produce(connection, {0: batch(n, size=100)})
        await settle()
        broker.replicate()
    after = broker.fetch(0, max_wait_ms=60_000, min_bytes=min_bytes)
    await settle()
    assert not before.is_there
    assert not after.is_there
    marking = broker.mark()
    await settle()
    assert not before.is_there, "the marker is not committed yet"
    broker.replicate()
    assert await marking == [E.NONE]
    for answer in (before, after):
        read = (await answer.value(timeout_s=5)).topics[0].partitions[0]
        assert len(read.records) >= min_bytes
        assert read.last_stable_offset == 5
