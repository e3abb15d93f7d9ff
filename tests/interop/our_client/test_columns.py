"""Test sending and reading columns of records on oncelog and on Apache Kafka."""

import asyncio
from typing import Any

import pytest

from oncelog.client import BlockingConsumer, BlockingProducer, Consumer, Producer, RecordRange
from oncelog.wire.errors import KafkaError, RecordListTooLarge

from ...present import present
from ..client_peers import QUICK, TIMEOUT_S, new_topic, read_to_end

pytestmark = pytest.mark.cluster
COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("compression", COMPRESSIONS)
async def test_records_sent_in_columns_are_read_back_equal(bootstrap, compression):
    topic = await new_topic(bootstrap, 3, retention_ms="-1")  # the records are years old
    values = [b"%06d" % i * (1 + i % 50) for i in range(5_000)]
    keys = [b"%d" % (i % 100) if i % 3 else None for i in range(5_000)]
    headers = [(("n", b"%d" % i),) if i % 5 == 0 else () for i in range(5_000)]
    times = [1_600_000_000_000 + 10 * i for i in range(5_000)]
    settings = {**QUICK, "batch_size": 50_000, "compression_type": compression}
    async with Producer(bootstrap, **settings) as producer:
        deliveries = await producer.send_many(
            topic, values, keys=keys, headers=headers, timestamp_ms=times
        )
        ranges = await deliveries
        assert sum(r.record_count for r in ranges) == deliveries.count == 5_000
    expected = sorted(zip(values, keys, headers, times, strict=True))
    rows = await read_to_end(bootstrap, topic)
    assert sorted((r.value, r.key, r.headers, r.timestamp) for r in rows) == expected
    found = []
    async with Consumer(bootstrap, **QUICK) as consumer, asyncio.timeout(TIMEOUT_S):
        consumer.assign({(topic, p): 0 for p in range(3)})
        while len(found) < 5_000:
            for c in await consumer.poll_columns(500):
                named = c.headers or [()] * len(c.values)
                found += zip(c.values, c.keys, named, c.timestamps, strict=True)
    assert sorted(found) == expected


async def test_transactions_of_columnar_records_are_read_whole_or_not_at_all(bootstrap):
    topic = await new_topic(bootstrap, 2)
    async with Producer(bootstrap, transactional_id=topic, **QUICK) as producer:
        await producer.init_transactions()
        sent: Any = None
        for number in range(4):
            await producer.begin_transaction()
            values = [b"%d" % number] * 2_000
            for partition in range(2):
                sent = await producer.send_many(topic, values, partition=partition)
                if number % 2:
                    await sent  # otherwise the abort could precede all of the records
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
                assert sent.done() and sent.result()[0].partition == 1
    async with (
        Consumer(bootstrap, isolation_level="read_committed", **QUICK) as consumer,
        asyncio.timeout(TIMEOUT_S),
    ):
        consumer.assign({(topic, p): 0 for p in range(2)})
        counts: dict[bytes, int] = dict.fromkeys((b"0", b"2"), 0)
        while sum(counts.values()) < 8_000:
            for columns in await consumer.poll_columns(500, max_records=100):
                for value in columns.values:
                    counts[present(value)] += 1
        assert counts == {b"0": 4_000, b"2": 4_000}


async def test_send_many_with_one_invalid_record_sends_no_record(bootstrap):
    topic = await new_topic(bootstrap, 1)
    async with Producer(bootstrap, **QUICK) as producer:
        with pytest.raises(RecordListTooLarge, match=r"max\.request\.size"):
            await producer.send_many(topic, [b"1", bytes(2 << 20)])
        with pytest.raises(KafkaError, match=r"partitions 0\.\.0"):
            await producer.send_many(topic, [b"1", b"2"], partition=[0, 1])
        with pytest.raises(TypeError, match="not str"):
            await producer.send_many(topic, ["1"])
        with pytest.raises(ValueError, match="columns of 2 and 1"):
            await producer.send_many(topic, [b"1", b"2"], keys=[b"1"])
        assert await (await producer.send_many(topic, [])) == []
    assert await read_to_end(bootstrap, topic) == []


def test_blocking_send_many_larger_than_buffer_memory_sends_all_records(bootstrap):
    topic = asyncio.run(new_topic(bootstrap, 1))
    values = [b"%04d" % i * 250 for i in range(4_000)]  # 4 MB
    settings = {**QUICK, "buffer_memory": 300_000, "batch_size": 100_000}
    with BlockingProducer(bootstrap, **settings) as producer:
        deliveries = producer.send_many(topic, values)
        producer.flush()
        ranges = deliveries.result()
        assert [type(each) for each in ranges] == [RecordRange] * len(ranges)
        assert [r.first_offset for r in ranges] == [
            sum(r.record_count for r in ranges[:i]) for i in range(len(ranges))
        ]
    with BlockingConsumer(bootstrap, **QUICK) as consumer:
        consumer.assign({(topic, 0): 0})
        found = []
        while len(found) < 4_000:
            for columns in consumer.poll_columns(1_000):
                assert columns.offsets == range(len(found), len(found) + len(columns.values))
                found += columns.values
    assert found == values
