"""Test that a log that is truncated in steps is complete after each step."""

import errno
import itertools
import os
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from oncelog.runtime.steps import run_to_end
from oncelog.storage import log_truncation
from oncelog.wire.errors import KafkaStorageError
from oncelog.wire.record_batch import decode_header

from ..log_batches import batches_in
from .failing_disk import FailingDisk

NOW_MS = 1_700_000_000_000
OPTIONS = {"segment_bytes": 400, "index_interval_bytes": 60, "file_delete_delay_ms": 0}
CUTS = [("truncating_to", 7), ("truncating_to", 8), ("truncating_to", 0), ("starting_at", 1000)]


@pytest.fixture(autouse=True)
def fast_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _: None)


def filled(logs: Any, count: int = 33, **options: Any) -> Any:
    """Return a log with segments of three batches each."""
    log = logs.open(**{**OPTIONS, **options})
    for n in range(count):
        producer = n % 3
        entry = log.producer_state.entry(producer)
        sequence = entry.next_sequence if entry else 0
        logs.lead(log, 2, epoch=n // 5, producer_id=producer, producer_epoch=0,
                  base_sequence=sequence)  # fmt: skip
    log.flushing.flush()
    return log


def after_kill(logs: Any, log: Any) -> Any:
    """Return the log as it would be opened after a kill at this moment."""
    maker = type(logs)(logs.directory.parent / "killed")
    shutil.rmtree(maker.directory, ignore_errors=True)
    shutil.copytree(logs.directory, maker.directory)
    return maker.open(**OPTIONS, log_start_offset=log.log_start_offset)


def check_whole(logs: Any, log: Any, before: list[bytes]) -> None:
    """Check that the log, and its copy after a kill now, have the first batches of `before`."""
    found = batches_in(log)
    assert before[: len(found)] == found
    end = decode_header(found[-1]).next_offset if found else log.log_end_offset
    assert end == log.log_end_offset
    assert log.high_watermark <= log.log_end_offset >= log.flushing.recovery_point
    again = after_kill(logs, log)
    assert (batches_in(again), again.log_end_offset) == (found, log.log_end_offset)
    assert again.leader_epochs.entries == log.leader_epochs.entries
    expected = {}
    for header in map(decode_header, found):
        if header.producer_id >= 0:
            expected[header.producer_id] = header.last_offset
    seen = {each.producer_id: each.last_data_offset for each in again.producer_state.entries()}
    assert seen == expected


@pytest.mark.parametrize(("how", "offset"), CUTS)
def test_log_is_consistent_after_each_step_of_a_truncation(
    logs: Any, how: str, offset: int
) -> None:
    log = filled(logs)
    log.advance_high_watermark(20)
    before, ends, segments = batches_in(log), [log.log_end_offset], len(log.segments)
    assert segments > 8
    for _ in getattr(log.truncation, how)(offset):
        check_whole(logs, log, before)
        assert segments - len(log.segments) in (0, 1)
        ends.append(log.log_end_offset)
        segments = len(log.segments)
    assert len(set(ends)) > 8 and ends == sorted(ends, reverse=True)
    assert log.log_end_offset == {7: 6, 8: 8, 0: 0, 1000: 1000}[offset]
    check_whole(logs, log, before)
    assert log.high_watermark == log.log_end_offset
    log.retention.purge_deleted_files(NOW_MS)
    assert not list(logs.directory.glob("0*.deleted"))
    assert len(list(logs.directory.glob("*.log"))) == len(log.segments)
    logs.lead(log, 2, epoch=50)
    again = after_kill(logs, log)
    assert batches_in(again) == batches_in(log)


