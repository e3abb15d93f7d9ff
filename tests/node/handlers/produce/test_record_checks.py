"""Test the check of a batch's header against its records, by oncelog.record.validation."""

import dataclasses
import struct
from pathlib import Path

import pytest

from oncelog.node.clock import SystemClock
from oncelog.node.handlers.produce import record_checks
from oncelog.node.handlers.produce.record_checks import SKELETONS_AT_ONCE_MAX
from oncelog.runtime.steps import Steps
from oncelog.storage.log_config import RecordCheck
from oncelog.wire.errors import ErrorCode
from oncelog.wire.record_batch import (
    HEADER_BYTES,
    MAX_TIMESTAMP_AT,
    BatchHeader,
    check_crc,
    decode_header,
    rewrite_crc,
)
from oncelog.wire.record_walk import WalkedRecords, walk_skeleton
from oncelog.wire.records import Record, decode_batch, encode_batch

from ....awaiting import turns_until
from ....log_batches import batches_in
from ....lying_batches import INVALID_RECORD, lying_batches
from ...leading_broker import LeadingBroker

E = ErrorCode
HOUR_MS = 3_600_000
NAMES = [each.name for each in lying_batches(0)]
LEVELS = [RecordCheck.BATCH, RecordCheck.SKELETON, RecordCheck.FULL]


def leading(directory: Path, level: RecordCheck, **config: object) -> LeadingBroker:
    return LeadingBroker(directory, log_config={"record_validation": level, **config})


def headed(
    times: list[int], max_timestamp: int = -1, *, compression: int = 0, **fields: int
) -> bytearray:
    """Return a batch with records at `times`, and this maximum timestamp in its header."""
    records = [Record(i, time_ms, b"k", b"v") for i, time_ms in enumerate(times)]
    batch = bytearray(encode_batch(records, compression=compression, **fields))
    struct.pack_into(">q", batch, MAX_TIMESTAMP_AT, max_timestamp)
    rewrite_crc(batch)
    return batch


def stored(broker: LeadingBroker) -> BatchHeader:
    """Return the header of the last batch in the log, after a check of its checksum."""
    batch = batches_in(broker.log())[-1]
    header = decode_header(batch)
    check_crc(batch, 0, header)
    return header


# -- refusals


@pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name.lower())
@pytest.mark.parametrize("name", NAMES)
async def test_batch_with_a_false_header_is_refused_or_accepted_by_validation_level(
    tmp_path: Path, name: str, level: RecordCheck
) -> None:
    lie = lying_batches(SystemClock.wall_ms())[NAMES.index(name)]
    broker = leading(tmp_path, level)
    expected = (lie.batch, lie.skeleton, lie.full)[level]
    assert await broker.put(bytearray(lie.data)).errors() == {0: expected}
    assert broker.log().log_end_offset == (0 if expected else decode_header(lie.data).record_count)


def test_full_validation_differs_from_kafka_only_by_stricter_checks_or_kafka_failures() -> None:
    for lie in lying_batches(0):
        kafka = INVALID_RECORD if lie.kafka == -1 else lie.kafka
        assert lie.full in (kafka, INVALID_RECORD), lie.name
        assert (lie.batch, lie.skeleton, lie.full) == (lie.batch,) * 3 or lie.full != lie.batch


@pytest.mark.parametrize("level", LEVELS[1:])
async def test_record_older_than_the_allowed_timestamps_is_named_in_the_error(
    tmp_path: Path, level: RecordCheck
) -> None:
    now_ms = SystemClock.wall_ms()
    broker = leading(tmp_path, level, timestamp_before_max_ms=HOUR_MS)
    times = [now_ms, now_ms - 2 * HOUR_MS, now_ms]
    (answer,) = await broker.put(headed(times, now_ms)).partitions()
    assert answer.error_code == E.INVALID_TIMESTAMP
    assert [index for index, _ in answer.record_errors] == [1]
    times[1] = -1  # the record has no timestamp
    assert await broker.put(headed(times, now_ms)).errors() == {0: E.NONE}


@pytest.mark.parametrize("level", LEVELS)
async def test_batch_that_decompresses_beyond_the_limit_is_refused_when_decompressed(
    tmp_path: Path, level: RecordCheck
) -> None:
    broker = leading(tmp_path, level)
    record = Record(0, SystemClock.wall_ms(), b"k", bytes(65 << 20))
    bomb = bytearray(encode_batch([record], compression=4))
    expected = E.INVALID_RECORD if level else E.NONE
    assert await broker.put(bomb).errors() == {0: expected}


