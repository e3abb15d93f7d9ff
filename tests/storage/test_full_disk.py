"""A disk without room, that has some again: what was refused leaves nothing behind."""

import errno
import os

import pytest

from oncelog.storage.checkpoint import LeaderEpochCheckpoint
from oncelog.storage.snapshot_files import SnapshotFiles
from oncelog.wire.errors import KafkaStorageError
from oncelog.wire.record_batch import restamp

NOW_MS = 1_700_000_000_000


def no_room(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def stamped(make, offset, *, epoch, size):
    records = make(1, base_offset=offset, size=size)
    restamp(records, 0, offset, epoch)
    return bytes(records)


@pytest.mark.parametrize("clean", [False, True])
def test_a_segment_that_cannot_begin_hides_nothing_after_a_restart(logs, monkeypatch, clean):
    options = {"segment_bytes": 4096, "preallocate": True}
    log = logs.open(**options)
    logs.lead(log, 5, size=500)
    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", no_room)
        with pytest.raises(KafkaStorageError):
            logs.lead(log, 5, size=500)
    assert logs.lead(log).first_offset == 5  # it fits into the old segment
    if clean:
        log.close()
    again = logs.open(**options, clean_shutdown=clean)
    assert again.log_end_offset == 6


def test_batches_of_a_write_that_found_no_room_do_not_come_back(logs, batch, monkeypatch):
    log = logs.open()
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


def test_epochs_that_were_cut_and_could_not_be_saved_do_not_come_back(logs, batch, monkeypatch):
    log = logs.open()
    for offset, epoch in enumerate([1, 1, 5, 5]):
        log.append_as_follower(stamped(batch, offset, epoch=epoch, size=50), now_ms=NOW_MS)
    with monkeypatch.context() as patched:
        patched.setattr(LeaderEpochCheckpoint, "write", no_room)
        log.truncate_to(2)
        for offset, epoch in enumerate([1, 6, 6], 2):
            log.append_as_follower(stamped(batch, offset, epoch=epoch, size=50), now_ms=NOW_MS)
    assert log.leader_epochs.entries == ((1, 0), (6, 3))
    again = logs.open()
    assert again.leader_epochs.entries == ((1, 0), (6, 3))


def test_index_entries_wait_for_room(logs, monkeypatch):
    """The disk had room for the batch, and none for the entries that came with it."""
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
        assert again.segments.active.offset_index.entry_count == 599
        if not clean:
            log.close()


def test_a_killed_log_opens_without_room_for_a_snapshot(logs, monkeypatch):
    log = logs.open()
    logs.lead(log, 3, producer_id=1, producer_epoch=0, base_sequence=0)
    with monkeypatch.context() as patched:
        patched.setattr(SnapshotFiles, "write", no_room)
        again = logs.open()
    assert again.log_end_offset == 3
    assert logs.lead(again, 3, producer_id=1, producer_epoch=0, base_sequence=0).is_duplicate
