"""Test that a compacted segment replaces older segments, despite a crash at any moment."""

import errno
import shutil

import pytest

from oncelog.storage.segments.contiguous_mark import MARK
from oncelog.storage.segments.segment import Segment
from oncelog.storage.segments.segment_swap import CLEANED_SUFFIX
from oncelog.wire.errors import KafkaStorageError
from oncelog.wire.record_batch import decode_header

from ...log_batches import batches_in
from ..failing_disk import FailingDisk

NOW_MS = 1_700_000_000_000


class Crash(Exception):
    pass


def write_cleaned(log, replaced, kept):
    """Write the .cleaned files of a segment with the batches `kept`, to replace `replaced`."""
    cleaned = Segment(
        log.directory, replaced[0].base_offset, log.config, NOW_MS, suffix=CLEANED_SUFFIX
    )
    for batch in kept:
        header = decode_header(batch)
        cleaned.write(batch)
        cleaned.add_batch(len(batch), header.last_offset, header.max_timestamp)
    cleaned.become_inactive()


@pytest.mark.parametrize("crash_at", range(1, 13))
@pytest.mark.parametrize("is_clean", [True, False])
def test_segment_swap_after_a_crash_is_complete_or_undone(logs, crash_at, is_clean):
    countdown = [0]

    def fault_point(name):
        if name.startswith("log.swap") and countdown[0]:
            countdown[0] -= 1
            if not countdown[0]:
                raise Crash

    log = logs.open(fault_point=fault_point, index_interval_bytes=50)
    for n in range(12):
        logs.lead(log, 2, producer_id=1, producer_epoch=0, base_sequence=2 * n)
        if n % 3 == 2:
            log.roll(NOW_MS)
    original = batches_in(log)
    replaced = list(log.segments)[1:3]  # the batches 3 to 8
    compacted = [*original[:3], original[4], original[8], *original[9:]]
    write_cleaned(log, replaced, [original[4], original[8]])
    log.flushing.flush()
    countdown[0] = crash_at
    is_done = False
    try:
        log.local.replace_segments(replaced[0].base_offset, replaced)
        is_done = True
        assert batches_in(log) == compacted
    except Crash:
        pass
    again = logs.open(clean_shutdown=is_clean, recovery_point=24)
    found = batches_in(again)
    assert found == compacted if is_done else found in (original, compacted)
    assert again.log_end_offset == 24
    assert again.producer_state.entry(1).next_sequence == 24
    assert again.read(8, 1000, upper_offset=24).data
    leftovers = [path.name for path in log.directory.iterdir() if path.suffix in LEFTOVERS]
    assert not leftovers
    if found == compacted:  # one from below may hold transactions without their markers
        assert {path.stem for path in log.directory.glob("*.snapshot")} <= {
            f"{18:020d}", f"{24:020d}"
        }  # fmt: skip
    if is_done:
        assert [segment.base_offset for segment in again.segments] == [0, 6, 18, 24]


LEFTOVERS = (".cleaned", ".swap", ".deleted")


def test_cleaned_segments_before_their_swap_are_removed_after_a_crash(logs, log):
    for _ in range(3):
        logs.lead(log, 2)
        log.roll(NOW_MS)
    original = batches_in(log)
    write_cleaned(log, list(log.segments)[:2], original[1:2])
    again = logs.open()
    assert batches_in(again) == original
    left = [path.name for path in log.directory.iterdir() if path.suffix in LEFTOVERS]
    assert left == [MARK]


@pytest.mark.parametrize(
    ("names", "number", "lasts"),
    [("open", errno.EMFILE, 9), ("rename", errno.ENOSPC, 1)],
)
def test_segment_swap_with_a_failing_disk_operation_is_undone_and_can_be_repeated(
    logs, monkeypatch, names, number, lasts
):
    disk = FailingDisk(monkeypatch, names, number)
    if names == "rename":  # the final names are shorter, and those that had them are gone
        disk.counts = lambda _, path: path.suffix in LEFTOVERS
    refused = done = at = 0
    while not done:
        shutil.rmtree(logs.directory, ignore_errors=True)
        log = logs.open(index_interval_bytes=50)
        for n in range(9):
            logs.lead(log, 2)
            if n % 3 == 2:
                log.roll(NOW_MS)
        original = batches_in(log)
        replaced = list(log.segments)[:2]
        compacted = [original[1], original[5], *original[6:]]
        write_cleaned(log, replaced, [original[1], original[5]])
        with disk.failing(at, lasts):
            try:
                log.local.replace_segments(0, replaced)
                done = disk.calls <= at
                was_refused = False
            except KafkaStorageError:
                was_refused = True
        if was_refused:
            refused += 1
            assert not log.is_failed and batches_in(log) == original
            at_kill = type(logs)(logs.directory.parent / f"killed-{at}")
            shutil.copytree(logs.directory, at_kill.directory)
            assert batches_in(at_kill.open()) == original
            assert not list(at_kill.directory.glob("*.swap"))
            for path in log.directory.glob("*.cleaned"):
                path.unlink()  # as a cleaning does first
            write_cleaned(log, replaced, [original[1], original[5]])
            log.local.replace_segments(0, replaced)
        assert not log.is_failed and batches_in(log) == compacted
        assert batches_in(logs.open()) == compacted
        assert not [path for path in log.directory.iterdir() if path.suffix in LEFTOVERS]
        at += 1
    assert refused >= 3
