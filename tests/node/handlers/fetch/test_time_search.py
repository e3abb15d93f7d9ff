"""Test ListOffsets by timestamp, which searches for the first record with at least this time."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncelog.wire.errors import ErrorCode
from oncelog.wire.records import Record, encode_batch

from ....awaiting import turns_until
from ...leading_broker import LeadingBroker

E = ErrorCode
MAX_TIMESTAMP = -3
BASE_MS = 1_700_000_000_000


def timed(times: list[int], compression: int) -> bytearray:
    records = [Record(i, BASE_MS + time, None, b"v") for i, time in enumerate(times)]
    return bytearray(encode_batch(records, compression=compression))


async def found(broker: LeadingBroker, time: int) -> tuple[int, int, int]:
    (answer,) = await broker.list_offsets(time).partitions()
    relative = answer.timestamp - BASE_MS if answer.timestamp >= 0 else -1
    return answer.error_code, answer.offset, relative


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    batches=st.lists(
        st.tuples(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(0, 4)),
        max_size=6,
    ),
    uses_append_time=st.booleans(),
)
def test_timestamp_search_finds_the_same_record_as_a_full_scan(
    tmp_path_factory: pytest.TempPathFactory,
    batches: list[tuple[list[int], int]],
    uses_append_time: bool,
) -> None:
    async def test() -> None:
        broker = LeadingBroker(tmp_path_factory.mktemp("log"), log_config=config)
        now_ms = BASE_MS
        broker.clock.wall_ms = lambda: now_ms  # type: ignore[method-assign]
        times: list[int] = []
        for sent, compression in batches:
            now_ms += 7
            records = timed(sent, compression)
            assert await broker.put(records).errors() == {0: E.NONE}
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
    asyncio.run(test())


@pytest.mark.in_turn
@pytest.mark.parametrize("compression", range(5))
async def test_timestamp_search_in_a_large_batch_runs_beside_other_requests(
    tmp_path: Path, compression: int
) -> None:
    broker = LeadingBroker(tmp_path, partitions=2)
    for index in range(2):
        records = timed([0] * 50_000 + [9], compression)
        await broker.put({index: records}).value()
    answer = broker.list_offsets(BASE_MS + 5, BASE_MS + 5)
    assert await turns_until(lambda: answer.is_there) > 4
    assert [(p.error_code, p.offset) for p in await answer.partitions()] == [(0, 50_000)] * 2


async def test_timestamp_search_of_a_leader_that_resigns_answers_not_leader(
    broker: LeadingBroker,
) -> None:
    records = timed([0] * 20_000 + [9], 4)
    await broker.put(records).value()
    asking = asyncio.ensure_future(found(broker, BASE_MS + 5))
    await asyncio.sleep(0)
    broker.resign()
    assert (await asking)[0] == E.NOT_LEADER_OR_FOLLOWER


async def test_list_offsets_of_many_partitions_is_answered_in_slices(broker: LeadingBroker) -> None:
    answer = broker.list_offsets(*[-1] * 5_000)
    assert not answer.is_there
    errors = [p.error_code for p in await answer.partitions()]
    assert errors == [E.NONE] + [E.NOT_LEADER_OR_FOLLOWER] * 4_999
