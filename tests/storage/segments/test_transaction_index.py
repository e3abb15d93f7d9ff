"""Test the transaction index, with Kafka's bytes and its search for aborted transactions."""

import errno
import os
import struct
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oncelog.storage.segments import entry_checks
from oncelog.storage.segments.entry_file import EntryFile
from oncelog.storage.segments.log_file import scan_headers
from oncelog.storage.segments.transaction_index import (
    AbortedTransaction,
    CorruptTransactionIndex,
    TransactionIndex,
    encode,
)
from oncelog.wire.control_record import ControlType

from ...log_batches import end_transaction
from ..conftest import NOW_MS


@pytest.fixture
def index(tmp_path) -> TransactionIndex:
    return TransactionIndex(tmp_path / "0.txnindex", 0)


def test_transaction_index_bytes_equal_the_kafka_bytes(index):
    index.append(AbortedTransaction(4000, 5, 9, 10))
    assert index.path.read_bytes().hex() == (
        "0000" "0000000000000fa0" "0000000000000005" "0000000000000009" "000000000000000a"
    )  # fmt: skip


def test_transaction_index_without_an_entry_has_no_file(index):
    index.flush()
    index.close()
    index.truncate_to(0)
    assert index.collect(0, 100) == ([], False)
    assert not index.path.exists()


def test_transaction_index_entry_is_readable_by_another_process_immediately(index):
    index.append(AbortedTransaction(1, 0, 5, 6))
    assert TransactionIndex(index.path, 0).all() == index.all() == [(1, 0, 5, 6)]


def test_transaction_index_entry_not_above_the_last_marker_is_refused(index):
    index.append(AbortedTransaction(1, 0, 5, 6))
    with pytest.raises(CorruptTransactionIndex):
        index.append(AbortedTransaction(2, 1, 5, 6))


def test_fetch_returns_the_overlapping_aborted_transactions(index):
    first, second, third = (
        AbortedTransaction(1, 0, 10, 11),
        AbortedTransaction(2, 5, 20, 15),
        AbortedTransaction(3, 15, 30, 31),
    )
    for transaction in (first, second, third):
        index.append(transaction)
    assert index.collect(0, 5) == ([first], True)
    assert index.collect(0, 12) == ([first, second], True)  # 15 is stable: no later overlap
    assert index.collect(11, 16) == ([second, third], True)
    assert index.collect(21, 100) == ([third], False)
    assert index.collect(31, 100) == ([], False)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(st.lists(st.integers(1, 5), max_size=400), st.integers(0, 900), st.integers(0, 900))
def test_aborted_transactions_found_by_index_equal_the_result_of_a_full_list(
    tmp_path, steps, fetch_offset, upper_offset
):
    (tmp_path / "0.txnindex").unlink(missing_ok=True)
    index = TransactionIndex(tmp_path / "0.txnindex", 0)
    known, marker = [], 0
    for step in steps[:60]:
        marker += step
        known.append(AbortedTransaction(step, max(marker - step, 0), marker, marker + 1))
        index.append(known[-1])
    expected = []
    for transaction in known:
        if transaction.last_offset >= fetch_offset and transaction.first_offset < upper_offset:
            expected.append(transaction)
        if transaction.last_offset >= fetch_offset and (
            transaction.last_stable_offset >= upper_offset
        ):
            break
    assert index.collect(fetch_offset, upper_offset)[0] == expected
    index.truncate_to(upper_offset)
    assert index.all() == [t for t in known if t.last_offset < upper_offset]


@pytest.fixture
def entries_read(index, monkeypatch):
    """Return a list that gets the number of entries of each read of the index file."""
    read = []
    entries = EntryFile.entries

    def look(self, first, end):
        read.append(end - first)
        return entries(self, first, end)

    monkeypatch.setattr(EntryFile, "entries", look)
    return read


def test_fetch_in_a_long_transaction_index_reads_only_the_needed_entries(index, entries_read):
    """Otherwise a reader of a whole log would read all earlier entries again in each fetch."""
    for number in range(5_000):
        index.append(AbortedTransaction(1, number * 10, number * 10 + 9, number * 10 + 10))
    for at in (0, 25_000, 49_900):
        del entries_read[:]
        assert len(index.collect(at, at + 50)[0]) == 5
        assert sum(entries_read) <= 3 * 128


def test_fetch_beside_a_long_transaction_skips_blocks_of_other_aborted_transactions(
    index, entries_read
):
    """The long transaction keeps the last stable offset low, so any entry may overlap the fetch."""
    for number in range(5_000):
        index.append(AbortedTransaction(1, number * 10 + 5, number * 10 + 14, 3))
    index.append(AbortedTransaction(2, 3, 50_020, 50_021))
    again = TransactionIndex(index.path, 0)
    list(again.checking())
    del entries_read[:]
    for each in (index, again):
        assert [found.first_offset for found in each.collect(0, 30)[0]] == [5, 15, 25, 3]
    assert sum(entries_read) <= 2 * 4 * 128
    index.truncate_to(20_000)
    assert index.all() == index.collect(0, 50_000)[0]
    assert index.count == 1_999


