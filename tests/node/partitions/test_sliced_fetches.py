"""A large answer of a leader is appended in slices; meanwhile the replica's part may change."""

import asyncio
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.metadata.cluster_model import Partition
from oncelog.node.clock import SystemClock
from oncelog.node.partitions import fetched_answers
from oncelog.node.partitions.replica_fetcher import FetchSettings, ReplicaFetchers
from oncelog.node.partitions.replica_manager import ReplicaManager
from oncelog.replication.messages import (
    ReplicaFetchResponse,
    SlotAnswer,
    decode_fetch_request,
    encode_fetch_response,
)
from oncelog.replication.sliced_work import SlicedWork
from oncelog.wire.records import Record, encode_batch

from ..hosted_logs import open_hosted

LEADER, LEADER_EPOCH = 2, 3
BATCHES = 2_000
WAIT_S = 10


class Links:
    """The leader's broker: the test answers its polls."""

    def __init__(self) -> None:
        self.polls: list[tuple[Any, Any]] = []

    def on_peer_change(self, callback: Any) -> None:
        pass

    def ask(self, peer: int, kind: int, payload: Any, *, answered: Any, **_: Any) -> None:
        self.polls.append((decode_fetch_request(payload), answered))

    def answer(self, number: int, records: bytes, session_epoch: int = 0, **fields: Any) -> None:
        request, answered = self.polls[number]
        slots = [each.slot for each in (*request.added, *request.moved)]
        answers = [
            SlotAnswer(slot, high_watermark=0, log_start_offset=0, records=records, **fields)
            for slot in slots
        ]
        response = ReplicaFetchResponse(7, session_epoch, broker_epoch=9, answers=answers)
        header, buffers = encode_fetch_response(response)
        answered((header, [memoryview(bytes(each)) for each in buffers]))


def batches(first: int, count: int) -> bytes:
    return b"".join(
        encode_batch(
            [Record(offset, 1_700_000_000_000, b"k", b"v")],
            base_offset=offset, leader_epoch=LEADER_EPOCH,
            producer_id=7, producer_epoch=0, base_sequence=offset,
        )
        for offset in range(first, first + count)
    )  # fmt: skip


class Follower:
    """One followed partition; each slice of work has one step, so that much lies between."""

    def __init__(self, directory: Path) -> None:
        ticks = iter(range(1 << 30))
        self.replicas = ReplicaManager(
            loop=asyncio.get_running_loop(),
            clock=SystemClock(),
            partition_exists=lambda topic, index: True,
            work=SlicedWork(lambda: next(ticks) * 0.003),
        )
        self.links = Links()
        self.fetchers = ReplicaFetchers(self.links, self.replicas, FetchSettings())  # type: ignore[arg-type]
        self.hosted = open_hosted(directory)
        self.log = self.hosted.log
        self.follow(LEADER_EPOCH)
        self.replicas.add(self.hosted)

    def follow(self, leader_epoch: int) -> None:
        self.hosted.follow(Partition((LEADER, 1), (LEADER, 1), LEADER, leader_epoch))
        self.fetchers.follow(self.hosted)

    async def until(self, is_so: Any) -> None:
        async with asyncio.timeout(WAIT_S):
            while not is_so():
                await asyncio.sleep(0)


def run(directory: Path, test: Any) -> None:
    async def main() -> None:
        follower = Follower(directory)
        await asyncio.sleep(0)
        try:
            await test(follower)
        finally:
            follower.fetchers.stop()

    asyncio.run(main())


def test_a_large_answer_leaves_the_loop_free_and_is_acknowledged_when_it_is_whole(
    tmp_path: Path,
) -> None:
    async def test(follower: Follower) -> None:
        ends = [0]
        follower.links.answer(0, batches(0, BATCHES))

        def is_whole() -> bool:
            ends.append(follower.log.log_end_offset)
            has_moved = any(request.moved for request, _ in follower.links.polls)
            return ends[-1] == BATCHES or has_moved

        await follower.until(is_whole)
        assert ends[-1] == BATCHES
        steps = {later - earlier for earlier, later in pairwise(ends)}
        assert max(steps) <= fetched_answers.BATCHES_A_STEP
        await follower.until(lambda: any(request.moved for request, _ in follower.links.polls))
        (moved,) = follower.links.polls[-1][0].moved
        assert moved.fetch_offset == BATCHES

    run(tmp_path, test)


def test_answers_of_many_partitions_leave_the_loop_free(tmp_path: Path) -> None:
    """A thousand with one small batch each: 360 ms in one go, by the first of an epoch."""

    async def test(follower: Follower) -> None:
        logs = []
        for index in range(1, 101):
            hosted = open_hosted(tmp_path, index)
            follower.replicas.add(hosted)
            hosted.follow(Partition((LEADER, 1), (LEADER, 1), LEADER, LEADER_EPOCH))
            follower.fetchers.follow(hosted)
            logs.append(hosted.log)
        fetcher = next(iter(follower.fetchers._fetchers.values()))
        fetcher._session.reset()
        fetcher.resume()
        await follower.until(lambda: len(follower.links.polls[-1][0].added) == 101)
        follower.links.answer(-1, batches(0, 1))
        ends = [0]

        def are_whole() -> bool:
            ends.append(sum(log.log_end_offset for log in logs))
            return ends[-1] == 100

        await follower.until(are_whole)
        steps = {later - earlier for earlier, later in pairwise(ends)}
        assert max(steps) <= fetched_answers.ANSWERS_A_STEP

    run(tmp_path, test)


def test_a_small_answer_is_taken_at_once(tmp_path: Path) -> None:
    async def test(follower: Follower) -> None:
        follower.links.answer(0, batches(0, 100))
        assert follower.log.log_end_offset == 100
        assert follower.links.polls[-1][0].moved[0].fetch_offset == 100

    run(tmp_path, test)


