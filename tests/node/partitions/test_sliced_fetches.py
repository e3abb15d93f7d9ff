"""Test that a follower appends a large answer in slices, while its leader changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from oncelog.node.partitions import replica_fetcher

from ...awaiting import turns_until
from ...present import present
from ..following_broker import LEADER_EPOCH, FollowingBroker, batches, slot_answer

BATCHES = 2_000


class Follower(FollowingBroker):
    """A follower of one partition, with one step in each slice of its work."""

    def __init__(self, directory: Path) -> None:
        ticks = iter(range(1 << 30))
        super().__init__(directory, clock_s=lambda: next(ticks) * 0.003)
        self.hosted = self.host()
        self.log = self.hosted.log
        self.follow(self.hosted)

    async def answered(self, number: int, **fields: Any) -> None:
        """Answer a replica fetch, and wait until its first records are appended."""
        self.polls[number].answer_all(**fields)
        await turns_until(lambda: self.log.log_end_offset > 0)

    def moved_to(self) -> list[int]:
        """Return the new fetch offset of each partition that the last replica fetch names."""
        return [each.fetch_offset for each in self.polls[-1].request.moved]


@pytest.fixture
@asynccontextmanager
async def follower(tmp_path: Path) -> AsyncIterator[Follower]:
    follower = Follower(tmp_path)
    await asyncio.sleep(0)
    yield follower
    follower.fetchers.stop()


async def test_follower_append_of_a_large_answer_leaves_the_loop_free(
    follower: Follower,
) -> None:
    ends = [0]
    follower.polls[0].answer_all(records=batches(0, BATCHES))

    def is_whole() -> bool:
        ends.append(follower.log.log_end_offset)
        return ends[-1] == BATCHES or bool(follower.moved_to())

    await turns_until(is_whole)
    assert ends[-1] == BATCHES
    steps = {later - earlier for earlier, later in pairwise(ends)}
    assert max(steps) <= replica_fetcher.BATCHES_A_STEP
    await turns_until(follower.moved_to)
    assert follower.moved_to() == [BATCHES]


async def test_follower_append_for_many_partitions_leaves_the_loop_free(
    tmp_path: Path, follower: Follower
) -> None:
    """The first batch of an epoch in a thousand partitions would take 360 ms in one step."""
    logs = []
    for index in range(1, 101):
        hosted = follower.host(index)
        follower.follow(hosted)
        logs.append(hosted.log)
    follower.lose_session()
    await turns_until(lambda: len(follower.polls[-1].request.added) == 101)
    follower.polls[-1].answer_all(records=batches(0))
    ends = [0]

    def are_whole() -> bool:
        ends.append(sum(log.log_end_offset for log in logs))
        return ends[-1] == 100

    await turns_until(are_whole)
    steps = {later - earlier for earlier, later in pairwise(ends)}
    assert max(steps) <= replica_fetcher.ANSWERS_A_STEP


async def test_follower_append_of_a_small_answer_is_immediate(follower: Follower) -> None:
    follower.polls[0].answer_all(records=batches(0, 100))
    assert [follower.log.log_end_offset] == follower.moved_to() == [100]


@pytest.mark.parametrize("part", ["leads", "follows anew", "is dropped"])
async def test_follower_append_stops_when_the_role_has_changed(
    part: str, follower: Follower
) -> None:
    await follower.answered(0, records=batches(0, BATCHES))
    end = follower.log.log_end_offset
    assert end < BATCHES
    follower.fetchers.stop_following(follower.hosted)
    follower.hosted.follower = None
    if part == "is dropped":
        follower.log.local.retire()
    elif part == "follows anew":
        follower.follow(follower.hosted, epoch=LEADER_EPOCH + 1)
    await asyncio.sleep(0.05)
    assert follower.log.log_end_offset == end
    assert not follower.failures.reported
    if part == "follows anew":
        added = [each for poll in follower.polls[1:] for each in poll.request.added]
        assert [each.fetch_offset for each in added] == [end]


async def test_follower_answer_of_a_new_session_waits_for_the_answer_of_the_previous_session(
    follower: Follower,
) -> None:
    """After a lost session the same records may arrive again, while they are still appended."""
    await follower.answered(0, records=batches(0, BATCHES))
    follower.lose_session()
    await turns_until(lambda: follower.polls[-1].request.added and len(follower.polls) > 1)
    follower.polls[-1].answer_all(records=batches(0, BATCHES))
    await turns_until(lambda: follower.log.log_end_offset == BATCHES)
    await turns_until(follower.moved_to)
    assert follower.moved_to() == [BATCHES]


async def test_producers_are_rebuilt_in_slices_after_a_truncation(follower: Follower) -> None:
    follower.polls[0].answer_all(records=batches(0, 100))
    follower.log.append_as_follower(batches(100, BATCHES), now_ms=1)
    polls = len(follower.polls)
    follower.polls[-1].answer_all(diverging_epoch=LEADER_EPOCH, diverging_end_offset=1_500)
    await turns_until(lambda: follower.log.log_end_offset == 1_500)
    assert present(follower.log.producer_state.entry(7)).last_data_offset == BATCHES + 99
    await turns_until(lambda: len(follower.polls) > polls and follower.moved_to())
    assert present(follower.log.producer_state.entry(7)).last_data_offset == 1_499
    assert follower.moved_to() == [1_500]


async def test_follower_answer_of_a_lost_session_truncates_no_log(
    tmp_path: Path, follower: Follower
) -> None:
    """While the answer waited, the log was truncated and appended to again."""
    other = follower.host(1)
    log = other.log
    for offset in range(10):
        log.append_as_follower(batches(offset, epoch=1, value=b"old"), now_ms=1)
    follower.follow(other)
    polls = follower.polls
    follower.lose_session()
    await turns_until(lambda: len(polls[-1].request.added) == 2)

    def answer(fields_by_partition: dict[int, dict[str, Any]]) -> None:
        slots = {each.partition: each.slot for each in polls[-1].request.added}
        polls[-1].answer(slot_answer(slots[at], **f) for at, f in fields_by_partition.items())

    cut = {"diverging_epoch": 1, "diverging_end_offset": 5}
    answer({0: {"records": batches(0, 8 * BATCHES)}, 1: cut})
    await turns_until(lambda: follower.log.log_end_offset > 0)
    follower.lose_session()
    await turns_until(lambda: len(polls[-1].request.added) == 2)
    answer({1: cut})
    await turns_until(follower.moved_to)
    assert follower.moved_to() == [5] == [log.log_end_offset]
    polls[-2].answer([])
    polls[-1].answer_all(records=batches(5, 5))
    await turns_until(lambda: log.log_end_offset == 10)
    assert follower.log.log_end_offset < 8 * BATCHES
    ends = set()
    await turns_until(
        lambda: ends.add(log.log_end_offset) or follower.log.log_end_offset == 8 * BATCHES
    )
    for _ in range(20):
        await asyncio.sleep(0)
        ends.add(log.log_end_offset)
    assert ends == {10}
