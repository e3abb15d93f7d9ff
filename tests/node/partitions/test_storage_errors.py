"""Test flushes before acknowledgements, and disk errors of a leader."""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncelog.coordinator.metadata.cluster_model import PartitionRegistration
from oncelog.wire.errors import ErrorCode

from ...awaiting import settle, until
from ..hosted_logs import RecordedFailures
from ..leading_broker import LeadingBroker, plain

WAIT_S = 10


class SlowDisk:
    """A disk with syncs that the test delays and counts, those on the event loop separately."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self.free.set()
        self.on_the_loop = self.count = self.at_once = self.at_once_max = 0
        self._lock = threading.Lock()
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(fd: int) -> None:
            with self._lock:
                self.count += 1
                self.on_the_loop += threading.current_thread() is threading.main_thread()
                self.at_once += 1
                self.at_once_max = max(self.at_once_max, self.at_once)
            try:
                assert self.free.wait(WAIT_S)
                real(fd)
            finally:
                with self._lock:
                    self.at_once -= 1

        return sync


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("acks", [1, -1])
async def test_produce_with_flush_messages_is_acknowledged_after_a_flush_outside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    broker = LeadingBroker(tmp_path, partitions=3, log_config={"flush_messages": 1})
    connection = broker.connect()
    disk = SlowDisk(monkeypatch)
    disk.free.clear()
    first = broker.put({i: plain() for i in range(3)}, connection=connection, acks=acks)
    await until(lambda: disk.count >= 1)
    more = [broker.put(plain(), connection=connection, acks=acks) for _ in range(20)]
    await settle()
    assert not first.is_there and not any(each.is_there for each in more)
    assert broker.log().high_watermark == 0 and broker.log().log_end_offset == 21
    disk.free.set()
    assert await first.errors() == {0: 0, 1: 0, 2: 0}
    for each in more:
        assert await each.errors() == {0: 0}
    assert broker.log().flushing.recovery_point == broker.log().high_watermark == 21
    assert disk.on_the_loop == 0
    disk.count = 0
    assert await broker.put(plain(), connection=connection, acks=acks).errors() == {0: 0}
    assert disk.count == 1, "the active segment needs one sync"


async def test_produce_committed_by_the_replicas_still_waits_for_the_local_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = LeadingBroker(tmp_path, replicas=(1, 2), log_config={"flush_messages": 1})
    disk = SlowDisk(monkeypatch)
    disk.free.clear()
    answer = broker.put(plain())
    broker.replicate()
    await settle()
    assert not answer.is_there and broker.log().high_watermark == 0
    disk.free.set()
    assert await answer.errors() == {0: 0}


async def test_produce_with_a_failing_flush_gets_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = LeadingBroker(tmp_path, log_config={"flush_messages": 1})
    failures = broker.replicas.failed_logs = RecordedFailures()
    monkeypatch.setattr(os, "fdatasync", failing(errno.EIO))
    for acks in (1, -1):
        answer = broker.put(plain(), acks=acks)
        assert await answer.errors() == {0: ErrorCode.KAFKA_STORAGE_ERROR}
    assert failures.reported == [broker.partition().key] and broker.partition().leader is None


async def test_newly_elected_leader_with_unsynced_records_commits_them_after_a_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = LeadingBroker(tmp_path, log_config={"flush_messages": 1})
    hosted = broker.partition()
    hosted.follow(PartitionRegistration(replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=2))
    hosted.log.append_as_follower(bytes(plain()), now_ms=1)
    broker.make_leader(
        hosted, PartitionRegistration(replicas=(1,), isr=(1,), leader=1, leader_epoch=3)
    )
    assert hosted.leader is not None and hosted.log.high_watermark == 0
    broker.replicas.flusher.flush(hosted)
    await until(lambda: hosted.log.high_watermark == 1)


async def _failing_reads(
    broker: LeadingBroker, monkeypatch: pytest.MonkeyPatch, number: int
) -> tuple[list[tuple[bytes, int]], int]:
    failures = broker.replicas.failed_logs = RecordedFailures()
    for _ in range(3):
        broker.put(plain())
    broker.replicate()

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", failing(number))
        (read,) = await broker.fetch(0, isolation_level=0).partitions()
        await settle()
    assert read.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (read,) = await broker.fetch(0, isolation_level=0).partitions()
    return failures.reported, read.error_code


async def test_leader_with_a_read_error_steps_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = LeadingBroker(tmp_path, replicas=(1, 2))
    reported, error = await _failing_reads(broker, monkeypatch, errno.EIO)
    assert reported == [broker.partition().key] and broker.partition().leader is None
    assert error == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_leader_without_free_descriptors_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    broker = LeadingBroker(tmp_path, replicas=(1, 2))
    assert await _failing_reads(broker, monkeypatch, number) == ([], 0)


async def test_leader_with_a_full_disk_refuses_writes_until_space_is_available(
    broker: LeadingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", failing(errno.ENOSPC))
        assert await broker.put(plain()).errors() == {0: ErrorCode.KAFKA_STORAGE_ERROR}
    assert await broker.put(plain()).errors() == {0: 0}
    assert broker.log().log_end_offset == 1
