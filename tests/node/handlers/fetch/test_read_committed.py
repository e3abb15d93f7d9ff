"""Test where the reads of a read_committed consumer end, and when its fetches complete."""

from pathlib import Path

import pytest

from oncelog.wire.errors import ErrorCode

from ....awaiting import settle
from ...leading_broker import LeadingBroker, batch, plain

E = ErrorCode
LATEST = -1


async def latest(broker: LeadingBroker, isolation_level: int) -> int:
    (found,) = await broker.list_offsets(LATEST, isolation_level=isolation_level).partitions()
    return found.offset


async def test_read_committed_fetch_ends_before_the_first_open_transaction(
    broker: LeadingBroker,
) -> None:
    connection = broker.connect()
    broker.produce(connection, {0: plain(0, producer_id=1)})
    await broker.produce(connection, {0: batch(0, count=3)}).value()
    broker.produce(connection, {0: plain(1, producer_id=1)})
    (read,) = await broker.fetch(0).partitions()
    assert (read.last_stable_offset, read.high_watermark) == (1, 5)
    assert len(read.records) == len(plain(0, producer_id=1))
    assert read.aborted_transactions == []
    assert (await latest(broker, 0), await latest(broker, 1)) == (5, 1)
    assert await broker.mark(commits=False) == [E.NONE]
    (read,) = await broker.fetch(1).partitions()
    assert list(read.aborted_transactions) == [(7, 1)]
    assert (await latest(broker, 0), await latest(broker, 1)) == (6, 6)
    (read,) = await broker.fetch(0, isolation_level=0).partitions()
    assert read.aborted_transactions is None


@pytest.mark.parametrize("min_bytes", [1, 400])
async def test_waiting_read_committed_fetch_completes_when_the_transaction_ends(
    tmp_path: Path, min_bytes: int
) -> None:
    """Only the last stable offset advances at the end, since all records are already in the log."""
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
        (read,) = await answer.partitions()
        assert len(read.records) >= min_bytes
        assert read.last_stable_offset == 5
