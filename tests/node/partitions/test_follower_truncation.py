"""Test that a follower truncates its log in slices, while other events arrive."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.metadata.cluster_model import PartitionRegistration
from oncelog.node.partitions import replica_fetcher
from oncelog.replication.follower_progress import PeerView
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.errors import ErrorCode

from ...awaiting import settle, turns_until
from ..following_broker import LEADER, LEADER_EPOCH, FollowingBroker, batches, slot_answer

BATCHES, CUT_TO, SEGMENT_BYTES = 60, 7, 150


class Points:
    """A checkpoint file with one offset."""

    def __init__(self) -> None:
        self.on_disk = 0
        self.lowered: list[int] = []

    def is_at_most(self, key: tuple[str, int], offset: int) -> bool:
        return self.on_disk <= offset

    async def lower(self, key: tuple[str, int], offset: int) -> None:
        self.on_disk = min(offset, self.on_disk)
        self.lowered.append(offset)


class Follower(FollowingBroker):
    """A follower of one partition with thirty segments. Its slices have one step each."""

    def __init__(self, directory: Path) -> None:
        ticks = iter(range(1 << 30))
        settings = {"replica_fetch_backoff_ms": "1"}
        super().__init__(directory, clock_s=lambda: next(ticks) * 0.003, **settings)
        self.points, self.others = Points(), Points()
        self.replicas.checkpoints = (self.points, self.others)  # type: ignore[assignment]
        self._answered = 0  # of the polls
        self.partition = self.host(segment_bytes=SEGMENT_BYTES)
        for offset in range(BATCHES):
            self.log.append_as_follower(batches(offset), now_ms=1)
        self.log.flushing.flush()
        self.follow(self.partition)

    @property
    def log(self) -> PartitionLog:
        return self.partition.log

    async def answer(self, **answer: Any) -> None:
        """Answer all replica fetches, with these fields for the partition."""
        await turns_until(lambda: any(poll.request.added for poll in self.polls[self._answered :]))
        for poll in self.polls[self._answered :]:
            self._answered += 1
            poll.answer(slot_answer(added.slot, **answer) for added in poll.request.added)

    def positions(self, peer: int = LEADER) -> list[int]:
        """Return the fetch offsets that were sent to a peer, in order."""
        return [
            slot.fetch_offset
            for to, request, _ in self.polls
            if to == peer
            for slot in (*request.added, *request.moved)
        ]

    async def begin_to_cut(self, how: str) -> None:
        """Start a truncation, and return when only some of its segments are removed."""
        await self.answer(**ANSWERS[how])
        await turns_until(lambda: self.log.log_end_offset < BATCHES - 9)
        assert self.log.log_end_offset > CUT_TO + 9

    async def nothing_is_cut(self) -> None:
        before = self.log.log_end_offset
        await settle(100)
        assert self.log.log_end_offset == before


ANSWERS: dict[str, dict[str, Any]] = {
    "truncate": {
        "diverging_epoch": LEADER_EPOCH,
        "diverging_end_offset": CUT_TO,
        "log_start_offset": 0,
    },
    "start over": {
        "error": int(ErrorCode.OFFSET_OUT_OF_RANGE),
        "diverging_end_offset": 2000,
        "log_start_offset": 1000,
    },
}
ENDS = {"truncate": CUT_TO, "start over": 1000}


@pytest.fixture
@asynccontextmanager
async def node(tmp_path: Path) -> AsyncIterator[Follower]:
    follower = Follower(tmp_path)
    yield follower
    follower.fetchers.stop()


@pytest.mark.parametrize("how", ANSWERS)
async def test_event_loop_stays_free_while_a_log_is_truncated(how: str, node: Follower) -> None:
    await node.answer(**ANSWERS[how])
    segments, most, turns = len(node.log.segments), 0, 0
    while node.log.log_end_offset != ENDS[how]:
        await asyncio.sleep(0)
        most = max(most, segments - len(node.log.segments))
        segments = len(node.log.segments)
        turns += 1
    assert most == 1 and turns > 20
    await turns_until(lambda: node.positions()[-1] == ENDS[how])
    assert node.positions() == [BATCHES, ENDS[how]], "no offset in between is sent"


@pytest.mark.parametrize("how", ANSWERS)
async def test_log_end_offset_reported_to_a_new_leader_is_not_truncated(
    how: str, node: Follower
) -> None:
    """The new leader may commit records up to that offset, so they must not be lost."""
    await node.begin_to_cut(how)
    node.fetchers.stop_following(node.partition)
    node.follow(node.partition, leader=3, epoch=LEADER_EPOCH + 1)
    end_offset = node.log.log_end_offset
    await turns_until(lambda: bool(node.positions(3)))
    assert node.positions(3) == [end_offset]
    await node.nothing_is_cut()
    node.log.append_as_follower(batches(end_offset, epoch=LEADER_EPOCH + 1), now_ms=1)
    await node.nothing_is_cut()


@pytest.mark.parametrize("how", ANSWERS)
async def test_log_of_a_newly_elected_leader_is_not_truncated_further(
    how: str, node: Follower
) -> None:
    await node.begin_to_cut(how)
    node.fetchers.stop_following(node.partition)
    node.partition.lead(
        PartitionRegistration((1,), (1,), 1, LEADER_EPOCH + 1), node_id=1, broker_epoch=1,
        min_insync_replicas=1, peers=PeerView(), now_ms=1, lag_time_max_ms=1000,
    )  # fmt: skip
    assert node.log.flushing.recovery_point == node.log.log_end_offset
    await node.nothing_is_cut()
    assert node.log.latest_epoch == LEADER_EPOCH + 1


@pytest.mark.parametrize("how", ANSWERS)
async def test_checkpoint_written_during_a_truncation_is_lowered_again(
    how: str, node: Follower
) -> None:
    """After a power cut, records below the checkpoint would not be checked."""
    await node.begin_to_cut(how)
    node.points.on_disk = node.log.log_end_offset
    end_offset = node.log.log_end_offset
    await turns_until(lambda: bool(node.points.lowered))
    assert node.log.log_end_offset == end_offset
    assert node.points.on_disk <= min(ENDS[how], CUT_TO)
    await turns_until(lambda: node.positions()[-1] == end_offset)
    await node.answer(**ANSWERS[how])
    await turns_until(lambda: node.positions()[-1] == ENDS[how])


@pytest.mark.parametrize("how", ANSWERS)
async def test_truncation_waits_until_each_checkpoint_is_lowered(how: str, node: Follower) -> None:
    """With a checkpoint above the truncation, new records would count as compacted."""
    node.others.on_disk = BATCHES
    await node.answer(**ANSWERS[how])
    await turns_until(lambda: bool(node.others.lowered))
    assert node.log.log_end_offset == BATCHES and not node.points.lowered
    assert node.others.on_disk <= CUT_TO
    await node.answer(**ANSWERS[how])
    await turns_until(lambda: node.positions()[-1] == ENDS[how])


@pytest.mark.parametrize("how", ANSWERS)
async def test_replica_removed_and_added_again_during_a_truncation_is_fetched_from_its_start(
    tmp_path: Path, how: str, node: Follower
) -> None:
    await node.begin_to_cut(how)
    node.fetchers.stop_following(node.partition)
    node.replicas.remove(node.partition)
    node.partition.follower = None
    node.log.local.retire()
    os.rename(tmp_path / "t-0", tmp_path / "gone")
    node.partition = node.host(segment_bytes=SEGMENT_BYTES)
    node.follow(node.partition)
    await node.nothing_is_cut()
    assert node.failures.reported == []
    assert node.positions() == [BATCHES, 0]
    node.fetchers.stop_following(node.partition)


@pytest.mark.parametrize("how", ANSWERS)
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC])
async def test_follower_truncation_that_lacks_resources_is_repeated_later(
    monkeypatch: pytest.MonkeyPatch, how: str, number: int, node: Follower
) -> None:
    monkeypatch.setattr(replica_fetcher, "NO_ROOM_BACKOFF_MS", 1)

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(number, os.strerror(number))

    await node.begin_to_cut(how)
    with monkeypatch.context() as patched:
        patched.setattr(os, "open" if number == errno.EMFILE else "rename", fail)
        await node.nothing_is_cut()
    assert not node.log.is_failed
    await node.answer(**ANSWERS[how])
    await turns_until(lambda: node.positions()[-1] == ENDS[how])
    assert node.failures.reported == []
