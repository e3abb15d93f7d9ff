"""ListOffsets by time: the first record that is not older, and nobody else is kept meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages import control
from oncelog.wire.records import Record, encode_batch

from ...leading_broker import LIST_OFFSETS, LeadingBroker

E = ErrorCode
Test = Callable[[LeadingBroker], Awaitable[None]]
MAX_TIMESTAMP = -3
BASE_MS = 1_700_000_000_000


def run(directory: Path, test: Test, **options: object) -> None:
    async def make() -> None:
        await test(LeadingBroker(directory, **options))  # type: ignore[arg-type]

    asyncio.run(make())


def timed(times: list[int], compression: int) -> bytearray:
    records = [Record(i, BASE_MS + time, None, b"v") for i, time in enumerate(times)]
    return bytearray(encode_batch(records, compression=compression))


def question(*times: int, index: int = 0) -> dict[str, Any]:
    partitions = [
        {"partition_index": index + n, "current_leader_epoch": -1, "timestamp": time}
        for n, time in enumerate(times)
    ]
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": "t", "partitions": partitions}],
    }


async def found(broker: LeadingBroker, time: int) -> tuple[int, int, int]:
    (topic,) = (await broker.ask(LIST_OFFSETS, 7, question(time))).topics
    (answer,) = topic.partitions
    relative = answer.timestamp - BASE_MS if answer.timestamp >= 0 else -1
    return answer.error_code, answer.offset, relative


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    batches=st.lists(
        st.tuples(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(0, 4)),
        max_size=6,
    ),
    uses_append_time=st.booleans(),
)
def test_it_finds_what_looking_at_every_record_finds(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[list[int], int]],
    uses_append_time: bool,
) -> None:
    async def test(broker: LeadingBroker) -> None:
        now_ms = BASE_MS
        broker.clock.wall_ms = lambda: now_ms  # type: ignore[method-assign]
        times: list[int] = []
        for sent, compression in batches:
            now_ms += 7
            records = timed(sent, compression)
            answer = broker.produce(broker.connect(), {0: records}, transactional_id=None)
            assert await answer.errors() == {0: E.NONE}
            times += [now_ms - BASE_MS] * len(sent) if uses_append_time else sent
        for wanted in range(-1, 60, 5):
            first = next((i for i, time in enumerate(times) if time >= wanted), -1)
            expected = (E.NONE, first, times[first] if first >= 0 else -1)
            assert await found(broker, BASE_MS + wanted) == expected
        newest = max(times, default=-1)
        first = times.index(newest) if times else -1
        assert await found(broker, MAX_TIMESTAMP) == (E.NONE, first, newest)

    config = {"segment_bytes": 1_000, "uses_append_time": uses_append_time}
    config |= {"timestamp_after_max_ms": 1 << 40, "timestamp_before_max_ms": 1 << 40}
    run(tmp_path_factory.mktemp("log"), test, log_config=config)


@pytest.mark.parametrize("compression", range(5))
async def test_a_large_batch_is_searched_beside_other_requests(
    tmp_path: Path, compression: int
) -> None:
    broker = LeadingBroker(tmp_path, partitions=2)
    for index in range(2):
        records = timed([0] * 50_000 + [9], compression)
        await broker.produce(broker.connect(), {index: records}, transactional_id=None).value()
    body = control.encode_request(LIST_OFFSETS, 7, question(BASE_MS + 5, BASE_MS + 5))
    answer = broker.send(broker.connect(), LIST_OFFSETS, 7, body)
    turns = 0
    while not answer.is_there:
        turns += 1
        await asyncio.sleep(0)
    assert turns > 4
    (topic,) = (await answer.value()).topics
    assert [(p.error_code, p.offset) for p in topic.partitions] == [(0, 50_000)] * 2


async def test_who_leads_no_longer_says_so_in_the_middle_of_a_search(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path)
    records = timed([0] * 20_000 + [9], 4)
    await broker.produce(broker.connect(), {0: records}, transactional_id=None).value()
    asking = asyncio.ensure_future(found(broker, BASE_MS + 5))
    await asyncio.sleep(0)
    broker.resign()
    assert (await asking)[0] == E.NOT_LEADER_OR_FOLLOWER


async def test_many_partitions_of_one_request_are_answered_in_slices(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path)
    body = control.encode_request(LIST_OFFSETS, 7, question(*[-1] * 5_000))
    answer = broker.send(broker.connect(), LIST_OFFSETS, 7, body)
    assert not answer.is_there
    (topic,) = (await answer.value()).topics
    errors = [p.error_code for p in topic.partitions]
    assert errors == [E.NONE] + [E.NOT_LEADER_OR_FOLLOWER] * 4_999
