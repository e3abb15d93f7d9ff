"""Test the client's partitioner, sequence numbers, batches and addresses without a broker."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.client.cluster_view import parse_address
from oncelog.client.produce.accumulator import Accumulator, ProducerBatch
from oncelog.client.produce.partitioner import STICKY_BYTES, StickyPartitioner, murmur2
from oncelog.wire.errors import KafkaStorageError
from oncelog.wire.record_batch import HEADER_BYTES
from oncelog.wire.records import decode_batch

from .produce.filling import put


# Test vectors of Kafka's own UtilsTest, as signed numbers.
@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_equals_the_hash_of_the_java_client(data, signed):
    assert murmur2(data) == signed & 0xFFFFFFFF


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # kafka-python's schemas cause them
def test_murmur2_agrees_with_kafka_python():
    from kafka.partitioner.default import murmur2 as theirs

    for length in range(40):
        data = bytes((i * 37 + length) % 256 for i in range(length))
        assert murmur2(data) == theirs(data) & 0xFFFFFFFF


def test_records_without_a_key_share_a_partition_until_a_batch_is_full():
    chooser = StickyPartitioner()
    first = {chooser.choose(1024, 3) for _ in range(STICKY_BYTES // 1024)}
    assert len(first) == 1
    assert chooser.choose(1024, 3) not in first


def make(**options) -> Accumulator:
    defaults = {"batch_bytes": 250, "linger_ms": 5, "delivery_timeout_ms": 1000}
    return Accumulator(**{**defaults, **options})


def fill(batches: Accumulator, count: int, now_ms: int = 0) -> None:
    for i in range(count):
        put(batches, b"x" * 150, timestamp=i, now_ms=now_ms)


def number(taken: list[ProducerBatch], sequence: int) -> ProducerBatch:
    (batch,) = taken
    if batch.base_sequence < 0:
        batch.base_sequence = sequence
    return batch


def test_batch_is_sent_when_full_or_after_its_linger():
    batches = make()
    fill(batches, 1)
    assert batches.take(4) == []
    assert batches.next_ready_ms(4) == 1
    assert batches.next_ready_ms(4, is_flushing=True) == 0
    assert batches.take(4, is_flushing=True)
    fill(batches, 2)
    assert len(batches.take(4)) == 1, "a second batch has begun: the first is full"


def test_records_of_a_batch_have_offset_deltas_from_zero():
    batches = make(batch_bytes=10_000)
    fill(batches, 4)
    (batch,) = batches.take(100)
    assert [r.offset for r in decode_batch(batch.builder.build())] == [0, 1, 2, 3]


def test_partition_has_at_most_five_batches_in_flight():
    batches = make()
    fill(batches, 9)
    assert [len(batches.take(100)) for _ in range(7)] == [1, 1, 1, 1, 1, 0, 0]


def test_batch_that_is_retried_is_sent_before_later_batches():
    batches = make()
    fill(batches, 6)
    sent = [number(batches.take(100), i) for i in range(3)]
    batches.retry(sent[1], 100, 0)
    assert batches.take(100) == [], "in flight are 0 and 2: nothing leaves before they are decided"
    batches.retry(sent[2], 100, 0)
    batches.finish(sent[0])
    again = number(batches.take(100), -1)
    assert again is sent[1]
    assert batches.take(100) == []
    batches.finish(again)
    assert number(batches.take(100), -1) is sent[2]


def test_batch_that_expires_raises_the_error_of_its_last_attempt():
    batches = make()
    fill(batches, 1)
    batch = number(batches.take(100), 0)
    assert batches.obstacle is None
    batch.problem = KafkaStorageError("no space left")
    batches.retry(batch, 100, 0)
    assert batches.obstacle is batch.problem
    told = str(batches.too_late(batches.expire(2000)))
    assert "not acknowledged within 1000 ms; the last answer: " in told
    assert "no space left" in told
    assert batches.obstacle is None


def test_flush_waits_for_the_backoff_of_a_retry():
    """During the backoff the sender sleeps, instead of waking every 2 ms for the flush."""
    batches = make()
    fill(batches, 1)
    batches.retry(number(batches.take(100), 0), 200, 0)
    assert batches.next_ready_ms(150, is_flushing=True) == 50
    assert batches.take(199, is_flushing=True) == []
    assert batches.take(200, is_flushing=True)


def test_expired_batch_counts_as_in_flight_until_its_request_ends():
    batches = make(delivery_timeout_ms=50)
    fill(batches, 1, now_ms=0)
    first = number(batches.take(40), 0)
    fill(batches, 1, now_ms=5)
    second = number(batches.take(50), 1)
    fill(batches, 1, now_ms=49)
    batches.retry(first, 50, 0)
    assert batches.expire(60) == [second, first]
    assert second.is_given_up and batches.has_in_flight
    assert batches.unfinished_bytes == HEADER_BYTES + 159
    batches.finish(second)
    assert not batches.has_in_flight and batches
    assert batches.unfinished_bytes == HEADER_BYTES + 159


def test_renumbering_begins_with_the_refused_batch():
    batches = make()
    fill(batches, 4)
    sent = [number(batches.take(100), i) for i in range(4)]
    for batch in sent:
        batches.retry(batch, 100, 0)
    batches.renumber(("t", 0), sent[2])
    assert [b.base_sequence for b in sent] == [0, 1, -1, -1]


@given(st.lists(st.sampled_from(["add", "take", "ok", "retry"]), max_size=60))
def test_batches_complete_in_the_order_of_their_sequence_numbers_under_random_retries(steps):
    batches, next_sequence, decided, flying = make(), 0, [], []
    for now, step in enumerate(steps, 100):
        if step == "add":
            fill(batches, 1, now_ms=0)
        elif step == "take":
            for batch in batches.take(now):
                if batch.base_sequence < 0:
                    batch.base_sequence, next_sequence = next_sequence, next_sequence + 1
                flying.append(batch)
        elif flying and step == "ok":
            batch = min(flying, key=lambda b: b.base_sequence)
            if batches.is_oldest_in_flight(batch):
                flying.remove(batch)
                batches.finish(batch)
                decided.append(batch.base_sequence)
        elif flying and step == "retry":
            batch = flying.pop()
            batches.retry(batch, now, 0)
    assert decided == sorted(decided)
    assert len(flying) <= 5


@pytest.mark.parametrize("text", ["", "host", "host:", "host:0", "host:70000", "host:x"])
def test_bootstrap_address_of_a_malformed_text_is_refused(text):
    with pytest.raises(ValueError, match="address"):
        parse_address(text)


def test_bootstrap_address_is_parsed_with_its_port():
    assert parse_address(" localhost:9092") == ("localhost", 9092)
    assert parse_address("[::1]:9092") == ("::1", 9092)
