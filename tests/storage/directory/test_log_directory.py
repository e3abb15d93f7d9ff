"""Test the lock, the last shutdown, the checkpoints and the partitions of a data directory."""

import errno
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from oncelog.runtime.steps import run_to_end
from oncelog.storage.checkpoint import (
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    OffsetCheckpoint,
)
from oncelog.storage.directory.lock import DirectoryInUse
from oncelog.storage.directory.log_directory import (
    CLEAN_SHUTDOWN,
    UNRECOVERED,
    LogDirectory,
    WrongCluster,
)
from oncelog.storage.directory.partition_offsets import CHECKPOINTS, LOGS_A_STEP
from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.errors import KafkaStorageError

from ... import log_directories
from ...log_directories import delete_partition
from ..conftest import LogMaker

NOW_MS = 1_700_000_000_000
TOPIC_ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))
CONFIG = LogConfig()


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens the directory of node 1 in cluster "c"."""
    directories = []

    def open_directory(**options):
        fixed = {"cluster_id": "c", "node_id": 1, "boot_id": "boot-1"}
        options = {"new_directory_id": bytes(16), **fixed, **options}
        directory = LogDirectory(tmp_path / "node-1", **options)
        directories.append(directory)
        return directory

    yield open_directory
    for directory in directories:
        directory.release()


@pytest.fixture
def directory(opened):
    """Return an open data directory without partitions."""
    return opened()


def open_partition(directory, topic="t", partition=0, topic_id=TOPIC_ID):
    return log_directories.open_partition(directory, topic, partition, topic_id, CONFIG, NOW_MS)


def write_checkpoints(directory):
    for name in CHECKPOINTS:
        directory.write_offsets(name, run_to_end(directory.collect_offsets(name)))


def test_second_broker_on_a_directory_is_refused_with_the_pid_of_the_first(opened):
    opened()
    with pytest.raises(DirectoryInUse, match=f"pid {os.getpid()}"):
        opened()


def test_data_directory_lock_is_released_when_its_process_ends(opened, tmp_path):
    program = f"""
import os
from pathlib import Path
from oncelog.storage.directory.log_directory import LogDirectory
LogDirectory(Path({str(tmp_path / "node-1")!r}), cluster_id="c", node_id=1, boot_id="b",
             new_directory_id=bytes(16))
os.kill(os.getpid(), 9)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    opened()


@pytest.mark.parametrize("other", [{"cluster_id": "d"}, {"node_id": 2}])
def test_data_directory_of_another_cluster_or_node_is_refused_unchanged(opened, tmp_path, other):
    opened().release()
    before = (tmp_path / "node-1" / "meta.properties").read_bytes()
    (tmp_path / "node-1").chmod(0o755)
    with pytest.raises(WrongCluster, match="it belongs to node 1 of cluster c"):
        opened(**other)
    assert (tmp_path / "node-1" / "meta.properties").read_bytes() == before
    assert (tmp_path / "node-1").stat().st_mode & 0o777 == 0o755
    opened()  # the lock was released


@pytest.mark.parametrize("damaged", ["boot.id=boot-3", "boot.ie=boot-1", "boot.id-boot-1"])
def test_data_directory_with_a_damaged_boot_id_has_a_new_boot_id_until_it_is_recovered(
    opened, damaged
):
    """The controller must treat the start as one after a power cut."""
    first = opened()
    assert first.meta.boot_id == "boot-1"
    first.close(1)
    meta = first.path / "meta.properties"
    meta.write_text(meta.read_text().replace("boot.id=boot-1", damaged))
    seen = {"boot-1"}
    for is_recovered in (False, True):
        directory = opened(new_directory_id=bytes([len(seen)]) * 16)
        assert directory.machine_restarted and directory.meta.boot_id not in seen
        seen.add(directory.meta.boot_id)
        if is_recovered:
            directory.note_recovered()
        directory.close(1)
    again = opened(new_directory_id=b"another restart ")
    assert not again.machine_restarted and again.meta.boot_id == directory.meta.boot_id


