"""Test that the walk over a segment confirms no index entry that its lookups would refuse."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.runtime.steps import run_to_end
from oncelog.storage.compaction.log_cleaner import LogCleaner
from oncelog.storage.segments import entry_checks
from oncelog.storage.segments.entry_checks import checking_aborts
from oncelog.storage.segments.log_file import scan_headers
from oncelog.storage.segments.transaction_index import (
    AbortedTransaction,
    CorruptTransactionIndex,
    TransactionIndex,
    encode,
)
from oncelog.wire.control_record import ControlType

from ...log_batches import COMPACTED, clean, end_transaction
from ..conftest import NOW_MS, LogMaker

_KINDS = ["data", "data", "data", "abort", "abort", "commit", "new epoch", "roll"]
_EVENTS = st.lists(st.tuples(st.sampled_from(_KINDS), st.integers(1, 3)), min_size=4, max_size=40)
_CHANGE = st.tuples(st.integers(0, 99), st.integers(0, 3), st.integers(-5, 5))


def _written(logs, events, is_compacted):
    """Return a log of transactions, of which a compaction has maybe removed some batches."""
    log = logs.open(config=COMPACTED)
    sequences, epochs = Counter(), Counter()
    for kind, producer in events:
        if kind == "roll":
            log.roll(NOW_MS)
        elif kind == "data":
            logs.lead_transaction(
                log, 2, producer_id=producer, producer_epoch=epochs[producer],
                sequence=sequences[producer], key=b"%d" % producer,
            )  # fmt: skip
            sequences[producer] += 2
        else:
            if kind == "new epoch":
                epochs[producer] += 1
                sequences[producer] = 0
            ends = ControlType.COMMIT if kind == "commit" else ControlType.ABORT
            end_transaction(log, producer, ends, at_ms=NOW_MS, producer_epoch=epochs[producer])
    log.roll(NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    if is_compacted:
        clean(LogCleaner(), log, NOW_MS + 10)
    return log


def _is_accepted(segment):
    try:
        run_to_end(checking_aborts(segment))
    except CorruptTransactionIndex:
        return False
    return True


def _is_accepted_by_lookups(segment):
    """Return the verdict of a check that looks up each entry, whatever the walk has found."""
    sound = entry_checks._TransactionWalk.confirming

    def confirming(self, entry):
        yield from sound(self, entry)
        return False

    entry_checks._TransactionWalk.confirming = confirming
    try:
        return _is_accepted(segment)
    finally:
        entry_checks._TransactionWalk.confirming = sound


def _wrong_entries(segment, changes):
    """Return indexes with one changed field, and indexes with one entry for any marker."""
    entries = segment.transaction_index.all()
    for at, field, by in changes if entries else ():
        changed = list(entries[at % len(entries)])
        changed[field] = max(0, changed[field] + by)
        wrong = list(entries)
        wrong[at % len(wrong)] = AbortedTransaction(*changed)
        yield wrong
    for _, header in scan_headers(segment.file, 0, segment.size_bytes):
        offset = header.base_offset
        for first_offset in range(max(0, offset - 4), offset) if header.is_control else ():
            yield [AbortedTransaction(header.producer_id, first_offset, offset, offset + 1)]


@settings(max_examples=100, deadline=None)
@given(_EVENTS, st.booleans(), st.lists(_CHANGE, max_size=8))
def test_walk_over_a_segment_accepts_the_entries_that_lookups_accept(events, is_compacted, changes):
    with TemporaryDirectory() as directory:
        log = _written(LogMaker(Path(directory)), events, is_compacted)
        for segment in log.segments:
            assert _is_accepted(segment)
            for wrong in list(_wrong_entries(segment, changes)):
                path = segment.transaction_index.path
                path.write_bytes(encode(wrong))
                segment.transaction_index = TransactionIndex(path, segment.base_offset)
                assert _is_accepted(segment) == _is_accepted_by_lookups(segment), wrong
        log.local.retire()
