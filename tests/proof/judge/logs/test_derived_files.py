"""Test that a producer snapshot is compared only with records that are still in the log."""

from pathlib import Path

from oncelog.proof.judge.logs.derived_files import check_partition
from oncelog.storage.producers.snapshot import ProducerSnapshotEntry, encode
from oncelog.wire.control_record import ControlType, encode_marker
from oncelog.wire.records import Record, encode_batch

PRODUCER, EPOCH, END = 1002, 9, 129


def write(folder: Path, base_offset: int, *, last_offset: int) -> None:
    """Write a log with one marker, and a producer snapshot that also covers data before it."""
    marker = encode_marker(
        ControlType.COMMIT, producer_id=PRODUCER, producer_epoch=EPOCH, coordinator_epoch=3,
        timestamp_ms=7, base_offset=END - 1, leader_epoch=0,
    )  # fmt: skip
    (folder / f"{base_offset:020d}.log").write_bytes(marker)
    entry = ProducerSnapshotEntry(PRODUCER, EPOCH, -1, last_offset, 1, 7, 3, -1)
    (folder / f"{END:020d}.snapshot").write_bytes(encode([entry]))


def test_log_scan_of_a_transaction_removed_by_compaction_reports_no_loss(tmp_path: Path) -> None:
    """Compaction has removed the offset commits of the marker's transaction (chaos, seed 51)."""
    write(tmp_path, 0, last_offset=97)
    assert list(check_partition(tmp_path, is_compacted=True)) == []


def test_log_scan_accepts_a_producer_snapshot_of_a_record_removed_by_compaction(
    tmp_path: Path,
) -> None:
    """A later record replaced the snapshot's last one (found by simulation)."""
    kept = encode_batch(
        [Record(0, 7, b"key", b"value")], producer_id=PRODUCER, producer_epoch=0, base_sequence=0
    )
    (tmp_path / f"{0:020d}.log").write_bytes(kept)
    entry = ProducerSnapshotEntry(PRODUCER, 0, 1, 1, 0, 7, -1, -1)
    (tmp_path / f"{1:020d}.snapshot").write_bytes(encode([entry]))
    assert list(check_partition(tmp_path, is_compacted=True)) == []
    assert len(list(check_partition(tmp_path))) == 1


def test_log_scan_of_data_before_the_log_start_reports_no_loss(tmp_path: Path) -> None:
    write(tmp_path, END - 1, last_offset=97)
    assert list(check_partition(tmp_path)) == []


def test_log_scan_of_a_log_with_missing_data_reports_the_difference(tmp_path: Path) -> None:
    write(tmp_path, 0, last_offset=97)
    ((file, problem),) = check_partition(tmp_path)
    assert file == f"{END:020d}.snapshot" and "the log gives" in problem