def test_data_directory_with_a_changed_boot_id_reports_a_machine_restart(opened):
    first = opened()
    assert not first.machine_restarted
    first.release()
    second = opened(boot_id="boot-2")
    assert second.machine_restarted
    assert second.meta.directory_id == first.meta.directory_id
    second.release()
    third = opened(boot_id="boot-2")
    assert third.machine_restarted, "the second ended before all logs were mended"
    third.note_recovered()
    third.release()
    assert not opened(boot_id="boot-2").machine_restarted


@pytest.fixture
def beliefs(monkeypatch):
    """Return a dictionary that gets (clean_shutdown, machine_restarted) of each opened log.

    They are the arguments with which the directory opens the log of a partition.
    """
    seen = {}

    def look(**options):
        seen[options["partition"]] = options["clean_shutdown"], options["machine_restarted"]
        return open_log(**options)

    open_log = PartitionLog.opening
    monkeypatch.setattr(PartitionLog, "opening", look)
    return seen


def test_log_not_opened_since_a_power_cut_stays_marked_as_unrecovered(opened, beliefs):
    """The broker may learn of the partition only later (found by simulation, seed 11)."""
    first = opened()
    for partition in (0, 1):
        open_partition(first, partition=partition)
    first.release()
    second = opened(boot_id="boot-2")
    open_partition(second)
    second.note_recovered()
    second.release()  # killed before its metadata named the other one
    third = opened(boot_id="boot-2")
    for partition in (0, 1):
        open_partition(third, partition=partition)
    assert beliefs == {0: (False, False), 1: (False, True)}
    third.note_recovered()
    third.release()
    open_partition(opened(boot_id="boot-2"), partition=1)
    assert beliefs[1] == (False, False)


def test_clean_shutdown_is_not_recorded_for_a_log_not_opened_since_the_last_kill(opened, beliefs):
    first = opened()
    for partition in (0, 1):
        open_partition(first, partition=partition)
    first.release()
    for _ in range(2):
        again = opened()
        open_partition(again)
        again.note_recovered()
        again.close(broker_epoch=1)
    last = opened()
    for partition in (0, 1):
        open_partition(last, partition=partition)
    assert beliefs == {0: (True, False), 1: (False, False)}
    last.close(broker_epoch=2)
    last = opened()
    open_partition(last, partition=1)
    assert beliefs[1] == (True, False)


def test_unrecovered_list_that_cannot_be_read_marks_all_logs_as_unrecovered(
    opened, beliefs, tmp_path
):
    first = opened()
    open_partition(first)
    first.close(broker_epoch=1)
    (tmp_path / "node-1" / UNRECOVERED).write_text("0\n1\nnonsense\n")
    open_partition(opened())
    assert beliefs == {0: (False, True)}


def test_clean_shutdown_file_is_used_once_with_its_broker_epoch(opened, logs, directory):
    assert directory.clean_shutdown_epoch is None
    log = open_partition(directory)
    logs.lead(log, 3)
    log.advance_high_watermark(2)
    directory.close(broker_epoch=42)
    again = opened()
    assert again.clean_shutdown_epoch == 42
    assert again.found == {("t", 0)}
    log = open_partition(again)
    assert (log.log_end_offset, log.high_watermark, log.flushing.recovery_point) == (3, 2, 3)
    assert not again.found
    again.release()
    assert opened().clean_shutdown_epoch is None


def test_log_that_failed_makes_the_shutdown_unclean(opened, logs):
    def fault_point(name):
        if name == "log.append.before-write":
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    directory = opened(fault_point=fault_point)
    log = open_partition(directory)
    with pytest.raises(KafkaStorageError):
        logs.lead(log)
    directory.close(broker_epoch=1)
    assert opened().clean_shutdown_epoch is None


def test_checkpoints_restore_log_start_high_watermark_and_recovery_point(directory, opened, logs):
    log = open_partition(directory)
    logs.lead(log, 9)
    log.advance_high_watermark(7)
    log.retention.advance_log_start_offset(4)
    log.flushing.flush()
    logs.lead(log, 1)
    write_checkpoints(directory)
    directory.release()
    again = opened()
    assert again.clean_shutdown_epoch is None
    log = open_partition(again)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (4, 7, 10)
    assert log.flushing.recovery_point == 9


