"""Test that a cleaned and an uncleaned log have the same newest record of each key."""

from pathlib import Path

from oncelog.node.transactions.shard_journal import ShardEntry
from oncelog.proof.chaos.remains import shared_epochs, survivors
from oncelog.wire.control_record import ControlType, encode_marker
from oncelog.wire.messages.transaction_log import TransactionLogValue
from oncelog.wire.records import Record, encode_batch


def data(offset: int, key: bytes, value: bytes | None, producer_id: int = -1) -> bytes:
    return encode_batch(
        [Record(offset, 1, key, value)], transactional=producer_id >= 0, producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
    )  # fmt: skip


def marker(offset: int, producer_id: int, *, is_commit: bool) -> bytes:
    return encode_marker(
        ControlType.COMMIT if is_commit else ControlType.ABORT, producer_id=producer_id,
        producer_epoch=1, coordinator_epoch=0, timestamp_ms=1, base_offset=offset,
    )  # fmt: skip


def offsets(folder: Path, *batches: bytes) -> dict[bytes, int]:
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches))
    return {key: offset for key, (offset, _) in survivors(folder).items()}


def test_compaction_model_removes_aborted_records(tmp_path: Path) -> None:
    whole = offsets(
        tmp_path, data(0, b"k", b"a", 5), marker(1, 5, is_commit=True), data(2, b"k", b"b", 5),
        marker(3, 5, is_commit=False),
    )  # fmt: skip
    cleaned = offsets(
        tmp_path,
        data(0, b"k", b"a", 5),
        marker(1, 5, is_commit=True),
        marker(3, 5, is_commit=False),
    )
    assert whole == {b"k": 0}
    assert whole == cleaned


def test_compaction_model_counts_records_with_a_removed_marker_as_committed(tmp_path: Path) -> None:
    assert offsets(tmp_path, data(0, b"k", b"a", 5)) == {b"k": 0}


def test_compaction_model_record_committed_late_does_not_replace_a_newer_record(
    tmp_path: Path,
) -> None:
    found = offsets(
        tmp_path, data(0, b"k", b"a", 5), data(1, b"k", b"b"), marker(2, 5, is_commit=True)
    )
    assert found == {b"k": 1}


def test_compaction_model_recognizes_a_tombstone(tmp_path: Path) -> None:
    offsets(tmp_path, data(0, b"k", b"a"), data(1, b"k", None))
    assert survivors(tmp_path)[b"k"] == (1, None)


def decision(epoch: int, client_transaction_version: int, index: int = 1) -> ShardEntry:
    value = TransactionLogValue(
        producer_id=5, producer_epoch=epoch, timeout_ms=1, state=5, partitions=(), last_update_ms=1,
        start_ms=1,
        client_transaction_version=client_transaction_version,
    )  # fmt: skip
    return ShardEntry(index, 1, "a", value)


def test_compaction_model_epoch_after_a_fence_may_have_many_transactions() -> None:
    """A fence has written an abort with an epoch, in which a V1 client then commits transactions.

    Found by chaos (seed 1, 45 minutes).
    """
    entries = [decision(9, 2), decision(10, 2), decision(10, 1), ShardEntry(4, 1, "b", None)]
    assert shared_epochs(entries) == {(5, 10)}
