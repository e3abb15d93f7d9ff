"""Test replica fetchers: errors of one partition, a full disk, lost sessions, and throttles."""

import asyncio
import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from ...awaiting import until
from ..following_broker import FollowingBroker, batches


async def test_replica_fetcher_with_an_unexpected_error_stops_only_that_partition(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = FollowingBroker(tmp_path)
    hosted = [broker.host(index) for index in range(3)]
    for one in hosted:
        broker.follow(one)

    def broken(*_: Any, **__: Any) -> None:
        raise AssertionError("an unexpected defect")

    monkeypatch.setattr(hosted[1].log, "append_as_follower", broken)
    await asyncio.sleep(0)
    (poll,) = broker.polls
    with caplog.at_level(logging.ERROR, "oncelog.node"):
        poll.answer_all(records=batches(0))
    assert [one.log.log_end_offset for one in hosted] == [1, 0, 1]
    assert broker.failures.reported == [hosted[1].key]
    assert hosted[1].log.is_failed
    assert "an unexpected defect" in caplog.text
    following = broker.polls[-1].request
    assert [moved.fetch_offset for moved in following.moved] == [1, 1]
    assert len(following.removed) == 1
    broker.fetchers.stop()


async def test_replica_fetcher_on_a_full_disk_continues_when_space_is_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = FollowingBroker(tmp_path, replica_fetch_backoff_ms="1")
    one = broker.host(segment_bytes=100)
    log = one.log
    broker.follow(one)
    await asyncio.sleep(0)
    poll = broker.polls.pop()
    real = os.pwrite

    def first_segment_only(fd: int, data: Any, position: int) -> int:
        if log.log_end_offset and not position:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, position)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", first_segment_only)
        poll.answer_all(records=batches(0, 2))
    assert log.log_end_offset == 1 and not log.is_failed
    await until(lambda: any(poll.request.added for poll in broker.polls))
    added = [slot.fetch_offset for poll in broker.polls for slot in poll.request.added]
    assert added == [1], "where the log ends now"
    broker.fetchers.stop()


async def test_replica_fetcher_of_a_leader_without_a_session_waits_before_the_next_request(
    tmp_path: Path,
) -> None:
    broker = FollowingBroker(tmp_path, replica_fetch_backoff_ms="5")
    one = broker.host()
    broker.follow(one)
    await asyncio.sleep(0)
    broker.polls.pop().answer([], session_id=0)
    await asyncio.sleep(0)
    assert not broker.polls
    await until(lambda: broker.polls)
    assert [poll.request.session_id for poll in broker.polls] == [0]
    broker.fetchers.stop()


async def test_replica_fetcher_above_its_throttle_rate_requests_no_throttled_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = FollowingBroker(tmp_path)
    throttled, other = broker.host(0), broker.host(1)
    for one in (throttled, other):
        broker.follow(one)
    pauses, noted = [20, 20, 20, 0], dict[int, int]()
    throttle = broker.throttle
    monkeypatch.setattr(throttle, "is_on", True)
    monkeypatch.setattr(throttle, "may_hold", lambda key, replica: key == throttled.key)
    monkeypatch.setattr(throttle, "pause_ms", lambda: pauses.pop(0) if len(pauses) > 1 else 0)
    monkeypatch.setattr(throttle, "note", lambda key, size: noted.update({key[1]: size}))
    await asyncio.sleep(0)
    broker.polls.pop().answer_all(records=batches(0))
    assert [one.log.log_end_offset for one in (throttled, other)] == [1, 1]
    assert noted == {0: len(batches(0)), 1: len(batches(0))}
    (poll,) = broker.polls
    assert [len(poll.request.moved), len(poll.request.removed)] == [1, 1]
    await until(lambda: any(each.request.added for each in broker.polls))
    assert len(pauses) == 1, "it is fetched again when the rate allows it, and not before"
    added = [slot for each in broker.polls for slot in each.request.added]
    assert [(slot.partition, slot.fetch_offset) for slot in added] == [(0, 1)]
    broker.fetchers.stop()
