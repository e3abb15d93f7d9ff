"""Fixtures of the storage tests, which make batches and small logs."""

import pytest

from oncelog.storage.log_config import LogConfig
from oncelog.storage.partition_log import PartitionLog
from oncelog.wire.record_batch import decode_header
from oncelog.wire.records import Record, encode_batch

NOW_MS = 1_700_000_000_000
TOPIC_ID = bytes(range(16))


def make_batch(
    count=1, *, base_offset=0, size=10, key=b"k", timestamp=NOW_MS, timestamps=None, **fields
) -> memoryview:
    """Return a writable batch of `count` records with consecutive offsets from `base_offset`."""
    times = timestamps or [timestamp] * count
    records = [
        Record(base_offset + i, times[i], key, bytes([i % 251]) * size) for i in range(count)
    ]
    return memoryview(bytearray(encode_batch(records, base_offset=base_offset, **fields)))


class LogMaker:
    """A maker of the log `t-0` below a directory. `lead` appends to the log as a leader does."""

    def __init__(self, directory):
        self.directory = directory / "t-0"

    def open(self, **options) -> PartitionLog:
        options.setdefault("now_ms", NOW_MS)
        topic_id = options.pop("topic_id", TOPIC_ID)
        config = options.pop("config", None) or LogConfig(
            **{key: options.pop(key) for key in list(options) if hasattr(LogConfig, key)}
        )
        return PartitionLog.open(
            self.directory, topic="t", partition=0, topic_id=topic_id, config=config, **options
        )

    @staticmethod
    def lead(log, count=1, *, epoch=0, now_ms=NOW_MS, guard=None, **batch):
        records = make_batch(count, **batch)
        return log.append_as_leader(
            records, decode_header(records), leader_epoch=epoch, now_ms=now_ms, guard=guard
        )

    def lead_transaction(
        self, log, count=1, *, producer_id=7, producer_epoch=0, sequence=0, **batch
    ):
        """Append a transactional batch that its coordinator has verified."""
        guard = log.producer_state.begin_verification(
            producer_id, producer_epoch, sequence, now_ms=NOW_MS
        )
        return self.lead(
            log, count, producer_id=producer_id, producer_epoch=producer_epoch,
            base_sequence=sequence, transactional=True, guard=guard, **batch,
        )  # fmt: skip


@pytest.fixture
def batch():
    return make_batch


@pytest.fixture
def logs(tmp_path):
    return LogMaker(tmp_path)


@pytest.fixture
def log(logs) -> PartitionLog:
    """Return an empty log with Kafka's defaults."""
    return logs.open()
