"""Test flush jobs, which run in a thread while their log is appended to, truncated or closed."""

import errno
import os

import pytest

from oncelog.storage.flush_job import FLUSH_FAILED
from oncelog.storage.log_durability import SEGMENTS_A_JOB
from oncelog.wire.errors import KafkaStorageError
from oncelog.wire.record_batch import decode_header, restamp

NOW_MS = 1_700_000_000_000


@pytest.fixture
def syncs(monkeypatch):
    """Return a list that gets the name of each file that is synced."""
    synced = []

    def spy(name):
        real = getattr(os, name)

        def sync(fd):
            synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
            real(fd)

        monkeypatch.setattr(os, name, sync)

    spy("fsync")
    spy("fdatasync")
    return synced


def follow(log, make, count, *, first, epoch, size):
    for offset in range(first, first + count):
        records = make(1, base_offset=offset, size=size)
        restamp(records, 0, offset, epoch)
        log.append_as_follower(records, now_ms=NOW_MS)


def test_flush_of_the_active_segment_syncs_one_file(logs, syncs, log):
    logs.lead(log)
    log.flushing.flush()
    syncs.clear()
    logs.lead(log)
    log.flushing.flush()
    assert syncs == [f"{0:020d}.log"]


def test_flush_after_a_roll_syncs_the_closed_segment_with_its_indexes(logs, syncs, tmp_path, log):
    logs.lead(log, 5)
    log.flushing.flush()
    log.roll(NOW_MS)
    logs.lead(log)
    syncs.clear()
    log.flushing.flush()
    names = [f"{0:020d}.log", f"{5:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex"]
    assert syncs[:4] == names
    assert {"t-0", tmp_path.name, f"{5:020d}.snapshot", "leader-epoch-checkpoint"} < set(syncs)


