"""Test that compaction changes nothing for readers of committed data and for producers.

Random batches of several producers, with transactions and tombstones, are written to a real log of
small segments. The log is cleaned at random times, crashes at random places of the cleaning, and is
opened again. A read_committed reader must find the same last value of each key as before the
compaction, and producers must get the same answers.
"""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from unittest.mock import patch

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from oncelog.storage.compaction.log_cleaner import LogCleaner
from oncelog.storage.partition_log import Origin, PartitionLog
from oncelog.storage.producers.verdicts import Duplicate
from oncelog.wire.control_record import ControlType, decode_marker
from oncelog.wire.errors import UnknownProducerId
from oncelog.wire.record_batch import decode_header, iterate_batches
from oncelog.wire.records import Record, decode_batch, encode_batch

from ...log_batches import COMPACTED, append_as_leader, batches_in, clean, marker
from ...present import present

CONFIG = replace(COMPACTED, segment_bytes=600, index_interval_bytes=100, delete_retention_ms=50)
TOPIC_ID = bytes(range(16))


class Crash(BaseException):
    """A crash like kill -9. The test then opens the log with new objects."""


def read_committed(log: PartitionLog) -> dict[bytes, bytes]:
    """Return the last value of each key, as Kafka's consumer with read_committed finds it."""
    state: dict[bytes, bytes] = {}
    offset, end = log.log_start_offset, log.last_stable_offset
    last_seen = -1
    while offset < end:
        read = log.read(offset, 300, upper_offset=end)
        if not read.data:
            break
        ahead = sorted(
            (first, p) for p, first in log.aborted_transactions.between(offset, read.next_offset)
        )
        aborting: set[int] = set()
        for position, header in iterate_batches(read.data):
            batch = bytes(read.data[position : position + header.size_bytes])
            while ahead and ahead[0][0] <= header.last_offset:
                aborting.add(ahead.pop(0)[1])
            if header.is_control:
                if decode_marker(batch)[0] is ControlType.ABORT:
                    aborting.discard(header.producer_id)
                continue
            if header.is_transactional and header.producer_id in aborting:
                continue
            for record in decode_batch(batch):
                if record.offset < offset:
                    continue
                assert record.offset > last_seen, "offsets rise"
                last_seen = record.offset
                if record.value is None:
                    state.pop(present(record.key), None)
                else:
                    state[present(record.key)] = record.value
        assert read.next_offset > offset
        offset = read.next_offset
    return state


class Driver:
    """A producer and leader that write random histories to a log, and crash at random."""

    def __init__(self, directory: Path, keys_max: int) -> None:
        self.directory = directory
        self.keys_max = keys_max
        self.now_ms = 1_000
        self.crash_in: int | None = None
        self.sequences: dict[int, int] = {}  # next, by producer
        self.epochs: dict[int, int] = {}
        self.open: set[int] = set()
        self.last_batches: dict[int, tuple[bytes, int]] = {}  # bytes, base offset
        self.aborted: set[int] = set()  # producers whose last batch was aborted
        self.values = 0
        self.records: dict[int, tuple] = {}  # all ever written
        self.cleaned_offset = 0  # as in the checkpoint
        self.start(clean=False)

    def fault_point(self, name: str) -> None:
        if self.crash_in is not None and name.startswith(("cleaner.", "log.swap", "checkpoint.")):
            self.crash_in -= 1
            if self.crash_in < 0:
                self.crash_in = None
                raise Crash(name)

    def start(self, *, clean: bool) -> None:
        self.log = PartitionLog.open(
            self.directory / "t-0",
            topic="t",
            partition=0,
            topic_id=TOPIC_ID,
            config=CONFIG,
            recovery_point=self.log.flushing.recovery_point if hasattr(self, "log") else 0,
            cleaned_offset=self.cleaned_offset,
            clean_shutdown=clean,
            now_ms=self.now_ms,
            fault_point=self.fault_point,
        )
        self.log.advance_high_watermark(self.log.log_end_offset)
        self.cleaner = LogCleaner(keys_max=self.keys_max, fault_point=self.fault_point)

    def append(self, batch: bytes, **options) -> int:
        info = append_as_leader(self.log, batch, now_ms=self.now_ms, **options)
        assert not info.is_duplicate
        self.log.advance_high_watermark(self.log.log_end_offset)
        return info.first_offset

    def send(self, producer: int, pairs, compression: int, transactional: bool) -> None:
        """Send a batch of `producer`.

        Producer 0 has no producer id, so its batch is never transactional.
        """
        transactional = transactional and producer > 0
        if producer > 0 and not transactional and producer in self.open:
            transactional = True
        records = []
        for delta, (key, is_tombstone) in enumerate(pairs):
            self.values += 1
            value = None if is_tombstone else b"%d" % self.values
            records.append(Record(delta, self.now_ms, b"k%d" % key, value))
        sequence = self.sequences.get(producer, 0)
        batch = encode_batch(
            records,
            base_offset=0,
            compression=compression,
            transactional=transactional,
            producer_id=producer if producer else -1,
            producer_epoch=self.epochs.get(producer, 0) if producer else -1,
            base_sequence=sequence if producer else -1,
        )
        guard = None
        if transactional and producer not in self.open:
            guard = self.log.producer_state.begin_verification(
                producer, self.epochs.get(producer, 0), sequence, now_ms=self.now_ms
            )
            self.open.add(producer)
        base_offset = self.append(batch, guard=guard)
        for record in records:
            self.records[base_offset + record.offset] = (record.key, record.value)
        if producer:
            self.sequences[producer] = sequence + len(records)
            self.last_batches[producer] = (batch, base_offset)
            self.aborted.discard(producer)

    def end(self, producer: int, is_abort: bool, bumps_epoch: bool) -> None:
        if producer not in self.open:
            return
        self.open.discard(producer)
        epoch = self.epochs.get(producer, 0)
        if bumps_epoch:
            epoch = self.epochs[producer] = epoch + 1
            self.sequences[producer] = 0
            self.last_batches.pop(producer, None)
        if is_abort:
            self.aborted.add(producer)
        data = marker(producer, not is_abort, producer_epoch=epoch, at_ms=self.now_ms)
        version = 2 if bumps_epoch else 1
        self.append(data, origin=Origin.COORDINATOR, transaction_version=version)

    def clean(self) -> bool:
        self.log.flushing.flush()
        if clean(self.cleaner, self.log, self.now_ms) is None:
            return False
        self.cleaned_offset = self.log.local.cleaned_offset
        return True

    def check(self, expected: dict[bytes, bytes]) -> None:
        assert read_committed(self.log) == expected
        for batch in batches_in(self.log):
            for record in decode_batch(batch) if not decode_header(batch).is_control else ():
                assert self.records[record.offset] == (record.key, record.value)
        for producer, (batch, base_offset) in self.last_batches.items():
            if producer in self.aborted:
                with pytest.raises(UnknownProducerId, match=f"at offset {base_offset}, in"):
                    self.log.producer_state.check(decode_header(batch))
                continue
            verdict = self.log.producer_state.check(decode_header(batch))
            assert isinstance(verdict, Duplicate)
            assert verdict.base_offset == base_offset, producer
        for producer, epoch in self.epochs.items():
            assert present(self.log.producer_state.entry(producer)).epoch == epoch
        ongoing = self.log.producer_state.first_ongoing_offset
        assert (ongoing is not None) == bool(self.open)


