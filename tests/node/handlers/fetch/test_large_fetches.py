"""Test fetches of many partitions, of many bytes, and with repeated partitions."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from oncelog.node.handlers.fetch import partition_reader, repeated_fetch
from oncelog.node.handlers.fetch.fetch import PARTITIONS_AT_ONCE_MAX
from oncelog.node.handlers.fetch.repeated_fetch import RepeatedFetch
from oncelog.node.handlers.fetch.session_fetch import close_session
from oncelog.node.listener.large_requests import LargeRequests
from oncelog.runtime.sliced_work import SLICE_S, SlicedWork
from oncelog.runtime.steps import Steps, run_to_end
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.fetch import FetchRequest, FetchTopic
from oncelog.wire.messages.fetch_rows import FetchRows, fetch_rows

from ....awaiting import settle
from ...fake_broker import Answer
from ...leading_broker import LeadingBroker, StoppedClock, batch, wanted

E = ErrorCode
MANY = PARTITIONS_AT_ONCE_MAX + 100


@pytest.mark.parametrize("topics", [1, 3])
async def test_fetch_that_names_a_partition_repeatedly_reads_the_partition_once(
    tmp_path: Path, topics: int
) -> None:
    """As in Kafka, the first entry decides the order in the answer, and the last one the fields."""
    broker = LeadingBroker(tmp_path, partitions=2)
    for _ in range(3):
        await broker.write()
    often = [wanted()] * 30_000 + [wanted(1), wanted(0, offset=2)]
    (topic,) = (await broker.fetch_partitions(often, topics=topics).value()).topics
    assert [p.index for p in topic.partitions] == [0, 1]
    assert len(topic.partitions[0].records) == len(batch(0))


async def test_fetch_of_many_partitions_reads_in_slices(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, partitions=2)
    await broker.write(1)
    answer = broker.fetch(indexes=range(MANY))
    assert not answer.is_there
    (topic,) = (await answer.value()).topics
    assert [p.index for p in topic.partitions] == list(range(MANY))
    assert [p.index for p in topic.partitions if p.records] == [1]
    assert {p.error_code for p in topic.partitions[2:]} == {E.NOT_LEADER_OR_FOLLOWER}


@pytest.mark.parametrize("is_in_session", [False, True])
async def test_fetch_of_small_batches_leaves_other_partitions_to_the_next_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_in_session: bool
) -> None:
    """The check of many small batches in 100 partitions would block the loop for half a second."""
    monkeypatch.setattr(partition_reader, "LOOK_BATCHES_MAX", 3)
    broker = LeadingBroker(tmp_path, partitions=4)
    for partition in range(4):
        for _ in range(2):
            await broker.write(partition)
    session = {"session_epoch": 0} if is_in_session else {}
    (topic,) = (await broker.fetch(indexes=range(4), max_wait_ms=60_000, **session).value()).topics
    assert [p.index for p in topic.partitions if p.records] == [0, 1]


@pytest.mark.parametrize("turns", range(6))
async def test_fetch_of_many_partitions_completes_at_an_append_during_its_read(
    tmp_path: Path, turns: int
) -> None:
    """A record is appended to the first partition after that partition was read."""
    broker = LeadingBroker(tmp_path, partitions=MANY)
    answer = broker.fetch(indexes=range(MANY), max_wait_ms=60_000)
    await settle(turns)
    await broker.write()
    (topic,) = (await answer.value(timeout_s=10)).topics
    assert [p.index for p in topic.partitions if p.records] == [0]
    assert broker.replicas.purgatory.waiting_count == 0


@pytest.mark.parametrize("turns", [1, 2, 50])
async def test_fetch_of_many_partitions_ends_when_its_client_closes(
    tmp_path: Path, turns: int
) -> None:
    """A fetch that continues would wait for its max_wait_ms, which may be 24 days."""
    broker = LeadingBroker(tmp_path, partitions=MANY)
    answer = broker.fetch(indexes=range(MANY), max_wait_ms=2**31 - 1)
    await settle(turns)
    answer.abandon()
    await settle(50)
    assert broker.replicas.purgatory.waiting_count == 0
    assert not broker.dispatcher._tasks


async def test_fetch_of_many_partitions_without_records_is_answered_at_the_deadline(
    tmp_path: Path,
) -> None:
    broker = LeadingBroker(tmp_path, partitions=MANY)
    began_s = time.monotonic()
    answer = broker.fetch(indexes=range(MANY), max_wait_ms=50)
    (topic,) = (await answer.value()).topics
    assert time.monotonic() - began_s > 0.045
    assert len(topic.partitions) == MANY


@pytest.mark.parametrize(
    ("held_bytes", "batches"), [(0, 4), (40_000, 2), (99_000, 1), (500_000, 1)]
)
async def test_fetch_reads_at_most_half_of_the_free_memory_and_at_least_one_batch(
    broker: LeadingBroker, held_bytes: int, batches: int
) -> None:
    """Without at least one batch a consumer would make no progress."""
    for _ in range(8):
        await broker.write(size=10_000)
    connection = broker.connect()
    connection.budget.limit_bytes, connection.budget.held_bytes = 100_000, held_bytes
    answer = broker.fetch_partitions([wanted()], connection=connection)
    (topic,) = (await answer.value()).topics
    size_bytes = len(batch(0, size=10_000))
    assert len(topic.partitions[0].records) == batches * size_bytes


# -- repeated fetches


@asynccontextmanager
async def repeating(
    directory: Path,
) -> AsyncIterator[tuple[LeadingBroker, Callable[..., Awaitable[Any]]]]:
    """Yield a broker, and a client that has sent the same large fetch twice, without a session."""
    broker = LeadingBroker(directory, partitions=MANY)
    connection = broker.connect()

    async def ask(first: int = 0, max_wait_ms: int = 200, **fields: Any) -> Any:
        indexes = [(first + n) % MANY for n in range(MANY)]
        body = [wanted(index, 0) for index in indexes]
        answer = broker.fetch_partitions(
            body, connection=connection, max_wait_ms=max_wait_ms, **fields
        )
        (topic,) = (await answer.value()).topics
        return topic.partitions

    for first in (0, 7):
        assert len(await ask(first)) == MANY
    yield broker, ask
    connection.is_closed = True
    for callback in connection.on_close:
        callback()
    await settle(50)
    assert len(broker.services.fetch_sessions) == 0
    assert len(broker.replicas.purgatory.standing) == 0


async def test_fetch_repeated_without_changes_reads_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with repeating(tmp_path) as (_, ask):
        reads: list[object] = []
        read = PartitionLog.read
        monkeypatch.setattr(PartitionLog, "read", lambda *a, **k: reads.append(0) or read(*a, **k))
        answers = await ask(100)
        assert not reads
        assert sorted(p.index for p in answers) == list(range(MANY))
        assert {p.error_code for p in answers} == {E.NONE}
        await ask(101, isolation_level=0)
        assert reads, "with another isolation level it is another fetch"


async def test_fetch_repeated_without_changes_completes_at_an_append(tmp_path: Path) -> None:
    async with repeating(tmp_path) as (broker, ask):
        waiting = asyncio.ensure_future(ask(3))
        await settle(20)
        await broker.write(5)
        assert [p.index for p in await waiting if p.records] == [5]
        assert [p.index for p in await ask(4) if p.records] == [5]
        assert [p.index for p in await ask(4) if p.records] == [5], "its position has not moved"
        broker.resign(6)
        (refused,) = [p for p in await ask(4) if p.error_code]
        assert (refused.index, refused.error_code) == (6, E.NOT_LEADER_OR_FOLLOWER)


async def test_fetch_repeated_after_its_session_was_evicted_is_answered(tmp_path: Path) -> None:
    async with repeating(tmp_path) as (broker, ask):
        cache = broker.services.fetch_sessions
        (session,) = cache
        close_session(broker.services, session)
        await broker.write(5)
        assert [p.index for p in await ask() if p.records] == [5]


@pytest.mark.parametrize("turns", range(14))
async def test_fetch_repeated_with_its_session_lost_during_a_read_completes_at_an_append(
    tmp_path: Path, turns: int
) -> None:
    """In an earlier version the fetch did not complete, and was kept by some partitions."""
    clock = StoppedClock()
    broker = LeadingBroker(tmp_path, partitions=MANY, replicas_clock=clock)
    connection = broker.connect()

    def ask() -> Answer:
        return broker.fetch(indexes=range(MANY), connection=connection, max_wait_ms=60_000)

    first = ask()
    await settle(100)
    clock.now_ms += 60_001
    broker.replicas._expire()
    await first.value()
    second = ask()
    await settle(turns)
    for session in list(broker.services.fetch_sessions):
        close_session(broker.services, session)
    await settle(100)
    assert len(broker.replicas.purgatory.standing) in {0, MANY}, "all, if it was kept again"
    await broker.write(5)
    await settle(100)
    assert second.is_there


async def test_fetch_of_a_closed_client_is_not_kept_for_comparison(broker: LeadingBroker) -> None:
    connection = broker.connect()
    connection.is_closed = True
    repeated = RepeatedFetch(connection, 12, FetchRows(12, 0, 0, 0))
    request = FetchRequest(60_000, 1, [FetchTopic("t", None, [wanted()])])
    assert run_to_end(repeated.keep(request)) is None
    assert len(broker.services.fetch_sessions) == 0


async def test_fetch_comparisons_of_large_requests_run_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison takes several times the request's memory. The budget counts only the request."""
    at_work: list[int] = []

    def counted(*args: Any) -> Steps[FetchRows | None]:
        at_work.append(at_work[-1] + 1 if at_work else 1)
        yield
        rows = yield from fetch_rows(*args)
        at_work.append(at_work[-1] - 1)
        return rows

    monkeypatch.setattr(repeated_fetch, "fetch_rows", counted)
    broker = LeadingBroker(tmp_path, partitions=MANY)
    broker.services.compared_fetches = LargeRequests(in_work_bytes_max=1)
    work = SlicedWork()
    work.clock = count(step=SLICE_S * 0.7).__next__  # a step ends a slice
    broker.services.work = work.clients
    answers = [broker.fetch(indexes=range(MANY)) for _ in range(5)]
    for answer in answers:
        await answer.value()
    assert at_work == [1, 0] * 5
