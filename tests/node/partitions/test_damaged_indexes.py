"""Test that a damaged index fails only its partition, until the index is rebuilt."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from oncelog.wire.errors import ErrorCode, KafkaStorageError

from ..hosted_logs import data_directory, maintaining
from ..leading_broker import LeadingBroker, batch

E = ErrorCode
WAIT_S = 10


async def fetch_all(broker: LeadingBroker, **fields: Any) -> dict[int, Any]:
    """Send a read_committed Fetch of three partitions, and return them by index."""
    (topic,) = (await broker.fetch(indexes=range(3), **fields).value()).topics
    return {partition.index: partition for partition in topic.partitions}


async def abort(broker: LeadingBroker, *numbers: int) -> None:
    for number in numbers:
        for index in range(3):
            await broker.produce(broker.connect(), {index: batch(number)}).value()
        assert await broker.mark(7, 0, 0, 1, 2, commits=False) == [E.NONE] * 3


@pytest.mark.parametrize("is_closed", [False, True])
async def test_damaged_transaction_index_is_rebuilt(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_closed: bool
) -> None:
    broker = LeadingBroker(tmp_path, partitions=3)
    await abort(broker, *range(5))
    expected = [(7, 2 * n) for n in range(5)]
    log = broker.log(1)
    path = log.segments.active.transaction_index.path
    content = path.read_bytes()
    if is_closed:
        log.roll(1)
    path.write_bytes(content[:35] + b"\x40" + content[36:])
    answers = await fetch_all(broker)
    assert [answers[i].error_code for i in range(3)] == [E.NONE, E.KAFKA_STORAGE_ERROR, E.NONE]
    assert [answers[i].aborted_transactions for i in (0, 2)] == [expected] * 2
    assert not log.is_failed
    uncommitted = await fetch_all(broker, isolation_level=0)
    assert uncommitted[1].error_code == E.NONE
    async with asyncio.timeout(WAIT_S), maintaining(broker.replicas, data_directory(tmp_path)):
        while (await fetch_all(broker))[1].aborted_transactions != expected:
            await asyncio.sleep(0.005)
    assert path.read_bytes() == content
    assert f"{path} cannot be read, and is rebuilt" in caplog.text
    await abort(broker, 5)
    assert log.aborted_transactions.between(0, 12) == [*expected, (7, 10)]


async def test_damaged_index_found_outside_a_fetch_is_rebuilt(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, partitions=3)
    await abort(broker, 0)
    log = broker.log(1)
    path = log.segments.active.transaction_index.path
    content = path.read_bytes()
    async with asyncio.timeout(WAIT_S), maintaining(broker.replicas, data_directory(tmp_path)):
        while broker.replicas.written:  # by the aborts
            await asyncio.sleep(0.005)
        path.write_bytes(b"\x40" + content[1:])
        with pytest.raises(KafkaStorageError):
            log.aborted_transactions.between(0, 2)
        while path.read_bytes() != content:
            await asyncio.sleep(0.005)
    assert log.aborted_transactions.between(0, 2) == [(7, 0)]


async def test_waiting_fetch_is_answered_when_an_index_is_damaged(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, partitions=3)
    await abort(broker, 0)
    path = broker.log(1).segments.active.transaction_index.path
    path.write_bytes(b"\x40" * len(path.read_bytes()))
    async with asyncio.timeout(WAIT_S):
        answers = await fetch_all(broker, max_wait_ms=5_000, min_bytes=1 << 20)
    assert [answers[i].error_code for i in range(3)] == [E.NONE, E.KAFKA_STORAGE_ERROR, E.NONE]
