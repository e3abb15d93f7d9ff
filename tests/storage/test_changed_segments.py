"""Test long reads of a log in steps, while its segments are removed, replaced or truncated."""

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from oncelog.runtime.steps import run_to_end
from oncelog.storage.compaction.cleaning import CleanedGroup
from oncelog.storage.compaction.log_cleaner import LogCleaner
from oncelog.storage.segments import log_file
from oncelog.storage.segments.index import CorruptIndex
from oncelog.storage.segments.segment_list import while_unchanged
from oncelog.wire.control_record import ControlType
from oncelog.wire.errors import InvalidRecord, KafkaStorageError

from ..log_batches import end_transaction
from ..present import present

NOW_MS = 1_700_000_000_000
PRODUCERS, BATCHES, HIGH_WATERMARK, CUT_TO = 300, 1200, 1150, 1160


def filled(logs: Any) -> Any:
    """Return a log of some seven segments, each with batches of all producers."""
    log = logs.open(segment_bytes=30_000, index_interval_bytes=100, file_delete_delay_ms=0)
    for n in range(BATCHES):
        logs.lead(log, size=100, key=b"k%d" % (n % 50), producer_id=n % PRODUCERS,
                  producer_epoch=0, base_sequence=n // PRODUCERS)  # fmt: skip
    log.advance_high_watermark(HIGH_WATERMARK)
    log.flushing.flush()
    return log


def drop_segments(log: Any) -> None:
    log.config = replace(log.config, retention_bytes=60_000)
    assert log.retention.delete_old_segments(NOW_MS) > 2


def swap_segments(log: Any) -> None:
    log.config = replace(log.config, is_compacted=True, is_deleted_by_retention=False,
                         min_cleanable_dirty_ratio=0.0, segment_bytes=60_000)  # fmt: skip
    cleaner = LogCleaner()
    steps = log_steps_without_rebuild(log, cleaner)
    for step in steps:
        if isinstance(step, CleanedGroup):
            cleaner.swap(step)
    cleaner.finish()


def log_steps_without_rebuild(log: Any, cleaner: LogCleaner) -> Any:
    """Return the steps of a cleaning, planned while the log seems to need no rebuild of producers.

    The rebuild of the log becomes due again after the plan.
    """
    rebuild, log.local.rebuild = log.local.rebuild, None
    cleaning = present(cleaner.begin([log], NOW_MS))
    log.local.rebuild = rebuild
    return cleaning.steps()


def cut_further(log: Any) -> None:
    run_to_end(log.truncation._cutting(CUT_TO - 7))


CHANGES: dict[str, Callable[[Any], None]] = {
    "nothing": lambda log: None,
    "retention": drop_segments,
    "compaction": swap_segments,
    "cut": cut_further,
}


def expected_producers(log: Any) -> dict[int, tuple[int, int]]:
    end = log.log_end_offset
    last = {n % PRODUCERS: (n // PRODUCERS + 1, n) for n in range(end)}
    assert len(last) == PRODUCERS
    return last


@pytest.mark.parametrize("step", range(0, 13, 3))
@pytest.mark.parametrize("change", CHANGES)
def test_rebuild_of_producers_with_concurrent_changes_equals_a_rebuild_without_changes(
    logs: Any, change: str, step: int
) -> None:
    log = filled(logs)
    steps = log.truncation.truncating_to(CUT_TO)
    for _ in range(step):
        next(steps, None)
    if step and log.local.rebuild is not None:
        CHANGES[change](log)
    run_to_end(steps)
    run_to_end(log.local.rebuilding())
    assert not log.is_failed and log.local.rebuild is None
    found = {e.producer_id: (e.next_sequence, e.last_data_offset) for e in log.producer_state}
    assert found == expected_producers(log)
    logs.lead(log, epoch=1)


@pytest.mark.parametrize("change", ["retention", "cut"])
def test_reader_that_needs_the_producers_during_a_rebuild_gets_all_producers(
    logs: Any, change: str
) -> None:
    log = filled(logs)
    steps = log.truncation.truncating_to(CUT_TO)
    while log.local.rebuild is None or log.log_end_offset > CUT_TO:
        next(steps)
    CHANGES[change](log)
    assert log.last_stable_offset == log.high_watermark
    assert len(log.producer_state) == PRODUCERS


DAMAGES = [
    struct.error("unpack_from requires a buffer of at least 252 bytes"),
    CorruptIndex("0.index", "it is short", "Delete it"),
    InvalidRecord("no marker"),
    OSError(5, "Input/output error"),
]


@pytest.mark.parametrize("error", DAMAGES, ids=lambda error: type(error).__name__)
def test_rebuild_of_producers_that_finds_damage_fails_the_log_and_keeps_the_old_state(
    logs: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    log = filled(logs)
    before = log.producer_state
    steps = log.truncation.truncating_to(CUT_TO)
    while log.log_end_offset > CUT_TO:
        next(steps)

    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(type(log.segments.first.offset_index), "count_up_to", fail)
    for _ in range(3):
        with pytest.raises(KafkaStorageError, match=str(error).split(":", maxsplit=1)[0][:9]):
            run_to_end(log.local.rebuilding())
    assert log.is_failed and log.producer_state is before


def test_rebuild_of_producers_with_a_wrong_index_fails_the_log_without_a_read_of_all_batches(
    logs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append waits for the rebuild, and a segment may have a gigabyte."""
    log, checked = filled(logs), list[int]()
    steps = log.truncation.truncating_to(CUT_TO)
    while log.log_end_offset > CUT_TO:
        next(steps)
    path = log.segments.first.offset_index.path
    content = bytearray(path.read_bytes())
    content[7::8] = bytes(each ^ 1 for each in content[7::8])
    path.write_bytes(content)
    monkeypatch.setattr(log_file, "check_crc", lambda *_: checked.append(1))
    with pytest.raises(KafkaStorageError, match="rebuilt when the broker starts"):
        run_to_end(log.local.rebuilding())
    assert log.is_failed and len(checked) < 10


def test_rebuild_of_producers_that_raises_an_unexpected_error_can_be_started_again(
    logs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt must not resume the failed generator, which would return None."""
    log = filled(logs)
    steps = log.truncation.truncating_to(CUT_TO)
    while log.log_end_offset > CUT_TO:
        next(steps)

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(type(log.segments.first.offset_index), "count_up_to", fail)
        with pytest.raises(ZeroDivisionError):
            run_to_end(log.local.rebuilding())
    assert not log.is_failed
    run_to_end(log.local.rebuilding())
    assert len(log.producer_state) == PRODUCERS


@pytest.mark.parametrize("change", ["older", "itself", "cut"])
def test_transaction_index_rebuild_is_dropped_if_its_segment_is_deleted_or_the_log_truncated(
    logs: Any, change: str
) -> None:
    log = logs.open(segment_bytes=1500, index_interval_bytes=100, file_delete_delay_ms=0)
    for n in range(200):
        logs.lead_transaction(log, producer_id=n % 4, sequence=n // 4)
        end_transaction(log, n % 4, ControlType.ABORT, at_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    segment = list(log.segments)[-3]
    path = segment.transaction_index.path
    content = path.read_bytes()
    path.write_bytes(b"\x40" + content[1:])
    with pytest.raises(KafkaStorageError):
        log.aborted_transactions.between(segment.base_offset, log.log_end_offset)
    steps = log.aborted_transactions.mending()
    for _ in range(3):
        next(steps)
    if change == "cut":
        log.truncation.truncate_to(log.log_end_offset - 2)
    else:
        newer = present(log.segments.after(segment))
        start = segment.base_offset if change == "older" else newer.base_offset
        log.retention.advance_log_start_offset(start)
        assert log.retention.delete_old_segments(NOW_MS) > 4
    mending = run_to_end(steps)
    assert not log.is_failed
    if change != "older":
        assert mending is None
        return
    mending.write()
    log.aborted_transactions.mended(mending)
    assert path.read_bytes() == content


def test_while_unchanged_continues_during_appends_and_ends_at_a_truncation(logs: Any) -> None:
    log = logs.open(segment_bytes=300)

    def steps() -> Any:
        for _ in range(10):
            yield
        return "done"

    reading = while_unchanged(log.segments, steps())
    for _ in reading:
        logs.lead(log, 3)
    assert len(log.segments) > 3
    assert run_to_end(while_unchanged(log.segments, steps())) == "done"
    reading = while_unchanged(log.segments, steps())
    next(reading)
    log.truncation.truncate_to(log.log_end_offset - 1)
    assert run_to_end(reading) is None