def test_checkpoints_keep_partitions_that_are_not_open_yet(opened, logs, tmp_path, directory):
    for partition in (0, 1):
        log = open_partition(directory, partition=partition)
        logs.lead(log, 2)
        log.advance_high_watermark(2)
    directory.close(broker_epoch=1)
    again = opened()
    open_partition(again)
    write_checkpoints(again)
    path = tmp_path / "node-1" / "replication-offset-checkpoint"
    assert OffsetCheckpoint(path).read() == {("t", 0): 2, ("t", 1): 2}


def test_checkpoint_files_that_are_damaged_only_cause_a_recovery(opened, logs, tmp_path, directory):
    logs.lead(open_partition(directory), 5)
    directory.close(broker_epoch=1)
    for name in ("replication-offset", "recovery-point-offset", "log-start-offset"):
        (tmp_path / "node-1" / f"{name}-checkpoint").write_text("what?")
    assert open_partition(opened()).log_end_offset == 5


def test_deleted_partition_directory_is_renamed_immediately_and_removed_later(
    logs, tmp_path, directory
):
    log = open_partition(directory)
    logs.lead(log, 5)
    delete_partition(directory, "t", 0)
    with pytest.raises(KafkaStorageError):
        logs.lead(log)
    assert not (tmp_path / "node-1" / "t-0").exists()
    assert len(list((tmp_path / "node-1").glob("t-0.*-delete"))) == 1
    fresh = open_partition(directory, topic_id=OTHER_ID)
    assert fresh.log_end_offset == 0
    delete_partition(directory, "t", 0)
    assert len(list((tmp_path / "node-1").glob("t-0.*-delete"))) == 2
    assert directory.purge_deleted(NOW_MS) == 2
    assert not list((tmp_path / "node-1").glob("t-0*"))
    delete_partition(directory, "never", 0)


def test_deletion_interrupted_by_a_kill_is_completed_after_the_restart(
    opened, logs, tmp_path, directory
):
    logs.lead(open_partition(directory), 5)
    delete_partition(directory, "t", 0)
    directory.release()
    again = opened()
    assert not again.found
    assert again.purge_deleted(NOW_MS) == 1
    assert not list((tmp_path / "node-1").glob("t-0*"))


def test_log_directory_of_an_older_topic_of_the_same_name_is_renamed_as_stray(
    opened, logs, tmp_path, directory
):
    log = open_partition(directory)
    logs.lead(log, 5)
    log.advance_high_watermark(5)
    directory.close(broker_epoch=1)
    again = opened()
    fresh = open_partition(again, topic_id=OTHER_ID)
    assert (fresh.log_end_offset, fresh.high_watermark) == (0, 0)
    stray = list((tmp_path / "node-1").glob("t-0.*-stray"))
    assert len(stray) == 1 and (stray[0] / f"{0:020d}.log").stat().st_size
    again.close(broker_epoch=2)
    third = opened()
    assert third.found == {("t", 0)}
    assert third.purge_deleted(NOW_MS) == 0 and stray[0].exists()


def test_damaged_log_kept_under_a_shortened_name_is_not_purged_for_a_topic_of_that_name(
    opened, tmp_path, directory
):
    open_partition(directory, "x" * 249).close()
    directory.remove_partition("x" * 249, 0)
    name = directory.set_aside("x" * 249, 0)
    directory.close(broker_epoch=1)
    again = opened()
    again.release_set_aside(name.partition("-")[0], 0)
    assert again.purge_deleted(NOW_MS) == 0 and (tmp_path / "node-1" / name).is_dir()


def test_damaged_log_of_an_unknown_topic_is_not_purged_for_a_new_topic_of_the_same_name(
    opened, tmp_path, directory, caplog
):
    """The metadata of the cluster may have been lost, and the topic created again."""
    open_partition(directory)
    directory.remove_partition("t", 0)
    directory.set_aside("t", 0)
    open_partition(directory)
    directory.close(broker_epoch=1)
    for epoch in (2, 3):
        again = opened()
        open_partition(again, topic_id=OTHER_ID)
        again.release_set_aside("t", 0)
        assert again.purge_deleted(NOW_MS) == 0
        assert len(list((tmp_path / "node-1").glob("t-0.*-stray"))) == 2, "the log and its copy"
        assert caplog.text.count("The damaged logs of t-0 belong to no topic") == 1
        again.close(epoch)


