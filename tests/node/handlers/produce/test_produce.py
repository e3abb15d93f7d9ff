"""What a produce is answered: a partition for each batch, in the order of the request."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from oncelog.node.clock import SystemClock
from oncelog.node.handlers.produce import record_checks
from oncelog.node.handlers.produce.record_checks import AT_ONCE_ITEMS_MAX
from oncelog.node.partitions import batch_contents
from oncelog.wire.compression import ZSTD
from oncelog.wire.errors import ErrorCode
from oncelog.wire.record_batch import BatchHeader, rewrite_crc
from oncelog.wire.record_walk import NAMED_RECORDS_MAX
from oncelog.wire.records import Record, encode_batch

from ...leading_broker import LeadingBroker, batch

E = ErrorCode
Test = Callable[[LeadingBroker], Awaitable[None]]


def run(directory: Path, test: Test, **options: object) -> None:
    async def make() -> None:
        await test(LeadingBroker(directory, **options))  # type: ignore[arg-type]

    asyncio.run(make())


def plain() -> bytearray:
    return batch(-1, producer_id=-1, epoch=-1, transactional=False)


@pytest.mark.parametrize("ends_well", [True, False])
async def test_each_batch_of_a_partition_that_is_named_twice_is_answered_with_what_became_of_it(
    tmp_path: Path, ends_well: bool
) -> None:
    """Kafka appends the last one only and answers once."""
    broker = LeadingBroker(tmp_path, partitions=2, replicas=(1, 2), min_insync_replicas=2)
    batches = [(0, plain()), (1, plain()), (0, plain()), (0, plain()[:-1])]
    answer = broker.produce(broker.connect(), batches, transactional_id=None)
    assert not answer.is_there
    broker.replicate(1)
    broker.replicate(0, up_to=1)
    assert not answer.is_there, "the second batch is not committed"
    if ends_well:
        broker.replicate(0)
    else:
        broker.resign(0)
    (topic,) = (await answer.value()).topics
    found = [(p.index, p.error_code, p.base_offset) for p in topic.partitions]
    lost = E.NOT_LEADER_OR_FOLLOWER
    of_0 = [(0, E.NONE, 0), (0, E.NONE, 1)] if ends_well else [(0, lost, -1), (0, lost, -1)]
    assert found == [of_0[0], (1, E.NONE, 0), of_0[1], (0, E.INVALID_RECORD, -1)]


# -- records that are looked at (compacted topics)


def keyed(*keys: bytes | None, compression: int = 0, size: int = 1) -> bytearray:
    now_ms = SystemClock.wall_ms()
    records = [Record(i, now_ms, key, bytes(size)) for i, key in enumerate(keys)]
    return bytearray(encode_batch(records, compression=compression))


COMPACTED = {"log_config": {"is_compacted": True}}


@pytest.mark.parametrize("compression", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("count", [10, 20 * AT_ONCE_ITEMS_MAX])
async def test_the_records_at_fault_are_named(tmp_path: Path, count: int, compression: int) -> None:
    """KIP-467: a producer fails these, and tells the others that they were in bad company."""
    broker = LeadingBroker(tmp_path, **COMPACTED)
    records = keyed(*(None if n % 5 == 3 else b"k" for n in range(count)), compression=compression)
    answer = broker.produce(broker.connect(), {0: records}, transactional_id=None)
    ((read,),) = (topic.partitions for topic in (await answer.value()).topics)
    assert read.error_code == E.INVALID_RECORD
    assert [index for index, _ in read.record_errors] == list(range(3, count, 5))
    (reason,) = {reason for _, reason in read.record_errors}
    assert reason == "Compacted topic cannot accept message without key in topic partition t-0"
    assert f"due to {count // 5} record errors in total" in read.error_message
    assert broker.log().log_end_offset == 0
    sound = keyed(*[b"k"] * count, compression=compression)
    answer = broker.produce(broker.connect(), {0: sound}, transactional_id=None)
    assert await answer.errors() == {0: E.NONE}


async def test_there_is_a_bound_on_how_many_records_are_named(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, **COMPACTED)
    records = keyed(*[None] * (NAMED_RECORDS_MAX + 5))
    answer = broker.produce(broker.connect(), {0: records}, transactional_id=None)
    (topic,) = (await answer.value()).topics
    assert len(topic.partitions[0].record_errors) == NAMED_RECORDS_MAX


async def test_one_record_that_unfolds_to_much_is_taken(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, **COMPACTED)
    for compression in range(1, 5):
        records = keyed(b"k", compression=compression, size=500_000)
        answer = broker.produce(broker.connect(), {0: records}, transactional_id=None)
        assert not answer.is_there
        assert await answer.errors() == {0: E.NONE}


async def test_many_records_keep_their_connection_and_nobody_else(tmp_path: Path) -> None:
    broker = LeadingBroker(tmp_path, partitions=2, **COMPACTED)
    connection = broker.connect()
    many = keyed(*[b"k"] * 40_000, compression=4)
    first = broker.produce(connection, {0: many}, transactional_id=None)
    second = broker.produce(connection, {0: keyed(b"k")}, transactional_id=None)
    of_another = broker.produce(broker.connect(), {1: keyed(b"k")}, transactional_id=None)
    assert of_another.is_there
    turns = 0
    while not first.is_there:
        assert not second.is_there
        turns += 1
        await asyncio.sleep(0)
    assert turns > 2, "other requests had their turns"
    assert await second.errors() == {0: E.NONE}
    assert [entry[0] for entry in broker.contents()] == [0, 40_000]


async def test_records_that_nobody_waits_for_are_looked_at_no_further(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that times out and sends them again would make the work grow for ever."""
    begun = []

    async def contents(batch: memoryview, header: BatchHeader) -> bytes:
        begun.append(header)
        return await batch_contents.contents(batch, header)

    monkeypatch.setattr(record_checks, "contents", contents)
    broker = LeadingBroker(tmp_path, **COMPACTED)
    connection = broker.connect()
    many = keyed(*[b"k"] * 40_000)
    answer = broker.produce(connection, [(0, many[:]) for _ in range(5)], transactional_id=None)
    while not begun:
        await asyncio.sleep(0)
    answer.abandon()
    while connection.produce_line is not None:
        await asyncio.sleep(0)
    assert len(begun) == 1
    assert broker.log().log_end_offset == 0


