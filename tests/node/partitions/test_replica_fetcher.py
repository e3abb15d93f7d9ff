"""How a broker follows: what one partition's trouble does to the others of that leader."""

import asyncio
import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.metadata.cluster_model import Partition
from oncelog.node.clock import SystemClock
from oncelog.node.partitions.replica_fetcher import FetchSettings, ReplicaFetchers
from oncelog.node.partitions.replica_manager import ReplicaManager
from oncelog.replication.messages import (
    ReplicaFetchResponse,
    SlotAnswer,
    decode_fetch_request,
    encode_fetch_response,
)
from oncelog.wire.records import Record, encode_batch

from ..hosted_logs import open_hosted

LEADER, LEADER_EPOCH = 2, 3


class _Links:
    """The leader's broker: the test answers its polls."""

    def __init__(self) -> None:
        self.polls: list[tuple[Any, Any]] = []

    def on_peer_change(self, callback: Any) -> None:
        pass

    def ask(self, peer: int, kind: int, payload: Any, *, answered: Any, **_: Any) -> None:
        self.polls.append((decode_fetch_request(payload), answered))


def batch(offset: int) -> bytes:
    return encode_batch(
        [Record(offset, 1_700_000_000_000, b"k", b"v")],
        base_offset=offset,
        leader_epoch=LEADER_EPOCH,
    )


async def test_an_unexpected_error_stops_its_partition_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = ReplicaManager(
        loop=asyncio.get_running_loop(),
        clock=SystemClock(),
        partition_exists=lambda topic, index: True,
    )
    failed = []
    replicas.storage_failed = failed.append
    links = _Links()
    fetchers = ReplicaFetchers(links, replicas, FetchSettings())  # type: ignore[arg-type]
    hosted = []
    for index in range(3):
        one = open_hosted(tmp_path, index)
        one.follow(Partition((LEADER, 1), (LEADER, 1), LEADER, LEADER_EPOCH))
        replicas.add(one)
        fetchers.follow(one)
        hosted.append(one)

    def broken(*_: Any, **__: Any) -> None:
        raise AssertionError("what nobody thought of")

    monkeypatch.setattr(hosted[1].log, "append_as_follower", broken)
    await asyncio.sleep(0)
    ((request, answered),) = links.polls
    answers = [
        SlotAnswer(added.slot, high_watermark=0, log_start_offset=0, records=batch(0))
        for added in request.added
    ]
    response = ReplicaFetchResponse(7, 0, broker_epoch=9, answers=answers)
    header, buffers = encode_fetch_response(response)
    with caplog.at_level(logging.ERROR, "oncelog.node"):
        answered((header, [memoryview(bytes(b)) for b in buffers]))
    assert [one.log.log_end_offset for one in hosted] == [1, 0, 1]
    assert failed == [hosted[1]]
    assert hosted[1].log.is_failed
    assert "what nobody thought of" in caplog.text
    following, _ = links.polls[-1]
    assert [moved.fetch_offset for moved in following.moved] == [1, 1]
    assert len(following.removed) == 1
    fetchers.stop()


async def test_a_follower_without_room_goes_on_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = ReplicaManager(
        loop=asyncio.get_running_loop(),
        clock=SystemClock(),
        partition_exists=lambda topic, index: True,
    )
    links = _Links()
    settings = FetchSettings(backoff_ms=1)
    fetchers = ReplicaFetchers(links, replicas, settings)  # type: ignore[arg-type]
    one = open_hosted(tmp_path, segment_bytes=100)
    log = one.log
    one.follow(Partition((LEADER, 1), (LEADER, 1), LEADER, LEADER_EPOCH))
    replicas.add(one)
    fetchers.follow(one)
    await asyncio.sleep(0)
    request, answered = links.polls.pop()
    records = batch(0) + batch(1)
    answer = SlotAnswer(
        request.added[0].slot, high_watermark=0, log_start_offset=0, records=records
    )
    header, buffers = encode_fetch_response(
        ReplicaFetchResponse(7, 0, broker_epoch=9, answers=[answer])
    )
    real = os.pwrite

    def first_segment_only(fd: int, data: Any, position: int) -> int:
        if log.log_end_offset and not position:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, position)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", first_segment_only)
        answered((header, [memoryview(bytes(b)) for b in buffers]))
    assert log.log_end_offset == 1 and not log.is_failed
    async with asyncio.timeout(10):
        while not (added := [slot for poll, _ in links.polls for slot in poll.added]):
            await asyncio.sleep(0.002)
    assert [slot.fetch_offset for slot in added] == [1], "where the log ends now"
    fetchers.stop()


async def test_a_leader_that_opens_no_session_is_not_asked_again_at_once(tmp_path: Path) -> None:
    replicas = ReplicaManager(
        loop=asyncio.get_running_loop(),
        clock=SystemClock(),
        partition_exists=lambda topic, index: True,
    )
    links = _Links()
    settings = FetchSettings(backoff_ms=5)
    fetchers = ReplicaFetchers(links, replicas, settings)  # type: ignore[arg-type]
    one = open_hosted(tmp_path)
    one.follow(Partition((LEADER, 1), (LEADER, 1), LEADER, LEADER_EPOCH))
    replicas.add(one)
    fetchers.follow(one)
    await asyncio.sleep(0)
    _, answered = links.polls.pop()
    header, _ = encode_fetch_response(ReplicaFetchResponse(0, 0, broker_epoch=9, answers=[]))
    answered((header, []))
    await asyncio.sleep(0)
    assert not links.polls
    async with asyncio.timeout(10):
        while not links.polls:
            await asyncio.sleep(0.001)
    assert [request.session_id for request, _ in links.polls] == [0]
    fetchers.stop()
