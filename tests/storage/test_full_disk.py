"""Test logs on a disk that becomes full and has space again later."""

import errno
import os
from contextlib import suppress

import pytest

from oncelog.storage.checkpoint import LeaderEpochCheckpoint
from oncelog.storage.flush_job import FlushJob
from oncelog.storage.log_durability import SEGMENTS_A_JOB
from oncelog.storage.producers.snapshot_files import SnapshotFiles
from oncelog.wire.control_record import ControlType
from oncelog.wire.errors import KafkaStorageError
from oncelog.wire.record_batch import restamp

from ..log_batches import end_transaction

NOW_MS = 1_700_000_000_000


def no_room(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def stamped(make, offset, *, epoch, size):
    records = make(1, base_offset=offset, size=size)
    restamp(records, 0, offset, epoch)
    return bytes(records)


@pytest.mark.parametrize("clean", [False, True])
def test_segment_that_cannot_be_created_on_a_full_disk_hides_no_batch_after_a_restart(
    logs, monkeypatch, clean
):
    options = {"segment_bytes": 4096, "preallocate": True}
    log = logs.open(**options)
    logs.lead(log, 5, size=500)
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", no_room)
        with pytest.raises(KafkaStorageError):
            logs.lead(log, 5, size=500)
    assert logs.lead(log).first_offset == 5  # the batch fits into the old segment
    if clean:
        log.close()
    again = logs.open(**options, clean_shutdown=clean)
    assert again.log_end_offset == 6


def test_batches_of_an_append_that_failed_on_a_full_disk_do_not_reappear(
    logs, batch, monkeypatch, log
):
    real = os.pwrite
    run = [stamped(batch, offset, epoch=1, size=50) for offset in range(3)]

    def some(fd, data, position):
        if position:
            no_room()
        return real(fd, bytes(data)[: len(run[0]) + len(run[1]) + 10], position)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", some)
        with pytest.raises(KafkaStorageError):
            log.append_as_follower(b"".join(run), now_ms=NOW_MS)
    assert log.log_end_offset == 0 and not log.is_failed
    log.append_as_follower(stamped(batch, 0, epoch=2, size=50), now_ms=NOW_MS)
    again = logs.open()
    assert again.log_end_offset == 1, "the second batch was refused, and is of another epoch"


def test_leader_epochs_truncated_on_a_full_disk_do_not_reappear(log, logs, batch, monkeypatch):
    for offset, epoch in enumerate([1, 1, 5, 5]):
        log.append_as_follower(stamped(batch, offset, epoch=epoch, size=50), now_ms=NOW_MS)
    with monkeypatch.context() as patched:
        patched.setattr(LeaderEpochCheckpoint, "write", no_room)
        log.truncation.truncate_to(2)
        for offset, epoch in enumerate([1, 6, 6], 2):
            log.append_as_follower(stamped(batch, offset, epoch=epoch, size=50), now_ms=NOW_MS)
    assert log.leader_epochs.entries == ((1, 0), (6, 3))
    again = logs.open()
    assert again.leader_epochs.entries == ((1, 0), (6, 3))


def test_index_entries_that_do_not_fit_on_the_disk_are_written_later(logs, monkeypatch):
    """The disk had space for the batch, but not for its index entries."""
    log = logs.open(index_interval_bytes=1)
    real = os.pwrite

    def batches_only(fd, data, position):
        if not os.readlink(f"/proc/self/fd/{fd}").endswith(".log"):
            no_room()
        return real(fd, data, position)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", batches_only)
        for _ in range(600):
            logs.lead(log)
    assert not log.is_failed
    for clean in (False, True):
        again = logs.open(index_interval_bytes=1, clean_shutdown=clean)
        assert again.log_end_offset == 600
        assert again.segments.active.offset_index.count == 599
        if not clean:
            log.close()


def test_log_is_recovered_on_a_disk_too_full_for_a_snapshot(logs, monkeypatch, log):
    logs.lead(log, 3, producer_id=1, producer_epoch=0, base_sequence=0)
    with monkeypatch.context() as patched:
        patched.setattr(SnapshotFiles, "write", no_room)
        again = logs.open()
    assert again.log_end_offset == 3
    assert logs.lead(again, 3, producer_id=1, producer_epoch=0, base_sequence=0).is_duplicate


def abort(logs, log, producer_id, sequence):
    logs.lead_transaction(log, producer_id=producer_id, sequence=sequence)
    end_transaction(log, producer_id, ControlType.ABORT, at_ms=NOW_MS)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSPC])
@pytest.mark.parametrize("clean", [False, True])
def test_aborted_transaction_is_listed_though_its_index_could_not_be_written(
    log, logs, monkeypatch, number, clean
):
    abort(logs, log, 1, 0)
    real = os.open

    def fail(path, *options, **keywords):
        if str(path).endswith(".txnindex"):
            raise OSError(number, os.strerror(number))
        return real(path, *options, **keywords)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fail)
        for sequence in range(1, 140):
            abort(logs, log, 1, sequence)
        assert not log.is_failed
        log.local.snapshot_soon()
        assert not log.local.snapshots.offsets, "it would say that what waits is in the file"
        with pytest.raises(KafkaStorageError):
            log.roll(NOW_MS)
        assert not log.is_failed
    expected = [(1, first) for first in range(0, 280, 2)]
    log.advance_high_watermark(log.log_end_offset)
    assert log.aborted_transactions.between(0, 280) == expected
    if clean:
        log.close()
    again = logs.open(clean_shutdown=clean)
    assert again.aborted_transactions.between(0, 280) == expected
    abort(logs, again, 1, 140)
    assert again.aborted_transactions.between(270, 282)[-1] == (1, 280)