async def test_a_transactional_batch_of_many_records_is_looked_at_before_the_coordinator_is_asked(
    tmp_path: Path,
) -> None:
    broker = LeadingBroker(tmp_path, **COMPACTED)
    broker.verifier.hold = True
    connection = broker.connect()
    first = broker.produce(connection, {0: batch(0, count=5_000)})
    second = broker.produce(connection, {0: batch(5_000, count=5_000)})
    while not broker.verifier.questions:
        await asyncio.sleep(0)
    assert not first.is_there
    broker.verifier.hold = False
    broker.verifier.release()
    assert await first.errors() == await second.errors() == {0: E.NONE}
    assert broker.log().log_end_offset == 10_000


@pytest.mark.parametrize(("batches", "headers"), [(1, 15_000), (100, 300)])
async def test_few_records_with_many_headers_are_looked_at_in_slices(
    tmp_path: Path, batches: int, headers: int
) -> None:
    """At once they kept the loop for seconds: each batch unfolds to 32 kB of headers."""
    one = encode_batch([Record(0, 0, b"k", None, (("", None),) * headers)], compression=ZSTD)
    broker = LeadingBroker(tmp_path, **COMPACTED)
    wanted = [(0, bytearray(one)) for _ in range(batches)]
    answer = broker.produce(broker.connect(), wanted, transactional_id=None)
    assert not answer.is_there
    assert await answer.errors() == {0: E.NONE}
    assert broker.log().log_end_offset == batches


async def test_the_records_of_a_few_batches_out_of_time_are_named(tmp_path: Path) -> None:
    """Of a request with thousands of them, that takes too long."""
    one = encode_batch([Record(i, 0, b"k", None) for i in range(100)])
    broker = LeadingBroker(tmp_path, log_config={"timestamp_before_max_ms": 1000000})
    wanted = [(0, bytearray(one)) for _ in range(4)]
    answer = broker.produce(broker.connect(), wanted, transactional_id=None)
    (topic,) = (await answer.value()).topics
    assert {each.error_code for each in topic.partitions} == {E.INVALID_TIMESTAMP}
    assert [len(each.record_errors) for each in topic.partitions] == [100, 100, 0, 0]


def test_the_records_too_far_from_the_clock_are_named(tmp_path: Path) -> None:
    async def test(broker: LeadingBroker) -> None:
        now_ms = SystemClock.wall_ms()
        times = [now_ms, now_ms + 9_000_000, now_ms - 9_000_000, now_ms]
        records = encode_batch([Record(i, time_ms, b"k", b"v") for i, time_ms in enumerate(times)])
        answer = broker.produce(broker.connect(), {0: bytearray(records)}, transactional_id=None)
        (topic,) = (await answer.value()).topics
        assert topic.partitions[0].error_code == E.INVALID_TIMESTAMP
        assert [index for index, _ in topic.partitions[0].record_errors] == [1, 2]

    limits = {"timestamp_before_max_ms": 1_000_000, "timestamp_after_max_ms": 1_000_000}
    run(tmp_path, test, log_config=limits)


@pytest.mark.parametrize("count", [3, 2_000])
async def test_full_validation_refuses_records_that_cannot_be_read(
    tmp_path: Path, count: int
) -> None:
    broker = LeadingBroker(tmp_path, log_config={"validates_every_record": True})
    good = keyed(*[None] * count)
    answer = broker.produce(broker.connect(), {0: good[:]}, transactional_id=None)
    assert await answer.errors() == {0: E.NONE}
    good[61] = 0x7F  # the length of the first record
    rewrite_crc(good)
    answer = broker.produce(broker.connect(), {0: good}, transactional_id=None)
    assert await answer.errors() == {0: E.INVALID_RECORD}


# -- a batch that comes again


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
async def test_a_batch_that_was_appended_is_a_duplicate_whatever_has_changed_since(
    tmp_path: Path, acks: int, change: dict[str, object]
) -> None:
    """Its first answer was lost. Kafka refuses it, and it stands in the log nevertheless."""
    broker = LeadingBroker(tmp_path, replicas=(1, 2), min_insync_replicas=2)

    def batches(sequence: int) -> list[tuple[int, bytearray]]:
        record = Record(0, SystemClock.wall_ms() - 1000, None, b"v")
        data = encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)
        return [(0, bytearray(data))]

    sent, connection = batches(0), broker.connect()
    first = broker.produce(connection, [(0, sent[0][1][:])], transactional_id=None, acks=acks)
    log = broker.log()
    log.config = dataclasses.replace(log.config, **change)  # type: ignore[arg-type]
    again = broker.produce(connection, sent, transactional_id=None, acks=acks)
    assert first.is_there == again.is_there == (acks == 1)
    broker.replicate()
    (topic,) = (await again.value()).topics
    assert [(p.error_code, p.base_offset) for p in topic.partitions] == [(E.NONE, 0)]
    fresh = broker.produce(connection, batches(1), transactional_id=None, acks=acks)
    assert (await fresh.errors())[0] != E.NONE
    assert log.log_end_offset == 1
