"""Test each answer of a partition to the batches of producers (KIP-98, 360, 890, 1228)."""

import pytest

from oncelog.runtime.steps import run_to_end
from oncelog.storage.producers.state import (
    RETRIES_END_MS,
    Accepted,
    Duplicate,
    MarkerAlreadyWritten,
    Origin,
    ProducerStateTable,
)
from oncelog.wire.errors import (
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)
from oncelog.wire.record_batch import BatchHeader

from ...present import present

LAST = 2**31 - 1
TRANSACTIONAL = 0x10
NOW = 1_000


def batch(
    sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, transactional=False
) -> BatchHeader:
    return BatchHeader(
        base_offset=-1,  # the table takes the offset given beside it
        batch_length=100,
        partition_leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=TRANSACTIONAL if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp=NOW,
        max_timestamp=NOW,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


class Log:
    """A ProducerStateTable with successive base offsets, without a log."""

    def __init__(self, **options) -> None:
        self.table = ProducerStateTable(**options)

    def check(self, header: BatchHeader, **options):
        return self.table.check(header, **options)

    def write(self, header: BatchHeader) -> int:
        base_offset = self.table.end_offset
        self.table.append(header, base_offset, NOW)
        return base_offset

    def send(self, *args, guard: int | None = None, **options):
        header = batch(*args, **options)
        verdict = self.check(header, guard=guard)
        return verdict if isinstance(verdict, Duplicate) else self.write(header)

    def open_transaction(self, sequence: int, count: int = 1, **options) -> int:
        """Append a verified transactional batch, and return its offset."""
        header = batch(sequence, count, transactional=True, **options)
        guard = self.table.begin_verification(
            header.producer_id, header.producer_epoch, sequence, now_ms=NOW
        )
        assert self.check(header, guard=guard) == Accepted()
        return self.write(header)

    def mark(self, *, producer_id=7, epoch=0, coordinator_epoch=0, is_aborted=False):
        completed = self.table.append_marker(
            producer_id,
            epoch,
            coordinator_epoch,
            is_aborted=is_aborted,
            offset=self.table.end_offset,
            timestamp=NOW,
            now_ms=NOW,
        )
        if completed is not None:
            self.table.complete_transaction(completed)
        return completed


@pytest.fixture
def log() -> Log:
    return Log()


# -- idempotence -------------------------------------------------------------------------------


def test_producer_batches_in_sequence_are_accepted(log):
    assert [log.send(0, 10), log.send(10, 5), log.send(15)] == [0, 10, 15]


def test_producer_batch_among_the_last_five_is_a_duplicate_with_its_offset(log):
    for sequence in range(0, 70, 10):
        log.send(sequence, 10)
    for sequence in range(20, 70, 10):
        assert log.send(sequence, 10) == Duplicate(sequence, sequence + 9, NOW)
    assert log.table.end_offset == 70


def test_producer_batch_older_than_the_last_five_is_out_of_order(log):
    for sequence in range(6):
        log.send(sequence)
    with pytest.raises(OutOfOrderSequenceNumber):
        log.send(0)


def test_producer_batch_with_only_partly_equal_sequences_is_no_duplicate(log):
    log.send(0, 10)
    for sequence, count in ((0, 9), (1, 9), (0, 11), (5, 1)):
        with pytest.raises(OutOfOrderSequenceNumber):
            log.send(sequence, count)


def test_producer_batch_with_a_sequence_gap_is_refused(log):
    log.send(0, 10)
    with pytest.raises(OutOfOrderSequenceNumber):
        log.send(11)


def test_producer_that_is_unknown_may_begin_at_any_sequence(log):
    assert log.send(4711) == 0  # retention may have taken its state (KIP-360)
    assert log.send(4712) == 1


def test_producer_sequence_after_the_maximum_is_zero(log):
    log.send(LAST)
    assert log.send(0, 3) == 1
    with pytest.raises(OutOfOrderSequenceNumber):
        log.send(4)
    assert log.send(LAST) == Duplicate(0, 0, NOW)


def test_producer_batch_may_wrap_its_sequences_inside(log):
    log.send(LAST - 1, 5)  # 2^31-2, 2^31-1, 0, 1, 2
    assert log.table.entry(7).last_sequence == 2
    assert log.send(LAST - 1, 5) == Duplicate(0, 4, NOW)
    with pytest.raises(OutOfOrderSequenceNumber):
        log.send(2)
    assert log.send(3) == 5


def test_producer_batch_with_a_lower_epoch_is_fenced_whatever_its_sequence(log):
    log.send(0, epoch=3)
    for sequence in (0, 1, 5):
        with pytest.raises(InvalidProducerEpoch):
            log.send(sequence, epoch=2)


def test_producer_with_a_new_epoch_begins_at_sequence_zero_with_an_empty_window(log):
    log.send(0, 10)
    with pytest.raises(OutOfOrderSequenceNumber):
        log.send(10, epoch=1)
    assert log.send(0, 10, epoch=1) == 10  # no duplicate of the same sequences before
    assert log.send(0, 10, epoch=1) == Duplicate(10, 19, NOW)


def test_producers_with_different_ids_have_independent_sequences(log):
    log.send(0, producer_id=1)
    log.send(9, producer_id=2)
    assert log.send(1, producer_id=1) == 2
    assert log.send(10, producer_id=2) == 3


def test_batch_without_a_producer_only_raises_the_end_offset(log):
    log.write(batch(-1, 4, producer_id=-1, epoch=-1))
    assert log.table.end_offset == 4
    assert len(log.table) == 0


# -- transactions and guards -------------------------------------------------------------------


def test_transactional_batch_without_a_verification_guard_is_refused(log):
    with pytest.raises(InvalidTxnState):
        log.send(0, transactional=True)
    with pytest.raises(InvalidTxnState):
        log.send(0, transactional=True, guard=12345)
    assert log.open_transaction(0) == 0


def test_transactional_batch_in_an_open_transaction_needs_no_guard(log):
    log.open_transaction(0)
    assert log.table.begin_verification(7, 0, 1, now_ms=NOW) is None
    assert log.send(1, transactional=True) == 1


def test_verification_guard_is_shared_by_requests_in_flight_and_never_reused(log):
    guard = log.table.begin_verification(7, 0, 0, now_ms=NOW)
    assert log.table.begin_verification(7, 0, 1, now_ms=NOW) == guard
    log.mark()
    assert log.table.begin_verification(7, 0, 0, now_ms=NOW) != guard


@pytest.mark.parametrize("event", ["marker", "data", "reload"])
def test_verification_that_arrives_late_opens_no_transaction(log, event):
    guard = log.table.begin_verification(7, 0, 0, now_ms=NOW)
    if event == "marker":
        log.mark(is_aborted=True)
    elif event == "data":
        log.send(0)
    else:
        run_to_end(log.table.loading_entries(log.table.snapshot_entries(), 0, NOW))
    with pytest.raises(InvalidTxnState):
        log.send(0 if event != "data" else 1, transactional=True, guard=guard)


def test_verification_guard_of_another_producer_is_refused(log):
    guard = log.table.begin_verification(7, 0, 0, now_ms=NOW)
    with pytest.raises(InvalidTxnState):
        log.send(0, producer_id=8, transactional=True, guard=guard)


def test_producer_epoch_is_checked_before_the_verification_guard(log):
    """A producer can handle the error of a fenced epoch, but not of the guard (KAFKA-19690)."""
    log.open_transaction(0, epoch=1)
    log.mark(epoch=2, is_aborted=True)
    with pytest.raises(InvalidProducerEpoch):
        log.send(1, epoch=1, transactional=True)


def test_producer_batch_of_a_newer_epoch_cannot_join_an_older_open_transaction(log):
    """If it joined, the older transaction's marker would be refused, and leave it open forever."""
    log.open_transaction(0, epoch=1)
    with pytest.raises(InvalidTxnState):
        log.send(0, epoch=2, transactional=True)
    assert log.table.begin_verification(7, 2, 0, now_ms=NOW) is not None


def test_duplicate_transactional_batch_is_answered_without_a_guard(log):
    log.open_transaction(0)
    log.mark()
    assert log.send(0, transactional=True) == Duplicate(0, 0, NOW)


def test_lowest_sequence_under_verification_must_be_appended_first(log):
    guard = log.table.begin_verification(7, 0, 1, now_ms=NOW)
    log.table.begin_verification(7, 0, 0, now_ms=NOW)
    log.table.begin_verification(7, 0, 2, now_ms=NOW)
    with pytest.raises(OutOfOrderSequenceNumber):
        log.send(1, transactional=True, guard=guard)
    assert log.send(0, transactional=True, guard=guard) == 0


def test_higher_epoch_under_verification_drops_the_sequences_of_lower_epochs(log):
    guard = log.table.begin_verification(7, 0, 5, now_ms=NOW)
    log.table.begin_verification(7, 1, 8, now_ms=NOW)
    log.table.begin_verification(7, 0, 2, now_ms=NOW)  # late, of the old epoch
    assert log.send(8, epoch=1, transactional=True, guard=guard) == 0


@pytest.mark.parametrize(
    ("supports_epoch_bump", "sequence", "refused"),
    [(True, 3, True), (True, 0, False), (False, 3, False)],
)
def test_producer_of_transaction_v2_that_is_unknown_begins_at_sequence_zero(
    log, supports_epoch_bump, sequence, refused
):
    guard = log.table.begin_verification(
        7, 0, sequence, now_ms=NOW, supports_epoch_bump=supports_epoch_bump
    )
    header = batch(sequence, transactional=True)
    if refused:
        with pytest.raises(OutOfOrderSequenceNumber):
            log.check(header, guard=guard)
    else:
        assert log.check(header, guard=guard) == Accepted()


def test_plain_batch_of_an_unknown_v2_producer_may_begin_at_any_sequence(log):
    log.table.begin_verification(7, 0, 9, now_ms=NOW, supports_epoch_bump=True)
    assert log.check(batch(3)) == Accepted()


def test_plain_batch_inside_an_open_transaction_is_refused(log):
    log.open_transaction(0)
    with pytest.raises(InvalidTxnState):
        log.send(1)
    log.mark()
    assert log.send(1) == 2


def test_offset_commit_batch_is_checked_by_epoch_and_guard_only(log):
    commit = batch(-1, transactional=True, epoch=4)
    with pytest.raises(InvalidTxnState):
        log.check(commit, origin=Origin.COORDINATOR)
    guard = log.table.begin_verification(7, 4, -1, now_ms=NOW)
    assert log.check(commit, origin=Origin.COORDINATOR, guard=guard) == Accepted()
    log.write(commit)
    assert log.check(commit, origin=Origin.COORDINATOR) == Accepted()  # no duplicate either
    with pytest.raises(InvalidProducerEpoch):
        log.check(batch(-1, transactional=True, epoch=3), origin=Origin.COORDINATOR)


# -- markers -----------------------------------------------------------------------------------


def test_marker_ends_the_transaction_and_returns_the_last_stable_offset(log):
    log.open_transaction(0, 3, producer_id=1)
    log.open_transaction(0, 3, producer_id=2)
    assert log.mark(producer_id=1, is_aborted=True) == (1, 0, 6, True, 3)
    assert log.mark(producer_id=2) == (2, 3, 7, False, 8)


def test_marker_of_a_producer_without_records_only_raises_the_epoch(log):
    assert log.mark(epoch=5, coordinator_epoch=3) is None
    assert log.table.first_unstable_offset is None
    with pytest.raises(InvalidProducerEpoch):
        log.send(0, epoch=4)
    with pytest.raises(TransactionCoordinatorFenced):
        log.table.check_marker(7, 5, 2)


def test_producer_sequence_continues_after_a_marker_of_the_same_epoch(log):
    log.open_transaction(0, 10)
    log.mark()
    assert log.open_transaction(10) == 11


def test_producer_sequence_restarts_after_a_marker_of_a_higher_epoch(log):
    log.open_transaction(0, 10)
    log.mark(epoch=1)
    with pytest.raises(OutOfOrderSequenceNumber):
        log.open_transaction(10, epoch=1)
    assert log.open_transaction(0, epoch=1) == 11


MARKERS = [
    # version, marker epoch, coordinator epoch, is the transaction of epoch 5 open, answer
    (0, 4, 9, True, InvalidProducerEpoch),
    (0, 5, 9, True, Accepted),
    (0, 6, 9, True, Accepted),
    (0, 5, 2, True, TransactionCoordinatorFenced),
    (0, 5, 3, True, Accepted),
    (0, 4, 2, True, InvalidProducerEpoch),  # the producer's epoch is checked first
    (0, 5, 9, False, Accepted),  # written once more, as Kafka does
    (2, 4, 9, True, InvalidProducerEpoch),
    (2, 5, 9, True, InvalidProducerEpoch),  # the marker of the transaction before
    (2, 6, 9, True, Accepted),
    (2, 6, 2, True, TransactionCoordinatorFenced),
    (2, 4, 9, False, InvalidProducerEpoch),
    (2, 5, 9, False, MarkerAlreadyWritten),
    (2, 5, 2, False, TransactionCoordinatorFenced),
    (2, 6, 9, False, Accepted),
]


@pytest.mark.parametrize(("version", "epoch", "coordinator_epoch", "is_open", "answer"), MARKERS)
def test_marker_check_depends_on_transaction_version_and_epochs(
    log, version, epoch, coordinator_epoch, is_open, answer
):
    log.mark(epoch=5, coordinator_epoch=3)
    if is_open:
        log.open_transaction(0, epoch=5)

    def check():
        return log.table.check_marker(7, epoch, coordinator_epoch, transaction_version=version)

    if issubclass(answer, Exception):
        with pytest.raises(answer):
            check()
    else:
        assert isinstance(check(), answer)


@pytest.mark.parametrize(
    ("ongoing_index", "prepare_index", "is_due"),
    [(8, 7, False), (8, 8, False), (8, 9, True), (8, 0, True), (0, 7, True)],
)
def test_marker_decided_before_the_open_transaction_does_not_end_that_transaction(
    log, ongoing_index, prepare_index, is_due
):
    guard = log.table.begin_verification(7, 0, 0, now_ms=NOW)
    log.table.verified(7, guard + 1, 99)  # the answer to another question
    log.table.verified(7, guard, ongoing_index)
    log.send(0, transactional=True, guard=guard)
    if is_due:
        assert log.table.check_marker(7, 0, 0, prepare_index=prepare_index) == Accepted()
    else:
        with pytest.raises(InvalidTxnState, match="earlier"):
            log.table.check_marker(7, 0, 0, prepare_index=prepare_index)
    log.mark()
    assert log.table.check_marker(7, 0, 0, prepare_index=7) == Accepted()


def test_marker_retry_returns_the_first_marker_offset_or_none_after_a_reload(log):
    log.open_transaction(0)
    log.mark(epoch=1)
    assert log.table.check_marker(7, 1, 0, transaction_version=2) == MarkerAlreadyWritten(1)
    run_to_end(log.table.loading_entries(log.table.snapshot_entries(), 2, NOW))
    assert log.table.check_marker(7, 1, 0, transaction_version=2) == MarkerAlreadyWritten(None)


def test_marker_retry_invalidates_the_verification_guard(log):
    log.mark(epoch=1)
    guard = log.table.begin_verification(7, 1, 0, now_ms=NOW)
    log.table.check_marker(7, 1, 0, transaction_version=2)
    with pytest.raises(InvalidTxnState):
        log.send(0, epoch=1, transactional=True, guard=guard)


# -- the last stable offset --------------------------------------------------------------------


def test_last_stable_offset_is_the_first_offset_of_the_first_open_transaction(log):
    log.send(0, 5, producer_id=1)
    log.open_transaction(0, 5, producer_id=2)
    log.open_transaction(0, 5, producer_id=3)
    assert log.table.last_stable_offset(3) == 3
    assert log.table.last_stable_offset(15) == 5
    log.mark(producer_id=2)
    assert log.table.last_stable_offset(15) == 5  # its marker, at 15, is not committed
    assert log.table.last_stable_offset(16) == 10
    log.mark(producer_id=3)
    assert log.table.last_stable_offset(16) == 10
    assert log.table.last_stable_offset(17) == 17


def test_transaction_marker_takes_effect_below_the_high_watermark(log):
    log.open_transaction(0)
    log.mark()
    assert log.table.first_ongoing_offset is None
    assert log.table.first_unstable_offset == 0
    log.table.advance_high_watermark(1)
    assert log.table.first_unstable_offset == 0
    log.table.advance_high_watermark(2)
    assert log.table.first_unstable_offset is None


def test_last_stable_offset_stays_at_the_oldest_open_transaction_if_others_end_before_it(log):
    for producer_id in (1, 2, 3):
        log.open_transaction(0, producer_id=producer_id)
    log.mark(producer_id=3)
    log.mark(producer_id=1)
    assert log.table.last_stable_offset(5) == 1
    log.mark(producer_id=2)
    assert log.table.last_stable_offset(5) == 1
    assert log.table.last_stable_offset(6) == 6


# -- limits ------------------------------------------------------------------------------------


def test_idle_producer_expires_only_outside_a_transaction(log):
    log.send(0, producer_id=1)
    log.open_transaction(0, producer_id=2)
    assert run_to_end(log.table.expiring(NOW + 99, 100)) == 0
    assert run_to_end(log.table.expiring(NOW + 100, 100)) == 1
    assert log.table.entry(1) is None
    assert log.table.entry(2) is not None
    assert log.send(77, producer_id=1) == 2


def test_clock_advance_expires_no_producer_that_may_still_retry(log):
    log.send(0, producer_id=1)
    silent_ms, advanced = 2 * RETRIES_END_MS, lambda _: 10 * RETRIES_END_MS
    assert run_to_end(log.table.expiring(NOW + RETRIES_END_MS - 1, silent_ms, advanced)) == 0
    assert run_to_end(log.table.expiring(NOW + RETRIES_END_MS, silent_ms, advanced)) == 1


def test_verification_guard_expires_after_its_time(log):
    guard = log.table.begin_verification(7, 0, 0, now_ms=NOW)
    run_to_end(log.table.expiring(NOW + 100, 100))
    with pytest.raises(InvalidTxnState):
        log.send(0, transactional=True, guard=guard)


def test_producers_beyond_the_maximum_evict_the_longest_idle():
    log = Log(producers_max=32)
    log.open_transaction(0, producer_id=1_000)
    for producer_id in range(100):
        log.send(0, producer_id=producer_id)
    assert len(log.table) <= 32
    assert log.table.entry(1_000) is not None
    assert log.send(0, producer_id=99) == Duplicate(100, 100, NOW)
    assert log.table.entry(0) is None


def test_verification_guards_beyond_the_maximum_evict_the_oldest():
    log = Log(producers_max=4)
    guards = [log.table.begin_verification(p, 0, 0, now_ms=NOW) for p in range(5)]
    with pytest.raises(InvalidTxnState):
        log.send(0, producer_id=0, transactional=True, guard=guards[0])
    assert log.send(0, producer_id=4, transactional=True, guard=guards[4]) == 0


# -- snapshots ---------------------------------------------------------------------------------


def reloaded(log: Log) -> Log:
    copy = Log()
    run_to_end(copy.table.loading_entries(log.table.snapshot_entries(), log.table.end_offset, NOW))
    return copy


def test_producer_snapshot_keeps_the_last_batch_and_the_open_transactions(log):
    log.send(0, 3, producer_id=1)
    log.send(3, 3, producer_id=1)
    log.open_transaction(0, producer_id=3)
    log.open_transaction(0, producer_id=2)
    copy = reloaded(log)
    assert copy.send(3, 3, producer_id=1) == Duplicate(3, 5, NOW)
    with pytest.raises(OutOfOrderSequenceNumber):
        copy.send(0, 3, producer_id=1)
    assert copy.table.first_unstable_offset == 6
    assert copy.mark(producer_id=3) == (3, 6, 8, False, 7)
    assert copy.table.snapshot_entries() == reloaded(copy).table.snapshot_entries()


def test_producer_windows_are_refilled_from_the_log_before_the_snapshot(log):
    headers = []
    for number in range(9):
        header = batch(number * 2, 2)
        headers.append((log.write(header), header))
    copy = reloaded(log)
    run_to_end(copy.table.refilling_windows(headers))
    for number in range(4, 9):
        assert copy.send(number * 2, 2) == Duplicate(number * 2, number * 2 + 1, NOW)
    with pytest.raises(OutOfOrderSequenceNumber):
        copy.send(6, 2)
    assert copy.send(18) == 18


def test_producer_window_is_not_refilled_with_batches_of_another_epoch(log):
    old, new = batch(0, 2), batch(0, 2, epoch=1)
    headers = [(log.write(old), old), (log.write(new), new)]
    copy = reloaded(log)
    run_to_end(copy.table.refilling_windows(headers))
    assert len(present(copy.table.entry(7)).batches) == 1


@pytest.mark.parametrize("sequence", [LAST - 1, LAST, 0])
def test_producer_batch_with_wrapped_sequences_is_kept_by_a_snapshot(log, sequence):
    log.send(sequence, 3)
    copy = reloaded(log)
    assert copy.send(sequence, 3) == Duplicate(0, 2, NOW)
    assert copy.send((sequence + 3) % 2**31) == 3
