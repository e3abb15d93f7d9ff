"""Test the answers to Produce requests, which have an entry for each batch of the request."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncelog.node.clock import SystemClock
from oncelog.node.handlers.produce import record_checks
from oncelog.node.handlers.produce.produce import PRODUCE
from oncelog.node.handlers.produce.record_checks import AT_ONCE_ITEMS_MAX
from oncelog.node.partitions import batch_contents
from oncelog.storage.log_config import RecordCheck
from oncelog.wire.compression import ZSTD
from oncelog.wire.errors import ErrorCode
from oncelog.wire.framing import encode_request_header
from oncelog.wire.messages import produce
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.record_batch import BatchHeader, rewrite_crc
from oncelog.wire.record_walk import NAMED_RECORDS_MAX
from oncelog.wire.records import Record, encode_batch

from ....awaiting import turns_until
from ...fake_broker import CORRELATION_ID, Answer
from ...leading_broker import LeadingBroker, batch, plain

E = ErrorCode


@pytest.mark.parametrize("ends_well", [True, False])
async def test_produce_that_names_a_partition_twice_answers_each_batch(
    tmp_path: Path, ends_well: bool
) -> None:
    """Apache Kafka appends only the last batch of the partition, and answers once."""
    broker = LeadingBroker(tmp_path, partitions=2, replicas=(1, 2), min_insync_replicas=2)
    batches = [(0, plain()), (1, plain()), (0, plain()), (0, plain()[:-1])]
    answer = broker.put(batches)
    assert not answer.is_there
    broker.replicate(1)
    broker.replicate(0, up_to=1)
    assert not answer.is_there, "the second batch is not committed"
    if ends_well:
        broker.replicate(0)
    else:
        broker.resign(0)
    found = [(p.index, p.error_code, p.base_offset) for p in await answer.partitions()]
    lost = E.NOT_LEADER_OR_FOLLOWER
    of_0 = [(0, E.NONE, 0), (0, E.NONE, 1)] if ends_well else [(0, lost, -1), (0, lost, -1)]
    assert found == [of_0[0], (1, E.NONE, 0), of_0[1], (0, E.INVALID_RECORD, -1)]


async def test_produce_waiting_for_replicas_keeps_no_request_memory(
    tmp_path: Path,
) -> None:
    """In a broker under load the frames of waiting requests would take 60 MB."""
    broker = LeadingBroker(tmp_path, partitions=2, replicas=(1, 2), min_insync_replicas=2)
    wanted = [ProducePartition(0, plain()), ProducePartition(1, plain()[:-1])]
    request = ProduceRequest(None, -1, 60_000, [ProduceTopic("t", None, wanted)])
    body = b"".join(produce.encode_request(request, 9))
    frame = bytearray(encode_request_header(PRODUCE, 9, CORRELATION_ID, "test") + body)
    view = memoryview(frame)
    outcome = broker.dispatcher.dispatch(broker.connect(), broker.dispatcher.find(view), view)
    view.release()
    answer = Answer(PRODUCE, 9, outcome)
    assert not answer.is_there
    frame.clear()  # raises BufferError while a view of the frame exists
    broker.replicate(0)
    ((first, second),) = (topic.partitions for topic in (await answer.value()).topics)
    assert (first.error_code, second.error_code) == (E.NONE, E.INVALID_RECORD)


# -- records that are checked (compacted topics)


def keyed(*keys: bytes | None, compression: int = 0, size: int = 1) -> bytearray:
    now_ms = SystemClock.wall_ms()
    records = [Record(i, now_ms, key, bytes(size)) for i, key in enumerate(keys)]
    return bytearray(encode_batch(records, compression=compression))


@pytest.fixture
@asynccontextmanager
async def compacted(tmp_path: Path) -> AsyncIterator[LeadingBroker]:
    yield LeadingBroker(tmp_path, log_config={"is_compacted": True})


@pytest.mark.parametrize("compression", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("count", [10, 20 * AT_ONCE_ITEMS_MAX])
async def test_produce_error_names_the_invalid_records(
    compacted: LeadingBroker, count: int, compression: int
) -> None:
    """A client fails the named records with this error, and the others with another one."""
    records = keyed(*(None if n % 5 == 3 else b"k" for n in range(count)), compression=compression)
    answer = compacted.put(records)
    (read,) = await answer.partitions()
    assert read.error_code == E.INVALID_RECORD
    assert [index for index, _ in read.record_errors] == list(range(3, count, 5))
    (reason,) = {reason for _, reason in read.record_errors}
    assert reason == "Compacted topic cannot accept message without key in topic partition t-0"
    assert f"due to {count // 5} record errors in total" in read.error_message
    assert compacted.log().log_end_offset == 0
    sound = keyed(*[b"k"] * count, compression=compression)
    assert await compacted.put(sound).errors() == {0: E.NONE}


async def test_produce_error_names_a_bounded_number_of_records(compacted: LeadingBroker) -> None:
    records = keyed(*[None] * (NAMED_RECORDS_MAX + 5))
    answer = compacted.put(records)
    (read,) = await answer.partitions()
    assert len(read.record_errors) == NAMED_RECORDS_MAX


async def test_produce_of_one_record_that_decompresses_to_500_kb_is_accepted(
    compacted: LeadingBroker,
) -> None:
    for compression in range(1, 5):
        records = keyed(b"k", compression=compression, size=500_000)
        answer = compacted.put(records)
        assert not answer.is_there
        assert await answer.errors() == {0: E.NONE}


async def test_produce_of_many_records_delays_only_its_own_connection(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, partitions=2, log_config={"is_compacted": True})
    connection = broker.connect()
    many = keyed(*[b"k"] * 40_000, compression=4)
    first = broker.put(many, connection=connection)
    second = broker.put(keyed(b"k"), connection=connection)
    of_another = broker.put({1: keyed(b"k")})
    assert of_another.is_there
    order: list[bool] = []
    turns = await turns_until(lambda: first.is_there or order.append(second.is_there))
    assert turns > 2 and not any(order), "other requests had their turns"
    assert await second.errors() == {0: E.NONE}
    assert [entry[0] for entry in broker.contents()] == [0, 40_000]


async def test_produce_of_an_abandoned_request_stops_validating_its_records(
    compacted: LeadingBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that times out and retries must not cause more and more work."""
    begun = []

    async def contents(batch: memoryview, header: BatchHeader) -> bytes:
        begun.append(header)
        return await batch_contents.contents(batch, header)

    monkeypatch.setattr(record_checks, "contents", contents)
    connection = compacted.connect()
    many = keyed(*[b"k"] * 40_000)
    answer = compacted.put([(0, many[:]) for _ in range(5)], connection=connection)
    await turns_until(lambda: begun)
    answer.abandon()
    await turns_until(lambda: connection.produce_queue is None)
    assert len(begun) == 1
    assert compacted.log().log_end_offset == 0


