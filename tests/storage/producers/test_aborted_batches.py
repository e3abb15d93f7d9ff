"""Test that sequence numbers of aborted batches are refused, not acknowledged as duplicates."""

import pytest

from oncelog.storage.compaction.log_cleaner import LogCleaner
from oncelog.storage.producers import recovery
from oncelog.wire.control_record import ControlType
from oncelog.wire.errors import UnknownProducerId
from oncelog.wire.record_batch import restamp

from ...log_batches import COMPACTED, clean, end_transaction

NOW_MS = 1_700_000_000_000


def aborted(logs, log, *counts):
    """Append a committed transaction, and then batches with these counts, which are aborted."""
    logs.lead_transaction(log, 1)
    end_transaction(log, 7, ControlType.COMMIT, at_ms=NOW_MS)
    sequence = 1
    for count in counts:
        logs.lead_transaction(log, count, sequence=sequence)
        sequence += count
    end_transaction(log, 7, ControlType.ABORT, at_ms=NOW_MS)


def test_sequence_of_an_aborted_batch_is_refused_after_retention_removed_it(logs):
    log = logs.open()
    aborted(logs, log, 1)
    log.roll(NOW_MS)
    logs.lead(log)
    log.advance_high_watermark(log.log_end_offset)
    log.retention.advance_log_start_offset(4)
    assert log.retention.delete_old_segments(NOW_MS) == 1
    with pytest.raises(UnknownProducerId):
        logs.lead_transaction(log, 1, sequence=1)


def test_sequence_of_an_aborted_batch_is_refused_after_compaction_removed_it(logs):
    log = logs.open(config=COMPACTED)
    aborted(logs, log, 1, 1)
    cleaner = LogCleaner()
    for day in range(1, 5):
        logs.lead(log)
        log.roll(NOW_MS)
        log.advance_high_watermark(log.log_end_offset)
        log.flushing.flush()
        assert clean(cleaner, log, NOW_MS + day * 10**9) is not None
    for opened, sequence in (log, 1), (logs.open(config=COMPACTED), 2):
        with pytest.raises(UnknownProducerId):
            logs.lead_transaction(opened, 1, sequence=sequence)


@pytest.mark.parametrize("count", [1, 3])
def test_batch_of_another_size_with_sequences_of_an_aborted_batch_is_refused_alike(logs, count):
    """Librdkafka cannot continue after OUT_OF_ORDER_SEQUENCE_NUMBER."""
    log = logs.open()
    aborted(logs, log, 2)
    with pytest.raises(UnknownProducerId):
        logs.lead_transaction(log, count, sequence=1)
    end_transaction(log, 7, ControlType.ABORT, at_ms=NOW_MS)
    assert not logs.lead_transaction(log, 1, sequence=3).is_duplicate


@pytest.mark.parametrize("is_readable", [True, False])
def test_truncated_log_refuses_aborted_sequences_unless_its_index_is_unreadable(logs, is_readable):
    log = logs.open()
    aborted(logs, log, 1)
    log.roll(NOW_MS)
    logs.lead(log, 2)
    log.advance_high_watermark(4)
    if not is_readable:
        log.segments.first.transaction_index.path.write_bytes(b"")
    log.truncation.truncate_to(4)
    if is_readable:
        with pytest.raises(UnknownProducerId):
            logs.lead_transaction(log, 1, sequence=1)
    else:
        assert logs.lead_transaction(log, 1, sequence=1).is_duplicate  # as in Kafka
    assert log.log_end_offset == 4


def test_sequence_of_an_aborted_batch_is_refused_within_the_next_transaction(logs):
    """Batches of one transaction may arrive together, and the second has the next sequence.

    After OUT_OF_ORDER_SEQUENCE_NUMBER for the second, librdkafka 2.16 may put it back into its
    queue, where it stays until the commit times out.
    """
    log = logs.open()
    aborted(logs, log, 1)
    with pytest.raises(UnknownProducerId):
        logs.lead_transaction(log, 1, sequence=1)
    assert logs.lead_transaction(log, 1, sequence=2).first_offset == 4
    with pytest.raises(UnknownProducerId):
        logs.lead_transaction(log, 1, sequence=1)
    assert logs.lead_transaction(log, 1, sequence=2).is_duplicate


def test_retry_of_a_batch_is_a_duplicate_on_a_follower_that_still_knew_the_aborted_one(logs, batch):
    """The leader had dropped the idle producer, and accepted the sequence again."""
    log = logs.open()
    aborted(logs, log, 1)
    again = batch(producer_id=7, producer_epoch=0, base_sequence=1, transactional=True)
    restamp(again, 0, 4, 0)
    log.append_as_follower(again, now_ms=NOW_MS)
    retried = logs.lead_transaction(log, 1, sequence=1)
    assert (retried.is_duplicate, retried.first_offset) == (True, 4)


def test_aborted_batch_below_a_snapshot_is_recognised_below_many_later_aborts(logs, monkeypatch):
    monkeypatch.setattr(recovery, "ABORTED_MAX", 1)
    log = logs.open()
    aborted(logs, log, 1)
    log.local.take_snapshot()
    for sequence in range(200):
        logs.lead_transaction(log, 1, producer_id=8, sequence=sequence)
        end_transaction(log, 8, ControlType.ABORT, at_ms=NOW_MS)
    log.segments.active.write_out()
    reopened = logs.open()  # as after a kill
    with pytest.raises(UnknownProducerId):
        logs.lead_transaction(reopened, 1, sequence=1)


def test_retry_of_a_batch_before_an_aborted_one_is_answered_as_a_duplicate(logs):
    log = logs.open()
    aborted(logs, log, 1)
    assert logs.lead_transaction(log, 1).is_duplicate


def test_aborted_batch_whose_sequences_wrap_is_recognised(logs):
    log = logs.open()
    aborted(logs, log, 1)
    end_transaction(log, 7, ControlType.ABORT, producer_epoch=1, at_ms=NOW_MS)
    first = 2**31 - 2
    entry = log.producer_state.entry(7)
    entry.next_sequence = first
    logs.lead_transaction(log, 4, producer_epoch=1, sequence=first)
    end_transaction(log, 7, ControlType.ABORT, producer_epoch=1, at_ms=NOW_MS)
    for sequence in (first, first + 1, 0, 1):
        with pytest.raises(UnknownProducerId):
            logs.lead_transaction(log, 1, producer_epoch=1, sequence=sequence)
    end_transaction(log, 7, ControlType.ABORT, producer_epoch=1, at_ms=NOW_MS)
    assert not logs.lead_transaction(log, 1, producer_epoch=1, sequence=2).is_duplicate