def test_truncation_of_a_large_segment_removes_a_little_at_a_time(
    logs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel takes half a second to free the pages of a gigabyte."""
    monkeypatch.setattr(log_truncation, "CUT_BYTES_A_STEP", 1000)
    log = logs.open(index_interval_bytes=60)
    for _ in range(200):
        logs.lead(log)
    before, sizes = batches_in(log), [log.segments.size_bytes]
    for _ in log.truncation.truncating_to(3):
        check_whole(logs, log, before)
        sizes.append(log.segments.size_bytes)
    assert log.log_end_offset == 3
    assert max(a - b for a, b in itertools.pairwise(sizes)) < 1400


USES: dict[str, Callable[[Any, Any], object]] = {
    "leader": lambda logs, log: log.assign_leader_epoch(70),
    "append": lambda logs, log: logs.lead(log, 2, epoch=71),
    "reader": lambda logs, log: log.last_stable_offset,
    "snapshot": lambda logs, log: run_to_end(log.local.snapshotting()),
    "roll": lambda logs, log: log.roll(NOW_MS),
    "close": lambda logs, log: log.close(),
    "cut further": lambda logs, log: log.truncation.truncate_to(5),
    "start over": lambda logs, log: log.truncation.truncate_fully_and_start_at(500),
}


@pytest.mark.parametrize("steps_before", [1, 6])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("how", "offset"), [CUTS[0], CUTS[-1]])
def test_truncation_is_completed_when_the_log_is_used_between_its_steps(
    logs: Any, how: str, offset: int, use: str, steps_before: int
) -> None:
    log = filled(logs)
    steps = getattr(log.truncation, how)(offset)
    for _ in range(steps_before):
        next(steps)
    USES[use](logs, log)
    found = batches_in(log), log.log_end_offset, log.latest_epoch, log.producer_state.end_offset
    run_to_end(steps)
    assert found == (
        batches_in(log), log.log_end_offset, log.latest_epoch, log.producer_state.end_offset
    )  # fmt: skip
    assert log.producer_state.end_offset == log.log_end_offset
    again = after_kill(logs, log)
    assert batches_in(again) == found[0]


def test_truncation_continues_during_retention(logs: Any) -> None:
    log = filled(logs, retention_bytes=1000)
    log.advance_high_watermark(log.log_end_offset)
    cut, retention = log.truncation.truncating_to(40), log.retention.deleting_old_segments(NOW_MS)
    for _ in range(20):
        next(cut, None)
        next(retention, None)
    assert log.log_end_offset <= 40
    assert batches_in(after_kill(logs, log)) == batches_in(log)


def test_truncation_of_a_log_that_is_deleted_meanwhile_raises_a_storage_error(logs: Any) -> None:
    log = filled(logs)
    steps = log.truncation.truncating_to(7)
    next(steps)
    log.local.retire()
    left = sorted(os.listdir(logs.directory))
    with pytest.raises(KafkaStorageError):
        next(steps)
    assert sorted(os.listdir(logs.directory)) == left


@pytest.mark.parametrize(
    ("names", "number"),
    [("open", errno.EMFILE), ("rename replace", errno.ENOSPC), ("open pwrite write", errno.ENOSPC)],
)
@pytest.mark.parametrize(("how", "offset"), [CUTS[0], CUTS[-1]])
def test_truncation_with_a_failing_disk_operation_can_be_repeated(
    logs: Any, monkeypatch: pytest.MonkeyPatch, how: str, offset: int, names: str, number: int
) -> None:
    disk = FailingDisk(monkeypatch, names, number)
    refused, at = 0, 0
    while True:
        shutil.rmtree(logs.directory, ignore_errors=True)
        log = filled(logs, 17)
        before = batches_in(log)
        steps = getattr(log.truncation, how)(offset)
        with disk.failing(at):
            try:
                run_to_end(steps)
                was_refused = False
            except KafkaStorageError:
                was_refused = True
            calls = disk.calls
        assert not log.is_failed, at
        refused += was_refused
        if was_refused:
            check_whole(logs, log, before)
            log.last_stable_offset  # noqa: B018 - rebuilds the producers
            if at % 3 == 0:  # the log may lead instead
                logs.lead(log, 2, epoch=80)
                assert batches_in(after_kill(logs, log)) == batches_in(log)
                before = batches_in(log)
        run_to_end(getattr(log.truncation, how)(offset))
        run_to_end(log.local.rebuilding())
        check_whole(logs, log, before)
        assert log.log_end_offset == {7: 6, 1000: 1000}[offset]
        if at >= calls:
            break
        at += 1 if at < 12 else 3
    assert refused >= 3 and at > 8


def test_truncation_with_a_damaged_index_fails_the_log(logs: Any) -> None:
    """The index entry points past the end of the segment."""
    log = filled(logs, segment_bytes=1 << 20)
    log.segments.active.write_out()
    path = log.segments.active.offset_index.path
    with path.open("r+b") as file:
        file.write(bytes(4) + (1 << 20).to_bytes(4, "big"))  # a position past the end
    end_offset = log.log_end_offset
    with pytest.raises(KafkaStorageError, match=r"\.index"):
        log.truncation.truncate_to(1)
    assert log.log_end_offset == end_offset and log.is_failed