async def test_transactional_produces_with_records_to_validate_wait_for_their_verification(
    compacted: LeadingBroker,
) -> None:
    compacted.verifier.hold = True
    connection = compacted.connect()
    first = compacted.produce(connection, {0: batch(0, count=5_000)})
    second = compacted.produce(connection, {0: batch(5_000, count=5_000)})
    await turns_until(lambda: compacted.verifier.questions)
    assert not first.is_there
    compacted.verifier.hold = False
    compacted.verifier.release()
    assert await first.errors() == await second.errors() == {0: E.NONE}
    assert compacted.log().log_end_offset == 10_000


@pytest.mark.parametrize(("batches", "headers"), [(1, 15_000), (100, 300)])
async def test_produce_of_few_records_with_many_headers_is_validated_in_slices(
    compacted: LeadingBroker, batches: int, headers: int
) -> None:
    """Each batch decompresses to 32 kB of headers, which would block the loop for seconds."""
    one = encode_batch([Record(0, 0, b"k", None, (("", None),) * headers)], compression=ZSTD)
    wanted = [(0, bytearray(one)) for _ in range(batches)]
    answer = compacted.put(wanted)
    assert not answer.is_there
    assert await answer.errors() == {0: E.NONE}
    assert compacted.log().log_end_offset == batches


