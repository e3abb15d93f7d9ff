"""A follower's log that is cut in slices, and what happens between two of them."""

import asyncio
import errno
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.metadata.cluster_model import Partition
from oncelog.node.clock import SystemClock
from oncelog.node.partitions import replica_fetcher
from oncelog.node.partitions.hosted_partition import HostedPartition
from oncelog.node.partitions.replica_fetcher import FetchSettings, ReplicaFetchers
from oncelog.node.partitions.replica_manager import ReplicaManager
from oncelog.replication.follower_progress import PeerView
from oncelog.replication.messages import (
    ReplicaFetchResponse,
    SlotAnswer,
    decode_fetch_request,
    encode_fetch_response,
)
from oncelog.replication.sliced_work import SlicedWork
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.errors import ErrorCode
from oncelog.wire.records import Record, encode_batch

from ..hosted_logs import open_hosted

LEADER, EPOCH, WAIT_S = 2, 3, 10
BATCHES, CUT_TO = 60, 7


def batch(offset: int, epoch: int = EPOCH) -> bytes:
    return encode_batch(
        [Record(offset, 1_700_000_000_000, b"k", b"v")], base_offset=offset, leader_epoch=epoch
    )


class Links:
    """The leaders' brokers: the test answers the polls."""

    def __init__(self) -> None:
        self.polls: list[tuple[int, Any, Any]] = []

    def on_peer_change(self, callback: Any) -> None:
        pass

    def ask(self, peer: int, kind: int, payload: Any, *, answered: Any, **_: Any) -> None:
        self.polls.append((peer, decode_fetch_request(payload), answered))

    def positions(self, peer: int) -> list[int]:
        """What the broker was told of log ends, in the order of the polls."""
        return [
            slot.fetch_offset
            for to, poll, _ in self.polls
            if to == peer
            for slot in (*poll.added, *poll.moved)
        ]


class OneStepATurn:
    """A clock by which a slice is over after one step."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.003
        return self.now


class Points:
    """What the disk says of recovery points."""

    def __init__(self) -> None:
        self.on_disk = 0
        self.lowered: list[int] = []

    def is_at_most(self, key: tuple[str, int], offset: int) -> bool:
        return self.on_disk <= offset

    async def lower(self, key: tuple[str, int], offset: int) -> None:
        self.on_disk = min(offset, self.on_disk)
        self.lowered.append(offset)


class Follower:
    """A broker with one replica, of some thirty segments."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.replicas = ReplicaManager(
            loop=asyncio.get_running_loop(),
            clock=SystemClock(),
            partition_exists=lambda *_: True,
            work=SlicedWork(OneStepATurn()),
        )
        self.points = self.replicas.recovery_points = Points()
        self.failed: list[HostedPartition] = []
        self.replicas.storage_failed = self.failed.append
        self.links = Links()
        self._answered = 0  # of the polls
        settings = FetchSettings(backoff_ms=1)
        self.fetchers = ReplicaFetchers(self.links, self.replicas, settings)  # type: ignore[arg-type]
        self.partition = self.open()
        for offset in range(BATCHES):
            self.log.append_as_follower(batch(offset), now_ms=1)
        self.log.flush()
        self.partition.follow(Partition((LEADER, 1), (LEADER, 1), LEADER, EPOCH))
        self.fetchers.follow(self.partition)

    def open(self) -> HostedPartition:
        partition = open_hosted(self.path, segment_bytes=150)
        self.replicas.add(partition)
        return partition

    @property
    def log(self) -> PartitionLog:
        return self.partition.log

    async def answer(self, **answer: Any) -> None:
        """Answer all polls, and the one in which the replica came like this."""
        await until(lambda: any(poll.added for _, poll, _ in self.links.polls[self._answered :]))
        for _, poll, answered in self.links.polls[self._answered :]:
            self._answered += 1
            slots = [SlotAnswer(added.slot, high_watermark=0, **answer) for added in poll.added]
            response = ReplicaFetchResponse(7, poll.session_epoch, broker_epoch=9, answers=slots)
            header, buffers = encode_fetch_response(response)
            answered((header, [memoryview(bytes(b)) for b in buffers]))

    async def begin_to_cut(self, how: str) -> None:
        """Go on until the log has lost some segments, and not all that it will lose."""
        await self.answer(**ANSWERS[how])
        await until(lambda: self.log.log_end_offset < BATCHES - 9)
        assert self.log.log_end_offset > CUT_TO + 9

    async def nothing_is_cut(self) -> None:
        before = self.log.log_end_offset
        for _ in range(100):
            await asyncio.sleep(0)
        assert self.log.log_end_offset == before


ANSWERS: dict[str, dict[str, Any]] = {
    "truncate": {"diverging_epoch": EPOCH, "diverging_end_offset": CUT_TO, "log_start_offset": 0},
    "start over": {
        "error": int(ErrorCode.OFFSET_OUT_OF_RANGE),
        "diverging_end_offset": 2000,
        "log_start_offset": 1000,
    },
}
ENDS = {"truncate": CUT_TO, "start over": 1000}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0)