def test_topic_name_that_is_long_or_ends_like_a_partition_is_accepted(
    opened, logs, tmp_path, directory
):
    for topic in ("a-1", "a", "x" * 249):
        logs.lead(open_partition(directory, topic=topic, partition=1), 1)
    directory.close(broker_epoch=1)
    again = opened()
    assert again.found == {("a-1", 1), ("a", 1), ("x" * 249, 1)}
    delete_partition(again, "x" * 249, 1)
    again.release()
    third = opened()
    assert third.found == {("a-1", 1), ("a", 1)}
    assert third.purge_deleted(NOW_MS) == 1


def test_data_directory_that_cannot_be_created_raises_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(KafkaStorageError):
        LogDirectory(
            tmp_path / "file" / "node-1",
            cluster_id="c",
            node_id=1,
            boot_id="b",
            new_directory_id=bytes(16),
        )


class FailingDisk:
    """A fault point that raises ENOSPC at the names in `full_at`."""

    def __init__(self):
        self.full_at = set()

    def __call__(self, name):
        if name in self.full_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_checkpoint_without_disk_space_is_written_when_space_is_available(opened, logs):
    disk = FailingDisk()
    directory = opened(fault_point=disk)
    logs.lead(open_partition(directory), 3)
    disk.full_at = {"checkpoint.before-fsync"}
    with pytest.raises(KafkaStorageError, match="No space left"):
        write_checkpoints(directory)
    disk.full_at = set()
    write_checkpoints(directory)
    directory.note_recovered()
    delete_partition(directory, "t", 0)
    assert directory.purge_deleted(NOW_MS) == 1


def test_deleted_partition_that_cannot_be_renamed_is_not_opened_again_and_is_renamed_later(
    opened, logs, tmp_path
):
    disk = FailingDisk()
    directory = opened(fault_point=disk)
    log = open_partition(directory)
    logs.lead(log, 5)
    disk.full_at = {"directory.before-rename"}
    delete_partition(directory, "t", 0)
    with pytest.raises(KafkaStorageError):
        logs.lead(log)
    with pytest.raises(KafkaStorageError):
        directory.retry_renames()
    with pytest.raises(KafkaStorageError):
        open_partition(directory)  # the old records must not come back
    assert directory.purge_deleted(NOW_MS) == 0 and (tmp_path / "node-1" / "t-0").exists()
    disk.full_at = set()
    directory.retry_renames()
    assert directory.purge_deleted(NOW_MS) == 1 and not (tmp_path / "node-1" / "t-0").exists()


@pytest.mark.parametrize("topic_id", [TOPIC_ID, OTHER_ID])
def test_partition_recreated_before_its_old_directory_is_renamed_starts_empty(
    opened, logs, topic_id
):
    disk = FailingDisk()
    directory = opened(fault_point=disk)
    logs.lead(open_partition(directory), 5)
    disk.full_at = {"directory.before-rename"}
    delete_partition(directory, "t", 0)
    disk.full_at = set()
    log = open_partition(directory, topic_id=topic_id)
    assert log.log_end_offset == 0
    directory.retry_renames()
    logs.lead(log, 2)
    assert directory.purge_deleted(NOW_MS) == 1 and log.directory.exists()


