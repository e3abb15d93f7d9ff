"""Test that a failed log is reported until the controller has confirmed the report.

A log that recovers needs no report.
"""

import asyncio
import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from oncelog.coordinator.metadata.commands import Command, FailReplicas
from oncelog.coordinator.metadata.results import Result
from oncelog.node.partitions import storage_failures
from oncelog.node.partitions.storage_failures import DiskTrouble, StorageFailures
from oncelog.wire.errors import KafkaError, KafkaStorageError, RequestTimedOut

from ...awaiting import until
from ..hosted_logs import TOPIC_ID


class Controller:
    """A controller that answers once `is_there` is set. Earlier requests wait."""

    def __init__(self) -> None:
        self.is_there = asyncio.Event()
        self.asked: list[tuple[int, ...]] = []
        self.decided: list[tuple[int, ...]] = []

    async def propose(self, command: Command) -> Result:
        assert isinstance(command, FailReplicas)
        indexes = tuple(index for _, index in command.partitions)
        self.asked.append(indexes)
        await self.is_there.wait()
        self.decided.append(indexes)
        return Result()


@pytest.mark.parametrize("is_asked", [False, True])
async def test_failed_log_that_was_opened_later_is_not_removed_from_the_isr(is_asked: bool) -> None:
    controller = Controller()
    failures = StorageFailures(controller.propose, node_id=1, broker_epoch=1)
    for index in range(3):
        failures.report(TOPIC_ID, index)
    if is_asked:
        await until(lambda: len(controller.asked) == 1)
    failures.withdraw(TOPIC_ID, 1)
    failures.withdraw(TOPIC_ID, 7)
    await until(lambda: len(controller.asked) == 1 + is_asked)
    controller.is_there.set()
    await until(lambda: not failures._unreported)
    await failures.stop()
    assert controller.decided == [(0, 2)]


async def test_failed_log_report_that_was_withdrawn_is_not_sent_again() -> None:
    controller = Controller()
    failures = StorageFailures(controller.propose, node_id=1, broker_epoch=1)
    failures.report(TOPIC_ID, 0)
    await until(lambda: controller.asked)
    failures.withdraw(TOPIC_ID, 0)
    controller.is_there.set()
    await asyncio.sleep(0.05)
    failures.report(TOPIC_ID, 5)
    await until(lambda: len(controller.asked) == 2)
    await failures.stop()
    assert controller.decided == [(5,)]


async def test_failed_log_report_made_while_one_is_in_flight_is_sent() -> None:
    """The second report may follow another election. Without it the replica is never repaired."""
    controller = Controller()
    failures = StorageFailures(controller.propose, node_id=1, broker_epoch=1)
    failures.report(TOPIC_ID, 0)
    await until(lambda: controller.asked)
    failures.report(TOPIC_ID, 0)
    controller.is_there.set()
    await until(lambda: not failures._unreported)
    await failures.stop()
    assert controller.decided == [(0,), (0,)]


async def test_failed_log_report_is_repeated_until_its_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(storage_failures, "RETRY_S", 0.001)

    count = 0

    async def propose(command: Command) -> Result:
        nonlocal count
        count += 1
        if count < 4:
            raise RequestTimedOut
        return Result()

    failures = StorageFailures(propose, node_id=1, broker_epoch=1)
    failures.report(TOPIC_ID, 0)
    await until(lambda: not failures._unreported)
    await failures.stop()
    assert count == 4


def refused(number: int) -> KafkaError:
    error = KafkaStorageError("the log of t-0 failed on disk")
    error.__cause__ = OSError(number, os.strerror(number))
    return error


async def test_full_disk_is_reported_once_and_new_space_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(storage_failures, "LOOK_S", 0.01)
    with ThreadPoolExecutor(1) as executor:
        disk = DiskTrouble(tmp_path / "missing", executor)
        for _ in range(3):
            disk.note(refused(errno.ENOSPC))
        assert disk.words == "the disk is full (No space left on device)"
        await asyncio.sleep(0.05)
        assert disk.words  # nothing can be written there
        (tmp_path / "missing").mkdir()
        await until(lambda: not disk.words)
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in lines] == ["ERROR", "WARNING"]
    assert "is full" in lines[0][1] and "until there is space again" in lines[0][1]
    assert "accepts writes again" in lines[1][1]
    assert list((tmp_path / "missing").iterdir()) == []


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
async def test_log_lost_to_a_failed_disk_is_reported_until_a_restart(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(storage_failures, "LOOK_S", 0.001)
    with ThreadPoolExecutor(1) as executor:
        disk = DiskTrouble(tmp_path, executor)
        disk.note(OSError(number, os.strerror(number)))
        disk.note(OSError(number, os.strerror(number)), is_log_lost=True)
        await asyncio.sleep(0.05)
        assert os.strerror(number) in disk.words
        await disk.stop()
    assert ["restarted" in record.getMessage() for record in caplog.records] == [True]


async def test_disk_error_during_a_test_write_is_reported_after_the_write_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_failures, "LOOK_S", 0.001)
    may_answer, is_tried = threading.Event(), threading.Event()

    def takes_writes(_: DiskTrouble) -> bool:
        is_tried.set()
        return may_answer.wait(10)

    monkeypatch.setattr(DiskTrouble, "_takes_writes", takes_writes)
    with ThreadPoolExecutor(1) as executor:
        disk = DiskTrouble(tmp_path, executor)
        disk.note(refused(errno.ENOSPC))
        await until(is_tried.is_set)
        monkeypatch.setattr(DiskTrouble, "_takes_writes", lambda _: False)
        disk.note(refused(errno.ENOSPC))
        may_answer.set()
        await asyncio.sleep(0.05)
        assert disk.words
        await disk.stop()


async def test_log_lost_to_a_full_disk_is_reported_until_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(storage_failures, "LOOK_S", 0.001)
    with ThreadPoolExecutor(1) as executor:
        disk = DiskTrouble(tmp_path, executor)
        disk.note(refused(errno.ENOSPC))
        disk.note(refused(errno.ENOSPC), is_log_lost=True)
        await asyncio.sleep(0.05)
        assert "is full" in disk.words
        await disk.stop()
    assert ["restarted" in record.getMessage() for record in caplog.records] == [False, True]


async def test_disk_error_after_the_stop_starts_no_task(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        disk = DiskTrouble(tmp_path, executor)
        await disk.stop()
        disk.note(refused(errno.ENOSPC))
        assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_storage_error_not_caused_by_the_disk_is_not_reported(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        disk = DiskTrouble(tmp_path, executor)
        disk.note(KafkaStorageError("retired"))
        disk.note(refused(errno.EMFILE))
        assert not disk.words