pairs = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=3)
producers, codecs = st.integers(1, 3), st.sampled_from([0, 0, 0, 1, 4])
steps = st.one_of(
    st.tuples(st.just("send"), st.integers(0, 3), pairs, codecs, st.booleans()),
    st.tuples(st.just("end"), producers, st.booleans(), st.booleans()),
    st.tuples(
        st.just("transaction"),
        producers,
        st.lists(pairs, min_size=1, max_size=3),
        st.booleans(),
        st.booleans(),
    ),
    st.tuples(st.just("clean")),
    st.tuples(st.just("clean deep")),
    st.tuples(st.just("crash"), st.integers(0, 25)),
    st.tuples(st.just("restart"), st.booleans()),
    st.tuples(st.just("wait"), st.sampled_from([1, 30, 60])),
    st.tuples(st.just("lose snapshots"), st.integers(0, 3)),
)
DEEP = [("roll",), ("clean",), ("wait", 60), ("clean",), ("wait", 60), ("clean",)]
LAST = [("clean deep",), ("lose snapshots", 1), ("lose snapshots", 99)]


@pytest.mark.in_turn
@settings(max_examples=80, deadline=None)
@given(st.lists(steps, min_size=10, max_size=50), st.sampled_from([1, 2, 3, 100]))
def test_cleaned_log_gives_every_reader_and_producer_the_same_answers(history, keys_max):
    directory = Path(mkdtemp())
    try:
        # A killed process loses nothing that it has written, synced or not.
        with patch.object(os, "fsync"), patch.object(os, "fdatasync"):
            run(Driver(directory, keys_max), [*history, *LAST])
    finally:
        shutil.rmtree(directory)


def run(driver: Driver, history) -> None:
    for step in history:
        match step:
            case ("send", producer, sent, compression, transactional):
                driver.send(producer, sent, compression, transactional)
            case ("end", producer, is_abort, bumps_epoch):
                driver.end(producer, is_abort, bumps_epoch)
            case ("transaction", producer, batches, is_abort, bumps_epoch):
                for sent in batches:
                    driver.send(producer, sent, 0, True)
                driver.end(producer, is_abort, bumps_epoch)
            case ("clean deep",):
                run(driver, DEEP)
            case ("wait", ms):
                driver.now_ms += ms
            case ("roll",):
                driver.log.roll(driver.now_ms)
            case ("clean",):
                expected = read_committed(driver.log)
                driver.clean()
                driver.check(expected)
            case ("crash", crash_in):
                expected = read_committed(driver.log)
                driver.crash_in = crash_in
                try:
                    driver.clean()
                except Crash as crash:
                    note(f"crash at {crash}")
                driver.crash_in = None
                driver.start(clean=False)
                driver.check(expected)
            case ("restart", clean):
                expected = read_committed(driver.log)
                if clean:
                    driver.log.close()
                driver.start(clean=clean)
                driver.check(expected)
            case ("lose snapshots", count):  # the newest ones
                expected = read_committed(driver.log)
                driver.log.flushing.flush()
                snapshots = sorted((driver.directory / "t-0").glob("*.snapshot"))
                for path in snapshots[::-1][:count]:
                    path.unlink()
                driver.start(clean=False)
                driver.check(expected)
