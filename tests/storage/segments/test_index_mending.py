"""Test that a transaction index rebuilt from a segment's batches equals the lost index."""

import random

import pytest

from oncelog.runtime.steps import run_to_end
from oncelog.wire.control_record import ControlType
from oncelog.wire.errors import KafkaStorageError

from ...log_batches import end_transaction

NOW_MS = 1_700_000_000_000


@pytest.fixture
def log(logs, request):
    """Return a log of many segments with committed, aborted and open transactions."""
    choices = random.Random(request.param)
    log = logs.open(segment_bytes=1500)
    sequences = dict.fromkeys(range(4), 0)
    for _ in range(200):
        producer = choices.randrange(4)
        if choices.random() < 0.5:
            logs.lead_transaction(log, producer_id=producer, sequence=sequences[producer])
            sequences[producer] += 1
        else:
            kind = choices.choice([ControlType.ABORT, ControlType.ABORT, ControlType.COMMIT])
            end_transaction(log, producer, kind, at_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    return log


@pytest.mark.parametrize("log", range(5), indirect=True)
def test_rebuilt_transaction_index_equals_the_original(log):
    expected = log.aborted_transactions.between(0, log.log_end_offset)
    damaged = [segment for segment in log.segments if segment.transaction_index.count]
    assert len(damaged) > 5
    for segment in damaged:
        path = segment.transaction_index.path
        content = path.read_bytes()
        path.write_bytes(b"\x40" + content[1:])
        with pytest.raises(KafkaStorageError):
            log.aborted_transactions.between(segment.base_offset, log.log_end_offset)
        mending = run_to_end(log.aborted_transactions.mending())
        mending.write()
        log.aborted_transactions.mended(mending)
        assert path.read_bytes() == content
        assert log.aborted_transactions.between(0, log.log_end_offset) == expected


@pytest.mark.parametrize("log", [1], indirect=True)
@pytest.mark.parametrize("use", ["cut", "start over", "delete"])
def test_rebuilt_transaction_index_of_a_removed_segment_is_not_used(log, use):
    segment = list(log.segments)[3]
    path = segment.transaction_index.path
    path.write_bytes(b"\x40" * len(path.read_bytes()))
    with pytest.raises(KafkaStorageError):
        log.aborted_transactions.between(segment.base_offset, log.log_end_offset)
    mending = run_to_end(log.aborted_transactions.mending())
    match use:
        case "cut":
            log.truncation.truncate_to(segment.base_offset)
        case "start over":
            log.truncation.truncate_fully_and_start_at(1000)
        case "delete":
            log.local.retire()
    before = path.read_bytes() if path.exists() else None
    mending.write()
    if use == "delete":
        with pytest.raises(KafkaStorageError):
            log.aborted_transactions.mended(mending)
    else:
        log.aborted_transactions.mended(mending)
    assert (path.read_bytes() if path.exists() else None) == before
    assert use == "delete" or not list(log.directory.glob("*.tmp"))


@pytest.mark.parametrize("log", [1], indirect=True)
def test_truncation_within_a_segment_with_a_damaged_transaction_index_is_refused(log):
    """The entries below the new end cannot be told from the others."""
    segment = list(log.segments)[3]
    path = segment.transaction_index.path
    path.write_bytes(b"\x40" * len(path.read_bytes()))
    with pytest.raises(KafkaStorageError, match="what is to be cut cannot be read"):
        log.truncation.truncate_to(segment.base_offset + 2)


def test_rebuilt_transaction_index_of_a_segment_replaced_meanwhile_is_not_used(logs):
    """The new segment has commits at the offsets of the old segment's aborts."""
    log = logs.open()

    def end(kind):
        logs.lead_transaction(log)
        end_transaction(log, 7, kind, at_ms=NOW_MS)
        log.roll(NOW_MS)

    end(ControlType.ABORT)
    first = log.segments.first
    size_bytes, path = first.size_bytes, first.transaction_index.path
    path.write_bytes(b"\x40" * len(path.read_bytes()))
    with pytest.raises(KafkaStorageError):
        log.aborted_transactions.between(0, log.log_end_offset)
    steps = log.aborted_transactions.mending()
    mending = run_to_end(steps)
    log.truncation.truncate_to(0)
    end(ControlType.COMMIT)
    assert log.segments.first is first and first.size_bytes == size_bytes
    mending.write()
    log.aborted_transactions.mended(mending)
    assert log.aborted_transactions.between(0, log.log_end_offset) == []
    assert not list(log.directory.glob("*.tmp"))
