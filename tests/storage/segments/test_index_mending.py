"""A transaction index made again from the batches is the one that was lost."""

import random

import pytest

from oncelog.storage.partition_log import Origin
from oncelog.wire.control_record import ControlType, encode_marker
from oncelog.wire.errors import KafkaStorageError
from oncelog.wire.record_batch import decode_header
from oncelog.wire.steps import run_to_end

NOW_MS = 1_700_000_000_000


@pytest.fixture
def log(logs, request):
    """Transactions of several producers across segments, some of them aborted, some open."""
    choices = random.Random(request.param)
    log = logs.open(segment_bytes=1500)
    sequences = dict.fromkeys(range(4), 0)
    for _ in range(200):
        producer = choices.randrange(4)
        if choices.random() < 0.5:
            guard = log.producer_state.begin_verification(
                producer, 0, sequences[producer], now_ms=NOW_MS
            )
            logs.lead(
                log, producer_id=producer, producer_epoch=0, base_sequence=sequences[producer],
                transactional=True, guard=guard,
            )  # fmt: skip
            sequences[producer] += 1
        else:
            kind = choices.choice([ControlType.ABORT, ControlType.ABORT, ControlType.COMMIT])
            marker = encode_marker(
                kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0,
                timestamp_ms=NOW_MS,
            )  # fmt: skip
            records = memoryview(bytearray(marker))
            log.append_as_leader(
                records, decode_header(records), leader_epoch=0, now_ms=NOW_MS,
                origin=Origin.COORDINATOR,
            )  # fmt: skip
    log.advance_high_watermark(log.log_end_offset)
    return log


@pytest.mark.parametrize("log", range(5), indirect=True)
def test_each_index_is_made_again_as_it_was(log):
    expected = log.aborted_transactions(0, log.log_end_offset)
    damaged = [segment for segment in log.segments if segment.transaction_index.entry_count]
    assert len(damaged) > 5
    for segment in damaged:
        path = segment.transaction_index.path
        content = path.read_bytes()
        path.write_bytes(b"\x40" + content[1:])
        with pytest.raises(KafkaStorageError):
            log.aborted_transactions(segment.base_offset, log.log_end_offset)
        mending = run_to_end(log.mending_index())
        mending.write()
        log.index_mended(mending)
        assert path.read_bytes() == content
        assert log.aborted_transactions(0, log.log_end_offset) == expected


@pytest.mark.parametrize("log", [1], indirect=True)
@pytest.mark.parametrize("use", ["cut", "start over", "delete"])
def test_an_index_of_what_is_gone_is_not_used(log, use):
    segment = list(log.segments)[3]
    path = segment.transaction_index.path
    path.write_bytes(b"\x40" * len(path.read_bytes()))
    with pytest.raises(KafkaStorageError):
        log.aborted_transactions(segment.base_offset, log.log_end_offset)
    mending = run_to_end(log.mending_index())
    match use:
        case "cut":
            log.truncate_to(segment.base_offset + 2)
        case "start over":
            log.truncate_fully_and_start_at(1000)
        case "delete":
            log.retire()
    before = path.read_bytes() if path.exists() else None
    mending.write()
    if use == "delete":
        with pytest.raises(KafkaStorageError):
            log.index_mended(mending)
    else:
        log.index_mended(mending)
    assert (path.read_bytes() if path.exists() else None) == before
    assert use == "delete" or not list(log.directory.glob("*.tmp"))


def test_an_index_of_a_segment_that_was_cut_and_is_as_long_again_is_not_used(logs):
    """What was aborted there is committed here, and would be hidden from readers."""
    log = logs.open()

    def end(kind):
        guard = log.producer_state.begin_verification(7, 0, 0, now_ms=NOW_MS)
        logs.lead(
            log, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True, guard=guard
        )
        marker = encode_marker(
            kind, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW_MS
        )
        records = memoryview(bytearray(marker))
        log.append_as_leader(
            records, decode_header(records), leader_epoch=0, now_ms=NOW_MS,
            origin=Origin.COORDINATOR,
        )  # fmt: skip
        log.roll(NOW_MS)

    end(ControlType.ABORT)
    first = log.segments.first
    size_bytes, path = first.size_bytes, first.transaction_index.path
    path.write_bytes(b"\x40" * len(path.read_bytes()))
    with pytest.raises(KafkaStorageError):
        log.aborted_transactions(0, log.log_end_offset)
    steps = log.mending_index()
    mending = run_to_end(steps)
    log.truncate_to(0)
    end(ControlType.COMMIT)
    assert log.segments.first is first and first.size_bytes == size_bytes
    mending.write()
    log.index_mended(mending)
    assert log.aborted_transactions(0, log.log_end_offset) == []
    assert not list(log.directory.glob("*.tmp"))
