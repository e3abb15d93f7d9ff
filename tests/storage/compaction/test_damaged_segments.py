"""Test that compaction of a segment with a damaged byte loses no record."""

import shutil
from dataclasses import replace

import pytest

from oncelog.storage.compaction.log_cleaner import LogCleaner
from oncelog.storage.corrupt_file import LOG_TROUBLE
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.records import Record, decode_batch, encode_batch

from ...log_batches import COMPACTED, append_as_leader, batches_in, clean

BATCHES = 6
CONFIG = replace(COMPACTED, index_interval_bytes=100)


@pytest.fixture
def written(tmp_path):
    """Return the directory of a log with a closed segment and an active one."""
    log = open_log(tmp_path / "t-0")
    for number in range(BATCHES):
        pairs = [(b"a", b"%d" % number), (b"only-%d" % number, b"1")]
        batch = encode_batch([Record(n, 1, *pair) for n, pair in enumerate(pairs)])
        append_as_leader(log, batch, epoch=3)
    log.roll(1)
    log.close()
    return tmp_path / "t-0"


def open_log(directory):
    log = PartitionLog.open(
        directory,
        topic="t",
        partition=0,
        topic_id=bytes(16),
        config=CONFIG,
        clean_shutdown=True,
        now_ms=1,
    )
    log.advance_high_watermark(log.log_end_offset)
    return log


def copy(directory, name):
    return shutil.copytree(directory, directory.parent / name / "t-0")


def cleaned_records(log):
    """Compact the log, and return its records, or None if the damage was detected."""
    try:
        if clean(LogCleaner(), log, 1) is None:
            return None
        batches = batches_in(log)
    except LOG_TROUBLE:
        return None
    return [
        (record.offset, record.key, record.value)
        for batch in batches
        for record in decode_batch(batch)
    ]


@pytest.mark.parametrize("bit", [1, 7])
def test_cleaning_of_a_segment_with_a_flipped_bit_removes_no_readable_record(written, bit):
    expected = cleaned_records(open_log(copy(written, "sound")))
    assert expected is not None and len(expected) == BATCHES + 1
    size_bytes = (written / f"{0:020d}.log").stat().st_size
    for at in range(size_bytes):
        log = open_log(copy(written, f"damaged-{at}"))
        path = log.segments.first.file.path
        content = bytearray(path.read_bytes())
        content[at] ^= 1 << bit
        path.write_bytes(content)
        assert cleaned_records(log) in (None, expected), f"byte {at}"
        log.local.retire()