@pytest.mark.parametrize("level", LEVELS[1:])
async def test_batch_with_a_negative_record_count_does_not_extend_the_validation_budget(
    tmp_path: Path, level: RecordCheck
) -> None:
    broker, now_ms = leading(tmp_path, level), SystemClock.wall_ms()
    liar = headed([now_ms], now_ms)
    struct.pack_into(">i", liar, HEADER_BYTES - 4, -(1 << 31))
    rewrite_crc(liar)
    many = headed([now_ms] * (SKELETONS_AT_ONCE_MAX // 2), now_ms)
    answer = broker.put([(0, liar), *[(0, bytearray(many))] * 5])
    assert not answer.is_there, "all are looked at in one turn"
    errors = [each.error_code for each in await answer.partitions()]
    assert errors == [E.INVALID_RECORD, *[E.NONE] * 5]


# -- the maximum timestamp


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("compression", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("count", [3, 3 * SKELETONS_AT_ONCE_MAX])
async def test_batch_without_a_maximum_timestamp_gets_that_of_its_records(
    tmp_path: Path, count: int, compression: int, level: RecordCheck
) -> None:
    """Until 2025 Sarama sent -1, with which retention would delete new records."""
    broker, now_ms = leading(tmp_path, level), SystemClock.wall_ms()
    times = [now_ms - 5] * count
    times[1] = now_ms
    answer = broker.put(headed(times, compression=compression))
    assert await answer.errors() == {0: E.NONE}
    assert stored(broker).max_timestamp == now_ms
    assert broker.log().segments.active.max_timestamp == now_ms
    read = decode_batch(batches_in(broker.log())[-1])
    assert [record.timestamp for record in read] == times


@pytest.mark.parametrize("level", LEVELS[1:])
@pytest.mark.parametrize("claimed_ms", [-HOUR_MS, 0, HOUR_MS, 100 * HOUR_MS])
async def test_batch_maximum_timestamp_is_corrected_if_records_are_validated(
    tmp_path: Path, level: RecordCheck, claimed_ms: int
) -> None:
    broker, now_ms = leading(tmp_path, level), SystemClock.wall_ms()
    times = [now_ms - 9, now_ms, now_ms - 3]
    assert await broker.put(headed(times, now_ms + claimed_ms)).errors() == {0: E.NONE}
    assert stored(broker).max_timestamp == now_ms


@pytest.mark.parametrize("level", LEVELS)
async def test_batch_of_records_without_timestamps_has_no_maximum_timestamp(
    tmp_path: Path, level: RecordCheck
) -> None:
    broker = leading(tmp_path, level)
    assert await broker.put(headed([-1, -1])).errors() == {0: E.NONE}
    assert stored(broker).max_timestamp == -1


@pytest.mark.parametrize("level", LEVELS)
async def test_batch_of_a_client_that_claims_log_append_time_is_stored_with_create_time(
    tmp_path: Path, level: RecordCheck
) -> None:
    broker, now_ms = leading(tmp_path, level), SystemClock.wall_ms()
    batch = headed([now_ms - 9, now_ms - 5], now_ms, timestamp_type=1)
    assert await broker.put(batch).errors() == {0: E.NONE}
    assert (stored(broker).max_timestamp, stored(broker).is_log_append_time) == (now_ms - 5, False)


@pytest.mark.parametrize("level", LEVELS)
async def test_batch_in_a_log_append_time_topic_has_the_broker_time(
    tmp_path: Path, level: RecordCheck
) -> None:
    broker, before_ms = leading(tmp_path, level, uses_append_time=True), SystemClock.wall_ms()
    assert await broker.put(headed([5, 10])).errors() == {0: E.NONE}
    assert stored(broker).is_log_append_time
    assert before_ms <= stored(broker).max_timestamp <= SystemClock.wall_ms()


async def test_batch_that_is_damaged_is_refused_before_any_correction(tmp_path: Path) -> None:
    broker = leading(tmp_path, RecordCheck.BATCH)
    batch = headed([SystemClock.wall_ms()])
    batch[-1] ^= 1
    assert await broker.put(batch).errors() == {0: E.CORRUPT_MESSAGE}


async def test_timestamp_search_finds_records_of_a_batch_without_a_maximum_timestamp(
    tmp_path: Path,
) -> None:
    broker, now_ms = leading(tmp_path, RecordCheck.BATCH), SystemClock.wall_ms()
    times = [now_ms - 600_000 + i * 60_000 for i in range(3)]
    assert await broker.put(headed(times)).errors() == {0: E.NONE}
    answer = await broker.list_offsets(times[1]).value()
    (found,) = answer.topics[0].partitions
    assert (found.offset, found.timestamp) == (1, times[1])


async def test_retention_keeps_new_records_of_a_batch_without_a_maximum_timestamp(
    tmp_path: Path,
) -> None:
    broker = leading(tmp_path, RecordCheck.BATCH, retention_ms=HOUR_MS)
    now_ms = SystemClock.wall_ms()
    assert await broker.put(headed([now_ms - 2 * HOUR_MS], now_ms - 2 * HOUR_MS)).errors() == {0: 0}
    assert await broker.put(headed([now_ms])).errors() == {0: E.NONE}
    assert not broker.log().retention.delete_old_segments(now_ms=now_ms)
    assert broker.log().log_start_offset == 0


async def test_producer_entry_has_the_maximum_timestamp_of_the_last_batch(tmp_path: Path) -> None:
    broker, now_ms = leading(tmp_path, RecordCheck.BATCH), SystemClock.wall_ms()
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    for _ in range(2):  # the second one is a duplicate
        (answer,) = await broker.put(headed([now_ms, now_ms - 1], **producer)).partitions()
        assert (answer.error_code, answer.base_offset) == (E.NONE, 0)
    entry = broker.log().producer_state.entry(7)
    assert entry is not None and entry.last_timestamp == now_ms


# -- changes while records are checked


@pytest.mark.parametrize("is_compacted", [False, True])
async def test_batch_validated_at_a_lower_level_than_now_required_gets_a_retriable_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_compacted: bool
) -> None:
    begun: list[BatchHeader] = []

    def walk(data: memoryview, header: BatchHeader) -> Steps[WalkedRecords]:
        begun.append(header)
        return walk_skeleton(data, header)

    broker, now_ms = leading(tmp_path, RecordCheck.SKELETON), SystemClock.wall_ms()
    monkeypatch.setattr(record_checks, "walk_skeleton", walk)
    answer = broker.put(headed([now_ms] * 80_000, now_ms))
    await turns_until(lambda: begun)
    assert not answer.is_there
    log = broker.log()
    log.config = dataclasses.replace(log.config, is_compacted=is_compacted)
    expected = E.NOT_LEADER_OR_FOLLOWER if is_compacted else E.NONE
    assert await answer.errors() == {0: expected}