@pytest.mark.parametrize(
    "content",
    [
        b"\0" * 33,
        bytes.fromhex("0001") + b"\0" * 32,  # an unknown version
        b"\0" * 68,  # two markers at one offset
        bytes.fromhex("0000" + "00" * 8 + "0000000000000009" + "0000000000000005" + "00" * 8),
    ],
)
def test_transaction_index_with_wrong_entries_is_detected(index, content):
    index.path.write_bytes(content)
    with pytest.raises(CorruptTransactionIndex, match=r"0\.txnindex.*made again"):
        list(TransactionIndex(index.path, 0).checking())


def test_transaction_index_with_a_marker_below_its_segment_is_detected(tmp_path):
    index = TransactionIndex(tmp_path / "100.txnindex", 100)
    index.append(AbortedTransaction(1, 50, 99, 100))
    with pytest.raises(CorruptTransactionIndex):
        list(index.checking())


def made(numbers: range) -> list[AbortedTransaction]:
    return [AbortedTransaction(1, at * 10, at * 10 + 9, at * 10 + 10) for at in numbers]


@pytest.mark.parametrize("end", [300, 299, 200, 128, 129])
@pytest.mark.parametrize("appended", [0, 3])
@pytest.mark.parametrize("is_opened", [False, True])
def test_transaction_index_byte_changed_after_a_truncation_is_detected(
    index, end, appended, is_opened
) -> None:
    """A change of any field must not hide an aborted transaction, or change later truncations."""
    for each in made(range(300)):
        index.append(each)
    if is_opened:
        index = TransactionIndex(index.path, 0)
        list(index.checking())
    index.truncate_to(end * 10)
    expected = made(range(end + appended))
    for each in expected[end:]:
        index.append(each)
    content = index.path.read_bytes()
    for number in sorted({0, 119, 120, 127, 128, end - 1} & set(range(len(expected)))):
        at = number * 10
        for position in range(number * 34, number * 34 + 34):
            damaged = bytearray(content)
            damaged[position] ^= 1 << position % 8
            index.path.write_bytes(damaged)
            with suppress(CorruptTransactionIndex, struct.error):
                assert index.all() == expected, position
            with suppress(CorruptTransactionIndex, struct.error):
                assert index.collect(at, at + 15)[0] == expected[number : number + 2], position
            with suppress(CorruptTransactionIndex, struct.error):
                assert index.count_below(at + 9) == number, position
    index.path.write_bytes(content)
    assert index.all() == expected


@pytest.mark.parametrize("number", [120, 240, 360, 480, 600])
def test_fetch_beside_a_long_transaction_detects_an_entry_that_misleads_its_search(
    index, number
) -> None:
    """The search ends in a block that holds no transaction of the fetch, and would be skipped."""
    for at in range(700):
        index.append(AbortedTransaction(1, at * 10, at * 10 + 9, 3))
    content = bytearray(index.path.read_bytes())
    content[number * 34 + 18 : number * 34 + 26] = bytes(8)
    index.path.write_bytes(content)
    with suppress(CorruptTransactionIndex):
        assert [each.first_offset for each in index.collect(5, 15)[0]] == [0, 10]


@pytest.mark.parametrize("change", ["append", "truncate", "truncate and append"])
@pytest.mark.parametrize("is_before", [True, False])
def test_transaction_index_read_by_the_cleaner_during_a_change_is_not_reported_as_damaged(
    index, monkeypatch, change, is_before
) -> None:
    """The cleaner reads in a thread, while the event loop changes the index."""
    entries, read = made(range(9)), EntryFile.entries
    for each in entries[:4]:
        index.append(each)
    assert index.all() == entries[:4]

    def read_slowly(self, first, end):
        monkeypatch.setattr(EntryFile, "entries", read)
        data = b"" if is_before else self.entries(first, end)
        if "truncate" in change:
            self.truncate_to(20)
        for each in entries[4:] if "append" in change else ():
            self.append(each)
        return self.entries(first, end) if is_before else data

    monkeypatch.setattr(EntryFile, "entries", read_slowly)
    index.all()
    index.append(AbortedTransaction(1, 500, 509, 510))
    expected = entries[: 2 if "truncate" in change else 4]
    expected += entries[4:] if "append" in change else ()
    assert index.all()[:-1] == expected