def test_retention_on_a_full_disk_continues_when_renames_are_possible(logs, monkeypatch):
    """A rename to a longer name (.deleted) may need space in the directory."""
    log = logs.open(segment_bytes=100, retention_bytes=100, file_delete_delay_ms=0)
    for _ in range(9):
        logs.lead(log)
    log.advance_high_watermark(9)
    for fail_at in range(3):
        real, calls = os.rename, []

        def rename(*paths, real=real, calls=calls, fail_at=fail_at):
            calls.append(paths)
            if len(calls) > fail_at:
                no_room()
            real(*paths)

        with monkeypatch.context() as patched:
            patched.setattr(os, "rename", rename)
            with pytest.raises(KafkaStorageError):
                log.retention.delete_old_segments(NOW_MS)
        assert not log.is_failed
        on_disk = {int(path.stem) for path in logs.directory.glob("*.log")}
        assert on_disk == {segment.base_offset for segment in log.segments}
    log.retention.delete_old_segments(NOW_MS)
    assert log.log_start_offset > 6


def test_producer_snapshot_half_written_on_a_full_disk_is_removed(logs, monkeypatch, log):
    """A snapshot's name has its offset, so no later snapshot would replace a partial one."""
    logs.lead(log)
    log.flushing.flush()
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", no_room)
        log.roll(NOW_MS)
    assert not log.is_failed and not list(log.directory.glob("*.tmp"))


def test_temporary_files_of_a_killed_process_are_removed_at_the_next_start(logs, log):
    logs.lead(log)
    for name in (f"{7:020d}.snapshot.tmp", f"{0:020d}.txnindex.tmp"):
        (log.directory / name).write_bytes(b"half")
    again = logs.open()
    assert again.log_end_offset == 1 and not list(log.directory.glob("*.tmp"))


def test_truncation_on_a_disk_too_full_for_leader_epochs_is_still_synced(batch, monkeypatch, log):
    """Recovery still has to read leader epochs from the old recovery point on."""
    for offset, epoch in enumerate([1, 1, 5, 5]):
        log.append_as_follower(stamped(batch, offset, epoch=epoch, size=50), now_ms=NOW_MS)
    log.truncation.truncate_to(2)
    with monkeypatch.context() as patched:
        patched.setattr(LeaderEpochCheckpoint, "write", no_room)
        log.flushing.flush()
        assert not log.flushing.is_cut_unsynced and log.flushing.recovery_point == 0
    log.flushing.flush()
    assert log.flushing.recovery_point == log.log_end_offset == 2


@pytest.mark.parametrize("is_cut", [False, True])
@pytest.mark.parametrize("segments", [2, SEGMENTS_A_JOB + 8])
def test_flush_on_a_disk_too_full_for_leader_epochs_ends(
    logs, batch, monkeypatch, segments, is_cut
):
    """The close of a log must not create the same flush job again and again."""
    log = logs.open(segment_bytes=100)
    for offset in range(segments):
        log.append_as_follower(stamped(batch, offset, epoch=1, size=90), now_ms=NOW_MS)
    log.assign_leader_epoch(2)
    if is_cut:
        log.truncation.truncate_to(segments - 1)
    with monkeypatch.context() as patched:
        patched.setattr(LeaderEpochCheckpoint, "write", no_room)
        runs = iter(range(5))
        patched.setattr(FlushJob, "run", lambda _: next(runs))
        with suppress(KafkaStorageError):
            log.flushing.flush()
        assert log.flushing.recovery_point == 0 and not log.is_failed
    log.flushing.flush()
    assert log.flushing.recovery_point == log.log_end_offset == segments - is_cut


@pytest.mark.parametrize("is_torn", [False, True])
def test_log_is_opened_after_a_kill_on_a_disk_too_full_for_leader_epochs(
    log, logs, batch, monkeypatch, is_torn
):
    for offset, epoch in enumerate([1, 4]):
        log.append_as_follower(stamped(batch, offset, epoch=epoch, size=90), now_ms=NOW_MS)
    if is_torn:
        with open(log.segments.active.file.path, "ab") as file:
            file.write(b"half a batch")
    with monkeypatch.context() as patched:
        patched.setattr(LeaderEpochCheckpoint, "write", no_room)
        for _ in range(2):
            log = logs.open()
            assert log.log_end_offset == 2 and not log.flushing.is_cut_unsynced
            assert [entry.epoch for entry in log.leader_epochs.entries] == [1, 4]
            assert log.flushing.recovery_point == 0
    log.flushing.flush()
    assert [entry.epoch for entry in LeaderEpochCheckpoint(log.directory).read()] == [1, 4]
    assert logs.open().leader_epochs.entries == log.leader_epochs.entries


@pytest.mark.parametrize("is_leader", [True, False])
def test_append_with_a_failing_roll_is_refused_and_fails_the_log(
    logs, batch, monkeypatch, is_leader
):
    """A leader does not acknowledge the batch, and a follower does not count it as replicated."""

    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    log = logs.open(segment_bytes=1000)
    logs.lead(log, size=400)
    logs.lead(log, size=400)
    with monkeypatch.context() as patched:
        patched.setattr(SnapshotFiles, "write", broken)
        with pytest.raises(KafkaStorageError):
            if is_leader:
                logs.lead(log, size=400)
            else:
                log.append_as_follower(stamped(batch, 2, epoch=0, size=400), now_ms=NOW_MS)
    assert log.is_failed and log.log_end_offset == 2