@pytest.mark.parametrize("part", ["leads", "follows anew", "is dropped"])
def test_nothing_more_is_appended_once_the_part_has_changed(tmp_path: Path, part: str) -> None:
    async def test(follower: Follower) -> None:
        follower.links.answer(0, batches(0, BATCHES))
        await follower.until(lambda: follower.log.log_end_offset > 0)
        end = follower.log.log_end_offset
        assert end < BATCHES
        follower.fetchers.stop_following(follower.hosted)
        follower.hosted.follower = None
        if part == "is dropped":
            follower.log.retire()
        elif part == "follows anew":
            follower.follow(LEADER_EPOCH + 1)
        failures: list[Any] = []
        follower.replicas.storage_failed = failures.append
        await asyncio.sleep(0.05)
        assert follower.log.log_end_offset == end
        assert not failures
        if part == "follows anew":
            added = [each for request, _ in follower.links.polls[1:] for each in request.added]
            assert [each.fetch_offset for each in added] == [end]

    run(tmp_path, test)


def test_an_answer_to_a_session_begun_meanwhile_waits_for_the_first(tmp_path: Path) -> None:
    """The session was lost while an answer was carried out: the same records come once more."""

    async def test(follower: Follower) -> None:
        follower.links.answer(0, batches(0, BATCHES))
        await follower.until(lambda: follower.log.log_end_offset > 0)
        fetcher = next(iter(follower.fetchers._fetchers.values()))
        fetcher._session.reset()
        fetcher.resume()
        await follower.until(
            lambda: follower.links.polls[-1][0].added and len(follower.links.polls) > 1
        )
        follower.links.answer(-1, batches(0, BATCHES))
        await follower.until(lambda: follower.log.log_end_offset == BATCHES)
        await follower.until(lambda: follower.links.polls[-1][0].moved)
        assert follower.links.polls[-1][0].moved[0].fetch_offset == BATCHES

    run(tmp_path, test)


def test_producers_are_made_again_in_slices_after_a_truncation(tmp_path: Path) -> None:
    async def test(follower: Follower) -> None:
        follower.links.answer(0, batches(0, 100))
        follower.log.append_as_follower(batches(100, BATCHES), now_ms=1)
        polls = len(follower.links.polls)
        follower.links.answer(
            -1, b"", session_epoch=1, diverging_epoch=LEADER_EPOCH, diverging_end_offset=1_500
        )
        await follower.until(lambda: follower.log.log_end_offset == 1_500)
        assert follower.log.producer_state.entry(7).last_data_offset == BATCHES + 99
        await follower.until(lambda: follower.links.polls[-1][0].moved)
        assert follower.log.producer_state.entry(7).last_data_offset == 1_499
        assert follower.links.polls[-1][0].moved[0].fetch_offset == 1_500
        assert len(follower.links.polls) > polls

    run(tmp_path, test)


def test_an_answer_of_a_session_that_was_lost_cuts_nothing(tmp_path: Path) -> None:
    """It stood behind a large one; meanwhile the log was cut, and has acknowledged new records."""

    async def test(follower: Follower) -> None:
        other = open_hosted(tmp_path, 1)
        log = other.log
        for offset in range(10):
            record = Record(offset, 1_700_000_000_000, b"k", b"old")
            old = encode_batch([record], base_offset=offset, leader_epoch=1)
            log.append_as_follower(old, now_ms=1)
        follower.replicas.add(other)
        other.follow(Partition((LEADER, 1), (LEADER, 1), LEADER, LEADER_EPOCH))
        follower.fetchers.follow(other)
        polls = follower.links.polls
        fetcher = next(iter(follower.fetchers._fetchers.values()))
        fetcher._session.reset()
        fetcher.resume()
        await follower.until(lambda: len(polls[-1][0].added) == 2)

        def answer(added: dict[int, dict[str, Any]], poll: int = -1) -> None:
            request, answered = polls[poll]
            slots = [each.slot for each in (*request.added, *request.moved)]
            answers = [
                SlotAnswer(slots[at], high_watermark=0, log_start_offset=0, **fields)
                for at, fields in added.items()
            ]
            epoch = request.session_epoch
            response = ReplicaFetchResponse(7, epoch, broker_epoch=9, answers=answers)
            header, buffers = encode_fetch_response(response)
            answered((header, [memoryview(bytes(each)) for each in buffers]))

        def at_of(partition: int) -> int:
            return [each.partition for each in polls[-1][0].added].index(partition)

        cut = {"diverging_epoch": 1, "diverging_end_offset": 5}
        answer({at_of(0): {"records": batches(0, 8 * BATCHES)}, at_of(1): cut})
        await follower.until(lambda: follower.log.log_end_offset > 0)
        fetcher._session.reset()
        fetcher.resume()
        await follower.until(lambda: len(polls[-1][0].added) == 2)
        answer({at_of(1): cut})
        await follower.until(lambda: polls[-1][0].moved)
        assert [each.fetch_offset for each in polls[-1][0].moved] == [5] == [log.log_end_offset]
        answer({}, -2)
        answer({0: {"records": batches(5, 5)}})
        await follower.until(lambda: log.log_end_offset == 10)
        assert follower.log.log_end_offset < 8 * BATCHES
        ends = set()
        await follower.until(
            lambda: ends.add(log.log_end_offset) or follower.log.log_end_offset == 8 * BATCHES
        )
        for _ in range(20):
            await asyncio.sleep(0)
            ends.add(log.log_end_offset)
        assert ends == {10}

    run(tmp_path, test)