@pytest.mark.parametrize("method", ["cut", "entries"])
@pytest.mark.parametrize("end", [0, 2, 128, 130, 255])
def test_transaction_index_read_by_the_cleaner_during_a_truncation_forgets_the_removed_entries(
    index, monkeypatch, method, end
) -> None:
    """The cleaner's thread must not store the bounds or the checksum of removed entries."""
    for each in made(range(256)):
        index.append(each)
    index = TransactionIndex(index.path, 0)
    real = getattr(EntryFile, method)

    def interrupted(self, *arguments):
        monkeypatch.setattr(EntryFile, method, real)
        result = None if method == "cut" else real(self, *arguments)
        if method == "cut":
            index.all()
        else:
            index.truncate_to(end * 10)
        return real(self, *arguments) if method == "cut" else result

    monkeypatch.setattr(EntryFile, method, interrupted)
    if method == "cut":
        index.truncate_to(end * 10)
    else:
        index.collect(2000, 3000)
    appended = [AbortedTransaction(2, at * 10, at * 10 + 9, 3) for at in range(end, 300)]
    for each in appended:
        index.append(each)
    assert index.all() == made(range(end)) + appended
    for first in range(end * 10, 3000, 10):
        assert index.collect(first, first + 5)[0][0].first_offset == first


def test_transaction_index_entries_read_with_an_end_below_their_start_are_empty(
    index,
) -> None:
    """The cleaner reads the number of entries before it reads the entries."""
    for each in made(range(9)):
        index.append(each)
    assert index.entries(5, 2) == b""


def test_transaction_index_search_of_the_cleaner_during_a_truncation_finds_the_kept_entries(
    index, monkeypatch
) -> None:
    """The search knows the number of entries before the truncation."""
    for each in made(range(256)):
        index.append(each)
    pread = os.pread

    def interrupted(*arguments):
        monkeypatch.setattr(os, "pread", pread)
        index.truncate_to(50)
        return pread(*arguments)

    monkeypatch.setattr(os, "pread", interrupted)
    assert index.collect(20, 3000) == (made(range(2, 5)), False)


@pytest.mark.parametrize("compacted", [False, True])
def test_transaction_index_with_a_wrong_first_offset_is_corrected_when_the_log_is_opened(
    logs, compacted
) -> None:
    """Producer 7 commits a transaction, and aborts another one with two batches.

    Producer 8 aborts a transaction that overlaps with the second one.
    """
    config = {"segment_bytes": 1 << 20} | ({"is_compacted": True} if compacted else {})
    log = logs.open(**config)
    logs.lead_transaction(log, sequence=0)  # 0
    end_transaction(log, 7, ControlType.COMMIT, at_ms=NOW_MS)  # 1
    logs.lead_transaction(log, sequence=0, producer_id=8)  # 2
    logs.lead_transaction(log, sequence=1)  # 3
    end_transaction(log, 8, ControlType.ABORT, at_ms=NOW_MS)  # 4
    logs.lead_transaction(log, sequence=2)  # 5
    end_transaction(log, 7, ControlType.ABORT, at_ms=NOW_MS)  # 6
    log.roll(NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    expected = log.aborted_transactions.between(0, 7)
    assert expected == [(8, 2), (7, 3)]
    path = log.segments.first.transaction_index.path
    log.close()
    content = path.read_bytes()
    entries = [AbortedTransaction(*struct.unpack_from(">qqqq", content, at + 2)) for at in (0, 34)]
    for number in (0, 1):
        for first_offset in range(entries[number].last_offset + 1):
            wrong = list(entries)
            wrong[number] = entries[number]._replace(first_offset=first_offset)
            path.write_bytes(encode(wrong))
            log = logs.open(**config)
            log.advance_high_watermark(log.log_end_offset)
            found = log.aborted_transactions.between(0, 7)
            log.close()
            assert found == expected, (number, first_offset, found)


@pytest.mark.parametrize("trouble", ["changed bit", "bad sector"])
def test_log_with_a_damaged_marker_in_a_closed_segment_is_opened(
    logs, monkeypatch, trouble
) -> None:
    """A commit marker with a damaged byte may look like data, so the index seems to be wrong."""
    log = logs.open(segment_bytes=1 << 20, index_interval_bytes=1)
    logs.lead_transaction(log, sequence=0)  # 0
    end_transaction(log, 7, ControlType.COMMIT, at_ms=NOW_MS)  # 1
    logs.lead_transaction(log, sequence=1)  # 2
    end_transaction(log, 7, ControlType.ABORT, at_ms=NOW_MS)  # 3
    segment = log.segments.first
    log.roll(NOW_MS)
    headers = scan_headers(segment.file, 0, segment.size_bytes)
    attributes_at = [at for at, _ in headers][1] + 22
    if trouble == "changed bit":
        low_byte = segment.file.read(attributes_at, 1)[0]
        segment.file.write_at(attributes_at, bytes([low_byte ^ 0x20]))  # no control batch any more
    log.close()
    if trouble == "bad sector":

        def scan(file, start, end):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
            yield

        monkeypatch.setattr(entry_checks, "scan_headers", scan)
    log = logs.open(segment_bytes=1 << 20, index_interval_bytes=1)
    assert log.log_end_offset == 4
    log.advance_high_watermark(4)
    assert log.aborted_transactions.between(0, 4) == [(7, 2)]
    log.close()
