"""Test that a reader of committed data gets exactly the committed records from any offset.

Random transactions are written to a real log of small segments, which is rolled, truncated,
restarted and killed. Kafka's consumer must read exactly the committed records. It reads from each
offset, with fetches of each size, over the ends of segments.
"""

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import Origin, PartitionLog
from oncelog.wire.control_record import ControlType, decode_marker
from oncelog.wire.record_batch import decode_header, iterate_batches
from oncelog.wire.records import Record, decode_batch, encode_batch

from ..log_batches import marker

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(16)
PLAIN = 0
PRODUCERS = st.sampled_from([1, 2, 3])


class Entry(NamedTuple):
    """A batch of the model. `marker` is None for data, True for a commit and False for an abort."""

    base_offset: int
    last_offset: int
    producer: int
    marker: bool | None


class ReaderAgainstDecisions(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.entries: list[Entry] = []
        self.log_start = self.high_watermark = 0
        self.has_restarted = False

    def teardown(self):
        shutil.rmtree(self.root)

    @initialize(segment_bytes=st.integers(150, 700), interval=st.integers(0, 200))
    def create(self, segment_bytes, interval):
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            retention_bytes=-1,
            retention_ms=-1,
            file_delete_delay_ms=0,
        )
        self.open(clean=False)

    def open(self, clean):
        self.log = PartitionLog.open(
            self.root / "t-0",
            topic="t",
            partition=0,
            topic_id=TOPIC_ID,
            config=self.config,
            log_start_offset=self.log_start,
            high_watermark=self.high_watermark,
            clean_shutdown=clean,
            now_ms=NOW_MS,
        )

    @property
    def log_end(self) -> int:
        return self.entries[-1].last_offset + 1 if self.entries else 0

    def open_transactions(self) -> dict[int, int]:
        first: dict[int, int] = {}
        for entry in self.entries:
            if entry.producer == PLAIN:
                continue
            if entry.marker is None:
                first.setdefault(entry.producer, entry.base_offset)
            else:
                first.pop(entry.producer, None)
        return first

    def stable(self) -> int:
        """Return the expected last stable offset."""
        first: dict[int, int] = {}
        limits = [self.high_watermark]
        for entry in self.entries:
            if entry.producer == PLAIN:
                continue
            if entry.marker is None:
                first.setdefault(entry.producer, entry.base_offset)
            else:
                begun = first.pop(entry.producer, None)
                if begun is not None and entry.base_offset >= self.high_watermark:
                    limits.append(begun)
        return max(min([*limits, *first.values()]), self.log_start)

    def append(self, records: memoryview, producer: int, marker: bool | None, **how) -> None:
        info = self.log.append_as_leader(
            records, decode_header(records), leader_epoch=0, now_ms=NOW_MS, **how
        )
        self.entries.append(Entry(info.first_offset, info.last_offset, producer, marker))

    # -- growing

    @rule(producer=PRODUCERS, count=st.integers(1, 3))
    def write(self, producer, count):
        state = self.log.producer_state
        entry = state.entry(producer)
        sequence = entry.next_sequence if entry else 0
        guard = state.begin_verification(producer, 0, sequence, now_ms=NOW_MS)
        batch = encode_batch(
            [Record(n, NOW_MS, b"k", b"v" * 9) for n in range(count)],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        self.append(memoryview(bytearray(batch)), producer, None, guard=guard)

    @rule(count=st.integers(1, 2))
    def write_plain(self, count):
        batch = encode_batch([Record(n, NOW_MS, b"k", b"p") for n in range(count)])
        self.append(memoryview(bytearray(batch)), PLAIN, None)

    @rule(producer=PRODUCERS, commits=st.booleans())
    def end(self, producer, commits):
        data = marker(producer, commits, at_ms=NOW_MS)
        self.append(memoryview(bytearray(data)), producer, commits, origin=Origin.COORDINATOR)

    @rule()
    def roll(self):
        self.log.roll(NOW_MS)

    @rule(share=st.floats(0, 1))
    def advance_high_watermark(self, share):
        """Advance the high watermark to the end of a batch."""
        ends = [e.last_offset + 1 for e in self.entries if e.last_offset >= self.high_watermark]
        if ends:
            self.high_watermark = ends[round(share * (len(ends) - 1))]
            self.log.advance_high_watermark(self.high_watermark)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share):
        self.log_start = int(self.log_start + share * (self.high_watermark - self.log_start) / 2)
        self.log.retention.advance_log_start_offset(self.log_start)

    # -- cutting, restarting

    @rule(share=st.floats(0, 1))
    def truncate(self, share):
        """Truncate the log as a follower does, to an offset not below the high watermark."""
        offset = int(self.high_watermark + share * (self.log_end - self.high_watermark))
        self.log.truncation.truncate_to(offset)
        self.entries = [entry for entry in self.entries if entry.last_offset < offset]
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        self.has_restarted = True

    @rule(clean=st.booleans())
    def restart(self, clean):
        if clean:
            self.log.close()
        self.open(clean)
        self.has_restarted = True

    # -- invariants

    @invariant()
    def the_stable_offset_is_right(self):
        if not hasattr(self, "log"):
            return
        limit = self.log.last_stable_offset
        unended = min(self.open_transactions().values(), default=1 << 62)
        assert self.log_start <= limit <= max(self.high_watermark, self.log_start)
        assert limit <= max(unended, self.log_start)
        # A snapshot holds no ended transaction, so after a restart one with an uncommitted marker
        # may be read: its end is decided, whatever happens to the marker.
        if not self.has_restarted or self.high_watermark == self.log_end:
            assert limit == self.stable()

    @invariant()
    def readers_see_what_is_committed(self):
        if not hasattr(self, "log"):
            return
        limit = self.log.last_stable_offset
        committed = self.committed_offsets(limit)
        for begin in {
            self.log_start,
            (self.log_start + limit) // 2,
            max(self.log_start, limit - 2),
        }:
            wanted = [offset for offset in committed if offset >= begin]
            for max_bytes in (1, 200, 1 << 20):
                assert self.read(begin, limit, max_bytes) == wanted

    def committed_offsets(self, limit: int) -> list[int]:
        """Return the offsets below `limit` of committed and of non-transactional records."""
        found = []
        for number, entry in enumerate(self.entries):
            if entry.marker is not None:
                continue
            if entry.producer != PLAIN:
                later = (e for e in self.entries[number:] if e.producer == entry.producer)
                end = next((e for e in later if e.marker is not None), None)
                if end is None or not end.marker:
                    continue
            found += [o for o in range(entry.base_offset, entry.last_offset + 1) if o < limit]
        return found

    def read(self, offset: int, limit: int, max_bytes: int) -> list[int]:
        """Return the offsets of the records that Kafka's read_committed consumer returns."""
        found: list[int] = []
        while offset < limit:
            read = self.log.read(offset, max_bytes, upper_offset=limit)
            if not read.data:
                break
            listed = self.log.aborted_transactions.between(offset, read.next_offset)
            ahead = sorted((first, producer) for producer, first in listed)
            aborting: set[int] = set()
            for position, header in iterate_batches(bytes(read.data)):
                data = bytes(read.data[position : position + header.size_bytes])
                while ahead and ahead[0][0] <= header.last_offset:
                    aborting.add(ahead.pop(0)[1])
                if header.is_control:
                    if decode_marker(data)[0] is ControlType.ABORT:
                        aborting.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in aborting):
                    found += [r.offset for r in decode_batch(data) if r.offset >= offset]
            assert read.next_offset > offset
            offset = read.next_offset
        return found


ReaderAgainstDecisions.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, derandomize=True
)
test_readers_see_what_is_committed = ReaderAgainstDecisions.TestCase
