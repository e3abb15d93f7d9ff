"""Test that a log has the same batches as a list after random operations, restarts and kills."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog
from oncelog.storage.segments.recent_writes import RecentWrites
from oncelog.wire.record_batch import decode_header, iterate_batches
from oncelog.wire.records import Record, encode_batch

from ..present import present

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(16)
PRODUCERS = st.sampled_from([None, 1, 2])


class LogAgainstList(RuleBasedStateMachine):
    """A log beside the list `batches` of its expected content.

    `history` also has the batches that retention has deleted.
    """

    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.batches: list[bytes] = []
        self.history: list[bytes] = []
        self.log_start = self.log_end = self.high_watermark = self.durable = 0
        self.epoch = 0

    def teardown(self):
        shutil.rmtree(self.root)

    @initialize(
        segment_bytes=st.integers(150, 900),
        interval=st.integers(0, 300),
        retention_bytes=st.integers(0, 2000),
        recent_bytes=st.integers(0, 1000),
    )
    def create(self, segment_bytes, interval, retention_bytes, recent_bytes):
        self.recent = RecentWrites(recent_bytes, min_bytes=100)
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            retention_bytes=retention_bytes,
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
            recovery_point=self.durable,
            high_watermark=self.high_watermark,
            clean_shutdown=clean,
            now_ms=NOW_MS,
        )
        self.log.segments.recent = self.recent

    def encode(self, count, producer, base_offset, pending=()):
        fields = {}
        if producer is not None:
            done = [
                header
                for header in map(decode_header, [*self.history, *pending])
                if header.producer_id == producer
            ]
            sequence = done[-1].base_sequence + done[-1].record_count if done else 0
            fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        records = [
            Record(base_offset + n, NOW_MS + (self.log_end * 7 + n) % 50, b"k", b"v" * 9)
            for n in range(count)
        ]
        return encode_batch(records, base_offset=base_offset, **fields)

    def added(self, batch):
        self.batches.append(batch)
        self.history.append(batch)
        self.log_end = decode_header(batch).next_offset

    # -- growing

    @rule(count=st.integers(1, 4), producer=PRODUCERS, new_epoch=st.booleans())
    def append_as_leader(self, count, producer, new_epoch):
        self.epoch += new_epoch
        records = memoryview(bytearray(self.encode(count, producer, 0)))
        info = self.log.append_as_leader(
            records, decode_header(records), leader_epoch=self.epoch, now_ms=NOW_MS
        )
        assert info == (self.log_end, self.log_end + count - 1, -1, False)
        self.added(bytes(records))

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=4), gap=st.integers(0, 2))
    def append_as_follower(self, counts, gap):
        pending: list[bytes] = []
        offset = self.log_end + gap
        for count in counts:
            batch = bytearray(self.encode(count, 1, offset, pending))
            batch[12:16] = self.epoch.to_bytes(4, "big")
            pending.append(bytes(batch))
            offset += count
        self.log.append_as_follower(b"".join(pending), now_ms=NOW_MS)
        for batch in pending:
            self.added(batch)

    @rule(back=st.integers(0, 8))
    def send_again(self, back):
        """Send a recent batch again, and check that it is answered as a duplicate."""
        known = [batch for batch in self.history if decode_header(batch).producer_id == 2]
        entry = self.log.producer_state.entry(2)
        if not known or entry is None or not entry.batches:
            return
        batch = known[max(len(known) - 1 - back % len(entry.batches), 0)]
        original = decode_header(batch)
        again = memoryview(bytearray(batch))
        again[:8] = bytes(8)
        info = self.log.append_as_leader(
            again, decode_header(again), leader_epoch=self.epoch, now_ms=NOW_MS
        )
        assert info.is_duplicate
        assert info[:2] == (original.base_offset, original.last_offset)

    @rule()
    def roll(self):
        self.log.roll(NOW_MS)

    # -- limits

    @rule(share=st.floats(0, 1))
    def advance_high_watermark(self, share):
        offset = int(self.high_watermark + share * (self.log_end - self.high_watermark))
        self.log.advance_high_watermark(offset)
        self.high_watermark = max(self.high_watermark, offset)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share):
        self.log_start = int(self.log_start + share * (self.high_watermark - self.log_start))
        self.log.retention.advance_log_start_offset(self.log_start)

    @rule()
    def apply_retention(self):
        self.log.retention.delete_old_segments(NOW_MS)
        assert self.log.log_start_offset >= self.log_start
        self.log_start = self.log.log_start_offset
        assert self.log_start <= self.high_watermark

    @rule()
    def flush(self):
        self.log.flushing.flush()
        self.durable = self.log.flushing.recovery_point
        assert self.durable == self.log_end

    # -- cutting

    @rule(share=st.floats(0, 1))
    def truncate(self, share):
        offset = int(self.log_start + share * (self.log_end - self.log_start))
        self.log.truncation.truncate_to(offset)
        if offset < self.log_end:
            kept = [h for h in map(decode_header, self.batches) if h.next_offset <= offset]
            least = kept[-1].next_offset if kept else 0
            # Where there was a gap, or no batch is left, the end is that of an empty segment.
            assert least <= self.log.log_end_offset <= offset
            self.log_end = self.log.log_end_offset
            self.cut()

    @rule(offset=st.integers(0, 500))
    def start_over(self, offset):
        self.log.truncation.truncate_fully_and_start_at(offset)
        self.log_start = self.log_end = self.high_watermark = offset
        self.batches, self.history = [], []
        self.durable = 0

    def cut(self):
        self.batches = [b for b in self.batches if decode_header(b).next_offset <= self.log_end]
        self.history = [b for b in self.history if decode_header(b).next_offset <= self.log_end]
        self.log_start = min(self.log_start, self.log_end)
        self.high_watermark = min(self.high_watermark, self.log_end)
        self.durable = min(self.durable, self.log_end)

    # -- restarting

    @rule()
    def restart(self):
        self.log.close()
        self.durable = self.log_end
        self.open(clean=True)

    @rule(torn=st.binary(max_size=80))
    def kill(self, torn):
        """Kill and restart the broker, with the first bytes of another batch at the log end."""
        active = self.log.segments.active
        active.file.write_at(active.size_bytes, torn)
        self.open(clean=False)

    # -- invariants

    @invariant()
    def offsets_agree(self):
        if hasattr(self, "log"):
            log = self.log
            assert (log.log_start_offset, log.log_end_offset) == (self.log_start, self.log_end)
            assert log.high_watermark == self.high_watermark
            assert log.flushing.recovery_point <= self.log_end

    @invariant()
    def batches_agree(self):
        if not hasattr(self, "log"):
            return
        wanted = [b for b in self.batches if decode_header(b).next_offset > self.log_start]
        found, at = [], self.log_start
        while at < self.log_end:
            read = self.log.read(at, 333, upper_offset=self.log_end)
            if not read.data:
                break  # a gap at the end
            data = bytes(read.data)
            found += [data[at : at + header.size_bytes] for at, header in iterate_batches(data)]
            assert read.next_offset > at
            at = read.next_offset
        assert found == wanted

    @invariant()
    def producers_agree(self):
        if not hasattr(self, "log"):
            return
        for producer in (1, 2):
            done = [
                (header.base_sequence, header.last_offset_delta, header.base_offset)
                for header in map(decode_header, self.history)
                if header.producer_id == producer
            ]
            entry = self.log.producer_state.entry(producer)
            if not done:
                assert entry is None
                continue
            window = [batch[:3] for batch in present(entry).batches]
            assert window == done[-len(window) :] and 1 <= len(window) <= 5
            retained = [each for each in done[-5:] if each[2] >= self.log_start]
            assert len(window) >= len(retained)

    @invariant()
    def epochs_agree(self):
        if not hasattr(self, "log"):
            return
        for header in map(decode_header, self.batches):
            if header.next_offset > self.log_start:
                offset = max(header.base_offset, self.log_start)
                found = self.log.leader_epochs.epoch_for(offset)
                assert found == header.partition_leader_epoch


LogAgainstList.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, derandomize=True
)
test_a_log_behaves_as_a_list = LogAgainstList.TestCase