def with_follower(path: Path, test: Callable[[Follower], Awaitable[None]]) -> None:
    async def run() -> None:
        follower = Follower(path)
        await test(follower)
        follower.fetchers.stop()

    asyncio.run(run())


@pytest.mark.parametrize("how", ANSWERS)
def test_the_loop_goes_on_while_a_log_is_cut(tmp_path: Path, how: str) -> None:
    async def test(node: Follower) -> None:
        await node.answer(**ANSWERS[how])
        segments, most, turns = len(node.log.segments), 0, 0
        while node.log.log_end_offset != ENDS[how]:
            await asyncio.sleep(0)
            most = max(most, segments - len(node.log.segments))
            segments = len(node.log.segments)
            turns += 1
        assert most == 1 and turns > 20
        await until(lambda: node.links.positions(LEADER)[-1] == ENDS[how])
        assert node.links.positions(LEADER) == [BATCHES, ENDS[how]], "no end on the way"

    with_follower(tmp_path, test)


@pytest.mark.parametrize("how", ANSWERS)
def test_the_end_offset_sent_to_a_new_leader_is_not_truncated(tmp_path: Path, how: str) -> None:
    """It counts what a follower says it has: that must not be cut by an order of the old leader."""

    async def test(node: Follower) -> None:
        await node.begin_to_cut(how)
        node.fetchers.stop_following(node.partition)
        node.partition.follow(Partition((LEADER, 1, 3), (LEADER, 1, 3), 3, EPOCH + 1))
        node.fetchers.follow(node.partition)
        end_offset = node.log.log_end_offset
        await until(lambda: bool(node.links.positions(3)))
        assert node.links.positions(3) == [end_offset]
        await node.nothing_is_cut()
        node.log.append_as_follower(batch(end_offset, EPOCH + 1), now_ms=1)
        await node.nothing_is_cut()

    with_follower(tmp_path, test)


@pytest.mark.parametrize("how", ANSWERS)
def test_who_leads_is_not_cut_any_more(tmp_path: Path, how: str) -> None:
    async def test(node: Follower) -> None:
        await node.begin_to_cut(how)
        node.fetchers.stop_following(node.partition)
        node.partition.lead(
            Partition((1,), (1,), 1, EPOCH + 1), node_id=1, broker_epoch=1, min_insync_replicas=1,
            peers=PeerView(), now_ms=1, lag_time_max_ms=1000,
        )  # fmt: skip
        assert node.log.recovery_point == node.log.log_end_offset
        await node.nothing_is_cut()
        assert node.log.latest_epoch == EPOCH + 1

    with_follower(tmp_path, test)


@pytest.mark.parametrize("how", ANSWERS)
def test_a_checkpoint_that_is_written_meanwhile_is_lowered_again(tmp_path: Path, how: str) -> None:
    """What grows above the cut would be trusted unread after a power cut, up to what it says."""

    async def test(node: Follower) -> None:
        await node.begin_to_cut(how)
        node.points.on_disk = node.log.log_end_offset
        end_offset = node.log.log_end_offset
        await until(lambda: bool(node.points.lowered))
        assert node.log.log_end_offset == end_offset
        assert node.points.on_disk <= min(ENDS[how], CUT_TO)
        await until(lambda: node.links.positions(LEADER)[-1] == end_offset)
        await node.answer(**ANSWERS[how])
        await until(lambda: node.links.positions(LEADER)[-1] == ENDS[how])

    with_follower(tmp_path, test)


@pytest.mark.parametrize("how", ANSWERS)
def test_a_replica_that_leaves_and_comes_back_is_followed(tmp_path: Path, how: str) -> None:
    async def test(node: Follower) -> None:
        await node.begin_to_cut(how)
        node.fetchers.stop_following(node.partition)
        node.replicas.remove(node.partition)
        node.partition.follower = None
        node.log.retire()
        os.rename(tmp_path / "t-0", tmp_path / "gone")
        node.partition = node.open()
        node.partition.follow(Partition((LEADER, 1), (LEADER, 1), LEADER, EPOCH))
        node.fetchers.follow(node.partition)
        await node.nothing_is_cut()
        assert node.failed == []
        assert node.links.positions(LEADER) == [BATCHES, 0]
        node.fetchers.stop_following(node.partition)

    with_follower(tmp_path, test)


@pytest.mark.parametrize("how", ANSWERS)
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC])
def test_a_follower_that_lacks_something_cuts_its_log_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, number: int
) -> None:
    monkeypatch.setattr(replica_fetcher, "NO_ROOM_BACKOFF_MS", 1)

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    async def test(node: Follower) -> None:
        await node.begin_to_cut(how)
        with monkeypatch.context() as patched:
            patched.setattr(os, "open" if number == errno.EMFILE else "rename", fail)
            await node.nothing_is_cut()
        assert not node.log.is_failed
        await node.answer(**ANSWERS[how])
        await until(lambda: node.links.positions(LEADER)[-1] == ENDS[how])
        assert node.failed == []

    with_follower(tmp_path, test)
