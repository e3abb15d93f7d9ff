"""Test that Kafka's DumpLogSegments reads our snapshots and indexes (with ONCELOG_KAFKA=1)."""

import pytest

from oncelog.storage.compaction.log_cleaner import LogCleaner
from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog
from oncelog.storage.producers.snapshot import ProducerSnapshotEntry, encode
from oncelog.storage.segments.index import OffsetIndex, TimeIndex
from oncelog.storage.segments.transaction_index import AbortedTransaction, TransactionIndex
from oncelog.wire.records import Record, encode_batch

from ..interop.kafka_peer import run_tool
from ..log_batches import append_as_leader, clean

NOW = 1_700_000_000_000

pytestmark = pytest.mark.kafka


def dump(*arguments) -> str:
    """Return the output of DumpLogSegments for these files.

    Arguments that begin with -- are options.
    """
    flags = [argument for argument in arguments if str(argument).startswith("--")]
    paths = ",".join(str(argument) for argument in arguments if argument not in flags)
    done = run_tool("org.apache.kafka.tools.DumpLogSegments", *flags, "--files", paths)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_kafka_reads_a_producer_snapshot_and_a_transaction_index_of_ours(tmp_path):
    snapshot = tmp_path / "00000000000000001050.snapshot"
    entry = ProducerSnapshotEntry(4000, 3, 41, 1041, 9, 1_700_000_000_000, 12, -1)
    other = ProducerSnapshotEntry(4001, 0, -1, -1, 0, 1_700_000_000_001, 7, 1042)
    snapshot.write_bytes(encode([other, entry]))
    aborted = TransactionIndex(tmp_path / "00000000000000000000.txnindex", 0)
    aborted.append(AbortedTransaction(4000, 5, 9, 10))
    offsets = OffsetIndex(tmp_path / "00000000000000000000.index", 0)
    times = TimeIndex(tmp_path / "00000000000000000000.timeindex", 0)
    offsets.close()
    times.close()
    text = dump(snapshot, aborted.path)
    assert (
        "producerId: 4000 producerEpoch: 3 coordinatorEpoch: 12 "
        "currentTxnFirstOffset: OptionalLong.empty lastTimestamp: 1700000000000 firstSequence: 32 "
        "lastSequence: 41 lastOffset: 1041 offsetDelta: 9 timestamp: 1700000000000"
    ) in text, text
    assert (
        "producerId: 4001 producerEpoch: 0 coordinatorEpoch: 7 "
        "currentTxnFirstOffset: OptionalLong[1042]" in text
    )
    assert "producerId: 4000 firstOffset: 5 lastOffset: 9 lastStableOffset: 10" in text


def test_kafka_refuses_a_producer_snapshot_of_ours_with_a_wrong_checksum(tmp_path):
    snapshot = tmp_path / "00000000000000001050.snapshot"
    content = bytearray(encode([ProducerSnapshotEntry(4000, 3, 41, 1041, 9, 0, 12, -1)]))
    content[-1] ^= 1
    snapshot.write_bytes(content)
    text = dump(snapshot)
    assert "CRC is no longer valid" in text
    assert "producerId: 4000" not in text


def test_kafka_reads_a_compacted_segment_of_ours(tmp_path):
    config = LogConfig(is_compacted=True, min_cleanable_dirty_ratio=0.0, index_interval_bytes=200)
    log = PartitionLog.open(
        tmp_path / "t-0", topic="t", partition=0, topic_id=bytes(16), config=config, now_ms=NOW
    )
    for n in range(60):
        value = b"v%d" % n if n % 7 else None
        records = [Record(0, NOW + n, b"k%d" % (n % 20), value), Record(1, NOW + n, b"same", b"")]
        fields = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 2 * n}
        batch = encode_batch(records, compression=n % 5, **fields)
        append_as_leader(log, batch, epoch=1, now_ms=NOW)
    append_as_leader(log, encode_batch([Record(0, NOW, b"k19", b"x")]), epoch=1, now_ms=NOW)
    log.advance_high_watermark(log.log_end_offset)
    log.roll(NOW)
    log.flushing.flush()
    assert clean(LogCleaner(), log, NOW)
    log.close()
    segment = tmp_path / "t-0" / "00000000000000000000.log"
    text = dump("--deep-iteration", segment, segment.with_suffix(".index"),
                segment.with_suffix(".timeindex"))  # fmt: skip
    for complaint in ("mismatch", "Mismatch", "out of order", "Could not", "Exception", "corrupt"):
        assert complaint not in text, text
    assert "isvalid: true" in text
    assert "isvalid: false" not in text
    assert f"deleteHorizonMs: OptionalLong[{NOW + 86_400_000}]" in text
    offsets = [line for line in text.splitlines() if "| offset:" in line]
    assert len(offsets) == 21  # twenty keys and "same"