def test_close_of_a_log_syncs_all_its_indexes(logs, syncs, log):
    logs.lead(log, 5)
    log.close()
    assert {f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex"} < set(syncs)


def test_flush_in_progress_leaves_a_segment_recreated_at_the_same_offset_untouched(logs, batch):
    """A new leader's segment may begin at the offset of a truncated segment."""
    log = logs.open(segment_bytes=8 << 20)
    follow(log, batch, 10, first=0, epoch=1, size=100)
    log.roll(NOW_MS)
    follow(log, batch, 400, first=10, epoch=1, size=5000)
    job = log.flushing.job()
    log.truncation.truncate_to(5)
    follow(log, batch, 5, first=5, epoch=2, size=100)
    log.roll(NOW_MS)
    follow(log, batch, 700, first=10, epoch=2, size=7000)
    job.run()
    log.flushing.flushed(job)
    log.advance_high_watermark(log.log_end_offset)

    def check(log):
        for offset in range(10, 700, 7):
            log.segments.drop_cached_reads()
            read = log.read(offset, 1, upper_offset=log.log_end_offset)
            assert decode_header(read.data).base_offset == offset

    check(log)
    log.close()
    check(logs.open(segment_bytes=8 << 20, clean_shutdown=True))


@pytest.mark.parametrize("cut_first", [False, True])
def test_flush_begun_before_a_truncation_raises_no_recovery_point_above_the_truncation(
    logs, cut_first
):
    log = logs.open(flush_messages=1)
    logs.lead(log, 1)
    for _ in range(199):
        logs.lead(log, 1)
    job = log.flushing.job()
    if not cut_first:
        job.run()
    log.truncation.truncate_to(100)
    if cut_first:
        job.run()
    log.flushing.flushed(job)
    assert log.flushing.recovery_point <= 100
    logs.lead(log, 50, epoch=2)
    assert log.flushing.is_owed and log.flushing.is_needed(NOW_MS)
    log.flushing.flush()
    assert log.flushing.recovery_point == 150 and not log.flushing.is_owed


def test_truncation_makes_a_flush_due_before_further_appends(logs, syncs, log):
    logs.lead(log, 5)
    logs.lead(log, 5)
    log.flushing.flush()
    assert not log.flushing.is_owed
    log.truncation.truncate_to(5)
    assert log.flushing.is_owed and log.flushing.is_cut_unsynced
    assert log.flushing.own_end_offset == 5
    log.flushing.flush()
    assert not log.flushing.is_owed and not log.flushing.is_cut_unsynced


def test_replica_may_acknowledge_only_up_to_its_recovery_point_while_a_flush_is_due(logs):
    log = logs.open(flush_messages=3)
    logs.lead(log, 2)
    assert log.flushing.own_end_offset == 2
    logs.lead(log, 1)
    assert log.flushing.own_end_offset == 0
    log.flushing.flush()
    assert log.flushing.own_end_offset == 3


def test_flush_with_a_failing_sync_marks_the_log_as_failed_permanently(logs, monkeypatch, log):
    logs.lead(log)
    failures = []
    log.local.disk.on_failure = lambda: failures.append(True)
    job = log.flushing.job()

    def fail(fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(OSError) as problem:
            job.run()
    with pytest.raises(KafkaStorageError):
        log.flushing.flushed(job, problem.value)
    assert log.is_failed and failures == [True] and (log.directory / FLUSH_FAILED).exists()
    with pytest.raises(KafkaStorageError):
        logs.lead(log)


def test_flush_job_that_cannot_open_files_can_be_repeated(logs, monkeypatch, syncs, log):
    logs.lead(log, 5)
    log.roll(NOW_MS)

    def fail(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", fail)
        with pytest.raises(KafkaStorageError):
            log.flushing.job()
    assert not log.is_failed
    log.flushing.flush()
    assert f"{5:020d}.snapshot" in syncs and log.flushing.recovery_point == 5


@pytest.mark.parametrize("as_follower", [False, True])
def test_append_on_a_full_disk_can_be_retried(logs, batch, as_follower, monkeypatch):
    log = logs.open(segment_bytes=300)
    follow(log, batch, 3, first=0, epoch=1, size=50)
    real = os.pwrite

    def half(fd, data, position):
        if len(data) > 1:
            real(fd, bytes(data)[: len(data) // 2], position)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for _ in range(4):
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", half)
            with pytest.raises(KafkaStorageError):
                if as_follower:
                    follow(log, batch, 1, first=log.log_end_offset, epoch=1, size=90)
                else:
                    logs.lead(log, epoch=1, size=90)
        assert not log.is_failed
        if as_follower:
            follow(log, batch, 1, first=log.log_end_offset, epoch=1, size=90)
        else:
            logs.lead(log, epoch=1, size=90)
    end_offset = log.log_end_offset
    assert end_offset == 7
    log.flushing.flush()
    again = logs.open(segment_bytes=300)
    assert again.log_end_offset == end_offset


def test_read_without_a_free_descriptor_fails_only_this_read(logs, monkeypatch, log):
    logs.lead(log)
    log.segments.drop_cached_reads()

    def fail(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", fail)
        with pytest.raises(KafkaStorageError):
            log.read(0, 1000, upper_offset=1)
    assert log.read(0, 1000, upper_offset=1).data


def closed(logs, batches=1):
    log = logs.open()
    for _ in range(batches):
        logs.lead(log, 5 // batches)
    log.close()


def test_log_unchanged_since_its_clean_close_is_closed_without_a_sync(logs, syncs):
    closed(logs)
    syncs.clear()
    for _ in range(2):
        log = logs.open(clean_shutdown=True)
        log.close()
    assert syncs == []
    assert logs.open(clean_shutdown=True).max_timestamp == NOW_MS


def test_file_names_synced_by_a_close_are_not_synced_again(logs, syncs):
    closed(logs)
    log = logs.open(clean_shutdown=True)
    syncs.clear()
    logs.lead(log)
    log.close()
    assert syncs == [
        f"{0:020d}.log", f"{0:020d}.index", f"{0:020d}.timeindex", f"{6:020d}.snapshot"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        lambda logs, log: logs.lead(log),
        lambda logs, log: log.roll(NOW_MS),
        lambda logs, log: log.truncation.truncate_to(3),
        lambda logs, log: (log.truncation.truncate_to(4), logs.lead(log), log.flushing.flush()),
        lambda logs, log: log.assign_leader_epoch(7),
    ],
    ids=["append", "roll", "cut", "cut-and-append", "epoch"],
)
def test_log_changed_since_its_open_is_synced_at_its_close(logs, syncs, change):
    closed(logs, batches=5)
    log = logs.open(clean_shutdown=True)
    change(logs, log)
    syncs.clear()
    log.close()
    assert syncs


@pytest.mark.parametrize("clean_shutdown", [False, True])
def test_log_recovered_or_repaired_at_its_open_is_synced_at_its_close(logs, syncs, clean_shutdown):
    closed(logs)
    if clean_shutdown:
        (logs.directory / f"{5:020d}.snapshot").unlink()
    log = logs.open(clean_shutdown=clean_shutdown)
    syncs.clear()
    log.close()
    assert f"{0:020d}.index" in syncs and "t-0" in syncs


def test_flush_of_many_segments_opens_few_files_at_once(logs, monkeypatch):
    """After a start without checkpoints one flush of 2,000 segments would open 6,000 files."""
    log = logs.open(segment_bytes=100)
    for _ in range(120):
        logs.lead(log)
    log = logs.open(segment_bytes=100)
    assert len(log.segments) == 120 and log.flushing.recovery_point == 0
    opened, points, real = [0], [], os.open

    def count(*options, **keywords):
        opened[-1] += 1
        return real(*options, **keywords)

    monkeypatch.setattr(os, "open", count)
    while True:
        job = log.flushing.job()
        points.append(log.flushing.recovery_point)
        if job.is_whole:
            break
        job.run()
        assert log.flushing.recovery_point == points[-1]
        log.flushing.flushed(job)
        opened.append(0)
    assert max(opened) <= 4 * SEGMENTS_A_JOB + 4
    assert points == [0, 32, 63, 94], "what is on the disk counts"
    log.flushing.flush(is_last=True)
    assert log.flushing.recovery_point == 120


def test_truncation_over_many_segments_is_synced_only_by_the_last_flush(logs):
    log = logs.open(segment_bytes=100)
    for _ in range(80):
        logs.lead(log)
    log.truncation.truncate_to(70)
    job = log.flushing.job()
    assert not job.is_whole
    job.run()
    log.flushing.flushed(job)
    assert log.flushing.is_cut_unsynced and log.flushing.own_end_offset == 32
    log.flushing.flush()
    assert (
        not log.flushing.is_cut_unsynced and log.flushing.recovery_point == log.log_end_offset == 70
    )
