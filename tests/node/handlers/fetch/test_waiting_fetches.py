"""Test that waiting fetches complete when records are committed, in any number of steps."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncelog.coordinator.metadata.cluster_model import PartitionRegistration
from oncelog.node.partitions.hosted_partition import UNSEEN_ENTRIES_MAX
from oncelog.replication.delayed_operations import BYTES_UNKNOWN
from oncelog.wire.record_batch import restamp

from ....awaiting import settle
from ...leading_broker import LeadingBroker, plain

FOREVER_MS = 60_000


@pytest.fixture
@asynccontextmanager
async def broker(tmp_path: Path) -> AsyncIterator[LeadingBroker]:
    yield LeadingBroker(tmp_path, replicas=(1, 2))


@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_waiting_fetch_completes_at_each_step_of_the_high_watermark(
    broker: LeadingBroker, isolation_level: int
) -> None:
    """The leader has already appended further batches when a follower fetches the first one."""
    connection = broker.connect()
    wait: dict[str, Any] = {"isolation_level": isolation_level, "max_wait_ms": FOREVER_MS}
    first = broker.fetch(0, **wait)
    for n in range(3):
        broker.put(plain(n, size=100), connection=connection)
    broker.replicate(up_to=1)
    assert first.is_there
    second = broker.fetch(1, **wait)
    await settle()
    assert not second.is_there
    broker.replicate(up_to=2)
    assert second.is_there
    third = broker.fetch(2, **wait)
    broker.replicate(up_to=3)
    assert third.is_there


async def test_waiting_fetch_with_large_min_bytes_counts_no_bytes_twice(
    broker: LeadingBroker,
) -> None:
    size_bytes = len(plain(0, size=100))
    reader = broker.fetch(0, isolation_level=0, max_wait_ms=FOREVER_MS, min_bytes=3 * size_bytes)
    connection = broker.connect()
    for n in range(3):
        broker.put(plain(n, size=100), connection=connection)
    for up_to in (1, 2):
        broker.replicate(up_to=up_to)
        assert not reader.is_there
    broker.replicate(up_to=3)
    assert len((await reader.value()).topics[0].partitions[0].records) == 3 * size_bytes


async def test_waiting_fetch_completes_when_records_of_an_earlier_leader_are_committed(
    broker: LeadingBroker,
) -> None:
    """The first fetch of a follower commits the records, without an append by the leader."""
    hosted = broker.partition()
    hosted.follow(PartitionRegistration(replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=2))
    for n in range(2):
        records = memoryview(plain(n, size=100))
        restamp(records, 0, n, 2)
        hosted.log.append_as_follower(records, now_ms=broker.clock.wall_ms())
    broker.make_leader(hosted, PartitionRegistration((1, 2), (1, 2), leader=1, leader_epoch=3))
    first = broker.fetch(0, isolation_level=0, max_wait_ms=FOREVER_MS)
    assert not first.is_there
    broker.replicate(up_to=1)
    assert first.is_there
    second = broker.fetch(1, isolation_level=0, max_wait_ms=FOREVER_MS)
    broker.replicate(up_to=2)
    assert second.is_there


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    batches=st.lists(st.integers(1, 3), min_size=1, max_size=12),
    steps=st.lists(st.integers(1, 12), max_size=6),
)
def test_waiting_fetch_with_a_rising_high_watermark_counts_each_byte_once(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int], steps: list[int]
) -> None:
    async def test() -> None:
        broker = LeadingBroker(tmp_path_factory.mktemp("log"), replicas=(1, 2))
        hosted, sequence = broker.partition(), 0
        ends, sizes = [0], [0]
        for count in batches:
            records = plain(sequence, count=count)
            broker.put(records)
            sequence += count
            ends.append(sequence)
            sizes.append(sizes[-1] + len(records))
        for upper in sorted({min(step, len(batches)) for step in steps} | {len(batches)}):
            before = ends.index(hosted.unseen[0][0]) - 1
            assert hosted.take_seen(ends[upper]) == sizes[upper] - sizes[before]
        assert hosted.unseen == []

    asyncio.run(test())


async def test_waiting_fetch_with_a_constant_high_watermark_uses_bounded_memory(
    broker: LeadingBroker,
) -> None:
    hosted = broker.partition()
    for n in range(UNSEEN_ENTRIES_MAX + 5):
        broker.put(plain(n), acks=1)
    end_offset = hosted.log.log_end_offset
    assert len(hosted.unseen) <= UNSEEN_ENTRIES_MAX
    assert sum(size for _, size in hosted.unseen) == end_offset * len(plain(0))
    assert hosted.take_seen(end_offset - 2) == BYTES_UNKNOWN, "it is inside a joined entry"
    assert hosted.take_seen(end_offset) > 0


@pytest.mark.parametrize("limit", ["max_bytes", "a segment's end"])
async def test_fetch_at_its_limit_does_not_wait_for_min_bytes(
    broker: LeadingBroker, limit: str
) -> None:
    size_bytes, connection = len(plain(0, size=100)), broker.connect()
    for n in range(4):
        broker.put(plain(n, size=100), connection=connection)
        if n == 1 and limit != "max_bytes":
            log = broker.partition().log
            log.local.roll(log.log_end_offset)
    broker.replicate(up_to=4)
    wait: dict[str, Any] = {"isolation_level": 0, "max_wait_ms": FOREVER_MS}
    max_bytes = 2 * size_bytes + 10 if limit == "max_bytes" else 1 << 20
    answer = broker.fetch(0, min_bytes=4 * size_bytes + 1, max_bytes=max_bytes, **wait)
    assert answer.is_there
    rest = broker.fetch(2, min_bytes=2 * size_bytes + 1, **wait)
    await settle()
    assert not rest.is_there, "that is all there is"
    broker.put(plain(4, size=100), connection=connection)
    broker.replicate(up_to=5)
    assert rest.is_there