def test_deleted_partition_with_files_that_cannot_be_removed_is_retried_later(
    logs, tmp_path, monkeypatch, directory
):
    for partition in (0, 1):
        logs.lead(open_partition(directory, partition=partition))
        delete_partition(directory, "t", partition)
    with monkeypatch.context() as patched:
        rmtree = shutil.rmtree

        def fail_for_the_first(path):
            if path.name.startswith("t-0"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            rmtree(path)

        patched.setattr(shutil, "rmtree", fail_for_the_first)
        with pytest.raises(KafkaStorageError):
            directory.purge_deleted(NOW_MS)
    assert len(list((tmp_path / "node-1").glob("*-delete"))) == 1
    assert directory.purge_deleted(NOW_MS) == 1


def test_log_that_cannot_be_closed_does_not_prevent_other_logs_from_closing(opened, logs):
    disk = FailingDisk()
    directory = opened(fault_point=disk)
    for partition in (0, 1):
        logs.lead(open_partition(directory, partition=partition))
    disk.full_at = {"log.flush.before-fsync"}
    with pytest.raises(KafkaStorageError):
        directory.logs["t", 0].close()
    disk.full_at = set()
    directory.logs["t", 0].close = directory.logs["t", 0].flushing.flush  # raises
    with pytest.raises(KafkaStorageError):
        directory.close(broker_epoch=1)
    again = opened()
    assert again.clean_shutdown_epoch is None
    assert open_partition(again, partition=1).flushing.recovery_point == 1


def checkpointed(directory, logs):
    """Return a log with nine records, and with 9 as its offset in each checkpoint file."""
    directory.note_recovered()
    log = open_partition(directory)
    logs.lead(log, 9)
    log.advance_high_watermark(9)
    log.retention.advance_log_start_offset(9)
    log.local.cleaned_offset = 9
    log.flushing.flush()
    write_checkpoints(directory)
    return log


def test_topic_recreated_under_an_old_name_inherits_no_checkpointed_offsets(
    opened, logs, directory
):
    """The log start, cleaned offset and recovery point of the old topic would hide new records."""
    log = checkpointed(directory, logs)
    delete_partition(directory, "t", 0)
    log = open_partition(directory, topic_id=OTHER_ID)
    logs.lead(log, 3)
    directory.release()  # killed before the next checkpoint
    log = open_partition(opened(), topic_id=OTHER_ID)
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    assert log.local.cleaned_offset == 0
    assert (log.high_watermark, log.flushing.recovery_point) == (0, 0)


def test_log_shortened_by_a_power_cut_that_grew_again_has_lowered_checkpoints(
    opened, logs, directory
):
    log = open_partition(directory)
    logs.lead(log, 9)
    log.advance_high_watermark(9)
    log.flushing.flush()
    write_checkpoints(directory)
    directory.release()
    os.truncate(log.segments.first.paths()[0], 0)
    directory = opened(boot_id="boot-2")
    log = open_partition(directory)
    directory.note_recovered()
    logs.lead(log, 9)
    directory.release()
    log = open_partition(opened(boot_id="boot-2"))
    assert (log.log_end_offset, log.high_watermark, log.flushing.recovery_point) == (9, 0, 0)


def test_lowered_checkpoint_of_one_log_raises_no_offset_of_other_logs(batch, directory):
    """Only the offset of one log is lowered, since other logs may have been flushed meanwhile."""
    cut, deleted = open_partition(directory, "cut"), open_partition(directory, "deleted")
    for log in (cut, deleted):
        LogMaker.lead(log, 2)
        log.flushing.flush()
    write_checkpoints(directory)
    LogMaker.lead(cut, 2)
    cut.flushing.flush()
    delete_partition(directory, "deleted", 0)
    open_partition(directory, "deleted", topic_id=OTHER_ID)
    on_disk = OffsetCheckpoint(directory.path / RECOVERY_POINTS).read()
    assert on_disk == {("cut", 0): 2, ("deleted", 0): 0}
    cut.truncation.truncate_to(3)  # as a follower may, for the disk says no more
    LogMaker.lead(cut, 3)
    assert directory.offsets.on_disk[RECOVERY_POINTS] == on_disk


def test_checkpoint_lowered_after_a_failed_write_raises_no_offset_of_other_logs(opened) -> None:
    """Until the failure is known, a truncation relies on the offsets before and in that write."""
    full: set[str] = set()

    def fault_point(name: str) -> None:
        if name in full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    directory = opened(fault_point=fault_point)
    cut = open_partition(directory, "cut")
    LogMaker.lead(cut, 2)
    cut.flushing.flush()
    write_checkpoints(directory)
    LogMaker.lead(cut, 2)
    cut.flushing.flush()
    full.add("checkpoint.before-rename")
    with pytest.raises(KafkaStorageError):
        directory.write_offsets(RECOVERY_POINTS, {("cut", 0): 1})
    full.clear()
    open_partition(directory, "new")
    on_disk = OffsetCheckpoint(directory.path / RECOVERY_POINTS).read()
    assert on_disk == {("cut", 0): 2}
    assert directory.offsets.on_disk[RECOVERY_POINTS] == on_disk
    directory.write_offsets(RECOVERY_POINTS, run_to_end(directory.collect_offsets(RECOVERY_POINTS)))
    assert OffsetCheckpoint(directory.path / RECOVERY_POINTS).read()["cut", 0] == 4


def test_partition_reassigned_away_and_back_is_dirty_from_its_start_after_a_kill(
    directory, opened, logs
) -> None:
    """With the old cleaned offset, compaction would keep a deleted key and remove its tombstone."""
    checkpointed(directory, logs)
    delete_partition(directory, "t", 0)
    assert OffsetCheckpoint(directory.path / CLEANED_OFFSETS).read() == {("t", 0): 9}
    log = open_partition(directory)  # of the same topic: reassigned away and back
    assert OffsetCheckpoint(directory.path / CLEANED_OFFSETS).read() == {}
    logs.lead(log, 20)
    directory.release()
    assert open_partition(opened()).local.cleaned_offset == 0


def test_log_shortened_by_a_power_cut_that_grew_again_is_dirty_from_its_shortened_end(
    directory, opened, logs
) -> None:
    log = checkpointed(directory, logs)
    directory.release()
    os.truncate(log.segments.first.paths()[0], 0)
    (directory.path / LOG_START_OFFSETS).unlink()
    directory = opened(boot_id="boot-2")
    log = open_partition(directory)
    assert (log.log_end_offset, log.local.cleaned_offset) == (0, 0)
    logs.lead(log, 20)
    log.flushing.flush()
    directory.release()
    assert open_partition(opened(boot_id="boot-2")).local.cleaned_offset == 0


def test_cleaned_offset_of_an_unopened_log_stays_in_the_checkpoint(directory, opened, logs) -> None:
    checkpointed(directory, logs)
    directory.release()
    directory = opened()
    open_partition(directory, "u")
    write_checkpoints(directory)
    path = directory.path / CLEANED_OFFSETS
    found = OffsetCheckpoint(path).read()
    assert found == {("t", 0): 9}, "a log that was never cleaned has no entry"
    directory.release()
    path.write_text("nonsense")
    assert open_partition(opened()).local.cleaned_offset == 0


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.parametrize("change", ["shortened", "made anew", "deleted"])
def test_checkpoint_write_in_progress_does_not_restore_lowered_offsets(
    directory, opened, logs, name, change
):
    """The write has collected the offsets before the log was opened and its offsets lowered."""
    log = checkpointed(directory, logs)
    if change == "shortened":
        directory.release()
        os.truncate(log.segments.first.paths()[0], 0)
        (directory.path / LOG_START_OFFSETS).unlink()  # otherwise the log begins at this offset
        directory = opened(boot_id="boot-2")
    collected = run_to_end(directory.collect_offsets(name))
    if change != "shortened":
        delete_partition(directory, "t", 0)
    if change != "deleted":
        log = open_partition(directory, topic_id=TOPIC_ID if change == "shortened" else OTHER_ID)
        assert log.log_end_offset == 0
    directory.write_offsets(name, collected)
    assert OffsetCheckpoint(directory.path / name).read().get(("t", 0), 0) == 0
    assert directory.offsets.on_disk[name].get(("t", 0), 0) == 0


def test_checkpoint_offsets_collected_in_steps_omit_logs_deleted_meanwhile(directory) -> None:
    for partition in range(LOGS_A_STEP + 2):
        open_partition(directory, partition=partition)
    collecting = directory.collect_offsets(HIGH_WATERMARKS)
    next(collecting)
    directory.remove_partition("t", LOGS_A_STEP + 1)
    assert set(run_to_end(collecting)) == {("t", n) for n in range(LOGS_A_STEP + 1)}
    directory.close(1)


def test_logs_synced_together_before_the_close_are_not_synced_again(opened, logs) -> None:
    names: list[str] = []
    directory = opened(fault_point=names.append)
    for partition in range(3):
        logs.lead(open_partition(directory, partition=partition), 2)
    directory.write_last()
    assert "log.flush.before-fsync" not in names
    assert len(list(directory.path.glob("t-*/*.snapshot"))) == 3
    with ThreadPoolExecutor(3) as executor:
        list(executor.map(lambda log: log.flushing.sync_last(), directory.logs.values()))
    assert names.count("log.flush.before-fsync") == 3
    directory.close(1)
    assert names.count("log.flush.before-fsync") == 3
    assert directory.path.joinpath(CLEAN_SHUTDOWN).exists()