async def test_produce_error_names_records_of_only_a_few_batches_with_invalid_timestamps(
    tmp_path: Path,
) -> None:
    """The records of a request with thousands of batches would take too long to list."""
    one = encode_batch([Record(i, 0, b"k", None) for i in range(100)])
    broker = LeadingBroker(tmp_path, log_config={"timestamp_before_max_ms": 1000000})
    wanted = [(0, bytearray(one)) for _ in range(4)]
    answer = broker.put(wanted)
    partitions = await answer.partitions()
    assert {each.error_code for each in partitions} == {E.INVALID_TIMESTAMP}
    assert [len(each.record_errors) for each in partitions] == [100, 100, 0, 0]


async def test_produce_error_names_the_records_too_far_from_the_clock(tmp_path: Path) -> None:
    limits = {"timestamp_before_max_ms": 1_000_000, "timestamp_after_max_ms": 1_000_000}
    broker = LeadingBroker(tmp_path, log_config=limits)
    now_ms = SystemClock.wall_ms()
    times = [now_ms, now_ms + 9_000_000, now_ms - 9_000_000, now_ms]
    records = encode_batch([Record(i, time_ms, b"k", b"v") for i, time_ms in enumerate(times)])
    answer = broker.put(bytearray(records))
    (read,) = await answer.partitions()
    assert read.error_code == E.INVALID_TIMESTAMP
    assert [index for index, _ in read.record_errors] == [1, 2]


@pytest.mark.parametrize("count", [3, 2_000])
async def test_produce_with_full_validation_refuses_undecodable_records(
    tmp_path: Path, count: int
) -> None:
    broker = LeadingBroker(tmp_path, log_config={"record_validation": RecordCheck.FULL})
    good = keyed(*[None] * count)
    assert await broker.put(good[:]).errors() == {0: E.NONE}
    good[61] = 0x7F  # the length of the first record
    rewrite_crc(good)
    assert await broker.put(good).errors() == {0: E.INVALID_RECORD}


# -- repeated batches


@pytest.mark.parametrize(
    "change",
    [
        {"timestamp_after_max_ms": 0, "timestamp_before_max_ms": 0},  # as after a jump of the clock
        {"max_message_bytes": 10},
        {"segment_bytes": 10},
        {"is_compacted": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("acks", [1, -1])
async def test_produce_of_an_appended_batch_after_any_config_change_is_a_duplicate(
    tmp_path: Path, acks: int, change: dict[str, object]
) -> None:
    """A client that got no answer repeats the batch.

    Apache Kafka first checks the repeated batch against the changed config, and refuses it.
    """
    broker = LeadingBroker(tmp_path, replicas=(1, 2), min_insync_replicas=2)

    def batches(sequence: int) -> list[tuple[int, bytearray]]:
        record = Record(0, SystemClock.wall_ms() - 1000, None, b"v")
        data = encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)
        return [(0, bytearray(data))]

    sent, connection = batches(0), broker.connect()
    first = broker.put([(0, sent[0][1][:])], connection=connection, acks=acks)
    log = broker.log()
    log.config = dataclasses.replace(log.config, **change)  # type: ignore[arg-type]
    again = broker.put(sent, connection=connection, acks=acks)
    assert first.is_there == again.is_there == (acks == 1)
    broker.replicate()
    assert [(p.error_code, p.base_offset) for p in await again.partitions()] == [(E.NONE, 0)]
    fresh = broker.put(batches(1), connection=connection, acks=acks)
    assert (await fresh.errors())[0] != E.NONE
    assert log.log_end_offset == 1


@pytest.mark.parametrize("change", [{}, {"max_message_bytes": 10}, {"is_compacted": True}], ids=str)
async def test_produce_retry_to_a_former_leader_is_not_validated_by_that_broker(
    tmp_path: Path, change: dict[str, object]
) -> None:
    """A record error would say that the batch was not written, but the new leader may have it."""
    broker = LeadingBroker(tmp_path, replicas=(1, 2), min_insync_replicas=2)
    record = Record(0, SystemClock.wall_ms() - 1000, None, b"v")
    data = encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0)
    first = broker.put([(0, bytearray(data))])
    broker.resign()
    log = broker.log()
    log.config = dataclasses.replace(log.config, **change)  # type: ignore[arg-type]
    again = broker.put([(0, bytearray(data))])
    for put in (first, again):
        assert await put.errors() == {0: E.NOT_LEADER_OR_FOLLOWER}
