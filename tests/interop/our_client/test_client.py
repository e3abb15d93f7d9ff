"""Test that oncelog's client behaves the same on oncelog and on Apache Kafka."""

import asyncio
import subprocess
import sys
import time
from typing import Any

import pytest

from oncelog.client import (
    Admin,
    BlockingAdmin,
    BlockingConsumer,
    BlockingProducer,
    Consumer,
    ConsumerRecord,
    OffsetAndMetadata,
    Producer,
    ProducerState,
    complete,
)
from oncelog.client.failures import CommitFailed, IllegalProducerState
from oncelog.wire.errors import (
    ErrorCode,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
    RecordListTooLarge,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)

from ...present import present
from ..client_peers import QUICK, TIMEOUT_S, new_topic, read_to_end, values

pytestmark = pytest.mark.cluster
V1, V2 = 1, 2
both_versions = pytest.mark.parametrize("version", [V1, V2])
COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]


def transactional(bootstrap: str, name: str, version: int = V2, **settings) -> Producer:
    settings = {**QUICK, "oncelog_transaction_version_max": version, **settings}
    return Producer(bootstrap, transactional_id=name, **settings)


# --- records


async def plain(bootstrap: str, compression: str) -> None:
    topic = await new_topic(bootstrap, 1)
    headers = (("a", b"1"), ("none", None), ("ä", b""))
    async with Producer(bootstrap, compression_type=compression, **QUICK) as producer:
        first = await producer.send(topic, b"x" * 5_000, key=b"k", headers=headers)
        await producer.send(topic, None, key=b"k", timestamp_ms=5)
        last = await producer.send(topic, b"", key=None)
        assert [(await first).offset, (await last).offset] == [0, 2]
        assert producer.state is ProducerState.READY
    rows = await read_to_end(bootstrap, topic)
    assert [(r.key, r.value) for r in rows] == [(b"k", b"x" * 5_000), (b"k", None), (None, b"")]
    assert rows[0].headers == headers
    assert rows[1].timestamp == 5
    assert abs(rows[0].timestamp - time.time() * 1000) < 60_000


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_record_sent_with_each_codec_is_read_back_equal(bootstrap, compression):
    asyncio.run(plain(bootstrap, compression))


async def test_producer_with_many_small_batches_keeps_order_and_duplicates_no_record(bootstrap):
    topic = await new_topic(bootstrap)
    async with Producer(bootstrap, batch_size=500, linger_ms=0, **QUICK) as producer:
        sent = [await producer.send(topic, b"%d" % i, key=b"%d" % (i % 7)) for i in range(3000)]
        await producer.flush()
        places = [delivery.result() for delivery in sent]
    rows = await read_to_end(bootstrap, topic)
    assert {(r.partition, r.offset): int(present(r.value)) for r in rows} == {
        (place.partition, place.offset): i for i, place in enumerate(places)
    }
    for key in range(7):
        of_key = [int(present(r.value)) for r in rows if r.key == b"%d" % key]
        assert of_key == list(range(key, 3000, 7))


async def test_producer_batch_refused_as_too_large_is_sent_in_parts(bootstrap):
    topic = await new_topic(bootstrap, 1, max_message_bytes="2000")
    async with Producer(bootstrap, batch_size=100_000, linger_ms=50, **QUICK) as producer:
        sent = [await producer.send(topic, b"%03d" % i * 100) for i in range(30)]
        too_large = await producer.send(topic, b"x" * 3_000)
        assert [(await delivery).offset for delivery in sent] == list(range(30))
        with pytest.raises(KafkaError) as caught:
            await too_large
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert (await (await producer.send(topic, b"after it"))).offset == 30
    assert len(await read_to_end(bootstrap, topic)) == 31


async def test_record_that_cannot_be_sent_and_transaction_without_an_id_raise_an_error(bootstrap):
    topic = await new_topic(bootstrap)
    async with Producer(bootstrap, max_block_ms=300, **QUICK) as producer:
        with pytest.raises(UnknownTopicOrPartition, match="no-such"):
            await producer.send("no-such-topic", b"")
        with pytest.raises(KafkaError, match=r"partitions 0\.\.2"):
            await producer.send(topic, b"", partition=3)
        with pytest.raises(RecordListTooLarge, match=r"max\.request\.size"):
            await producer.send(topic, bytes(2 << 20))
        with pytest.raises(IllegalProducerState, match=r"no transactional\.id"):
            await producer.begin_transaction()


# --- transactions


@both_versions
async def test_read_committed_consumer_gets_committed_records_and_no_aborted_records(
    bootstrap, version
):
    topic = await new_topic(bootstrap)
    async with transactional(bootstrap, topic, version) as producer:
        await producer.init_transactions()
        epochs = []
        for number in range(6):
            await producer.begin_transaction()
            for i in range(20):
                await producer.send(topic, b"%d" % number, key=b"%d" % i)
            if number % 2:
                await producer.flush()  # otherwise the abort could precede all of the records
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
            epochs.append(producer.identity.producer_epoch)
            assert producer.state is ProducerState.READY
    first = epochs[0]
    assert epochs == (list(range(first, first + 6)) if version == V2 else [first] * 6)
    assert await values(bootstrap, topic) == [b"0"] * 20 + [b"2"] * 20 + [b"4"] * 20
    assert len(await values(bootstrap, topic, committed=False)) == 120


@both_versions
async def test_abort_drops_records_that_were_not_sent_yet(bootstrap, version):
    topic = await new_topic(bootstrap)
    async with transactional(bootstrap, topic, version, linger_ms=0) as producer:
        await producer.init_transactions()
        for number in range(10):
            await producer.begin_transaction()
            delivery = await producer.send(topic, b"never")
            await asyncio.sleep(0.001 * number)
            await producer.abort_transaction()
            assert delivery.done()
            await producer.begin_transaction()
            await producer.send(topic, b"%d" % number)
            await producer.commit_transaction()
    assert await values(bootstrap, topic) == [b"%d" % i for i in range(10)]


@both_versions
async def test_transaction_after_empty_transactions_is_committed(bootstrap, version):
    topic = await new_topic(bootstrap)
    async with transactional(bootstrap, topic, version) as producer:
        await producer.init_transactions()
        for _ in range(3):
            await producer.begin_transaction()
            await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send(topic, b"one")
        await producer.commit_transaction()
    assert await values(bootstrap, topic) == [b"one"]


@both_versions
async def test_second_producer_of_a_transactional_id_fences_the_first(bootstrap, version):
    topic = await new_topic(bootstrap)
    async with transactional(bootstrap, topic, version) as zombie:
        await zombie.init_transactions()
        await zombie.begin_transaction()
        await (await zombie.send(topic, b"of the zombie"))
        async with transactional(bootstrap, topic, version) as heir:
            await heir.init_transactions()
            await heir.begin_transaction()
            await heir.send(topic, b"of the heir")
            await heir.commit_transaction()
        with pytest.raises(KafkaError) as caught:
            await zombie.commit_transaction()
        assert caught.value.code in (
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        )
        assert caught.value.fatal and not caught.value.abortable
        assert zombie.state is ProducerState.FATAL_ERROR
        with pytest.raises(KafkaError) as again:
            await zombie.begin_transaction()
        assert again.value is caught.value
    assert await values(bootstrap, topic) == [b"of the heir"]


@both_versions
async def test_transaction_aborted_by_its_timeout_cannot_be_committed(bootstrap, version):
    topic = await new_topic(bootstrap)
    async with transactional(bootstrap, topic, version, transaction_timeout_ms=500) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send(topic, b"too slow"))
        async with Admin(bootstrap) as admin, asyncio.timeout(TIMEOUT_S):
            while (await admin.transactions.describe(topic)).state == "Ongoing":
                await asyncio.sleep(0.1)
        with pytest.raises(KafkaError) as caught:
            await producer.commit_transaction()
        assert caught.value.fatal or caught.value.abortable
    assert await values(bootstrap, topic) == []


async def test_producer_calls_in_a_wrong_state_raise_an_explaining_error(bootstrap):
    topic = await new_topic(bootstrap)
    async with transactional(bootstrap, topic) as producer:
        with pytest.raises(IllegalProducerState, match="UNINITIALIZED"):
            await producer.begin_transaction()
        await producer.init_transactions()
        with pytest.raises(IllegalProducerState, match="needs a producer that is UNINIT"):
            await producer.init_transactions()
        with pytest.raises(IllegalProducerState, match="this one is READY"):
            await producer.send(topic, b"")
        await producer.begin_transaction()
        with pytest.raises(IllegalProducerState, match=r"two\.phase\.commit"):
            await producer.prepare()


# --- offsets in transactions


@both_versions
async def test_transactional_offsets_are_committed_only_with_their_transaction(bootstrap, version):
    topic = await new_topic(bootstrap)
    place = (topic, 0)
    async with (
        transactional(bootstrap, topic, version) as producer,
        Consumer(bootstrap, group_id=topic, **QUICK) as consumer,
    ):
        await producer.init_transactions()
        await producer.begin_transaction()
        metadata = OffsetAndMetadata(5, "five")
        await producer.send_offsets_to_transaction({place: metadata}, topic)
        await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({place: 9}, topic)
        await producer.abort_transaction()
        assert (await consumer.committed([place]))[place] == metadata


@both_versions
async def test_transactional_offsets_of_a_removed_group_member_are_refused(bootstrap, version):
    topic = await new_topic(bootstrap)
    async with transactional(bootstrap, topic, version) as producer:
        await producer.init_transactions()
        async with Consumer(bootstrap, group_id=topic, **QUICK) as consumer:
            consumer.subscribe([topic])
            await joined(consumer)
            zombie = consumer.group_metadata()
            assert zombie.generation_id > 0 and zombie.member_id
            await producer.begin_transaction()
            await producer.send_offsets_to_transaction({(topic, 0): 1}, zombie)
            await producer.commit_transaction()
        await producer.begin_transaction()
        await producer.send(topic, b"not without its offsets")
        with pytest.raises(KafkaError) as caught:
            await producer.send_offsets_to_transaction({(topic, 0): 2}, zombie)
        assert caught.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert caught.value.abortable and not caught.value.fatal
        assert producer.state is ProducerState.ABORTABLE_ERROR
        with pytest.raises(KafkaError):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send(topic, b"after it")
        await producer.commit_transaction()
    assert await values(bootstrap, topic) == [b"after it"]


async def joined(consumer: Consumer) -> list[ConsumerRecord]:
    rows: list[ConsumerRecord] = []
    async with asyncio.timeout(TIMEOUT_S):
        while not consumer.assignment:
            rows += await consumer.poll(50)
    return rows


# --- prepared transactions

ENDS = """
import asyncio, sys
from oncelog.client import complete
asyncio.run(complete(sys.argv[1], sys.argv[2], sys.argv[3] == "commit"))
"""


def end_in_another_process(bootstrap: str, token: str, direction: str) -> None:
    command = [sys.executable, "-c", ENDS, bootstrap, token, direction]
    subprocess.run(command, check=True, timeout=TIMEOUT_S)


@both_versions
async def test_prepared_transaction_stays_open_until_its_token_holder_ends_it(bootstrap, version):
    topic = await new_topic(bootstrap)
    tokens = []
    for number in range(2):
        async with transactional(
            bootstrap,
            f"{topic} {number}",
            version,
            transaction_two_phase_commit_enable=True,
            transaction_timeout_ms=500,
        ) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.send(topic, b"%d" % number)
            tokens.append(str(await producer.prepare()))
            with pytest.raises(IllegalProducerState, match="takes nothing more"):
                await producer.send(topic, b"late")
    await asyncio.sleep(1.5)  # three times the timeout, and a scan
    end_in_another_process(bootstrap, tokens[0], "commit")
    await complete(bootstrap, tokens[1], False)
    for _ in range(2):
        await complete(bootstrap, tokens[0], True)
        await complete(bootstrap, tokens[1], False)
    for token, commit in ((tokens[0], False), (tokens[1], True)):
        with pytest.raises(InvalidTxnState):
            await complete(bootstrap, token, commit)
    assert await values(bootstrap, topic) == [b"0"]


async def test_prepared_transaction_that_is_empty_or_ended_by_its_producer_completes(bootstrap):
    topic = await new_topic(bootstrap)
    async with transactional(
        bootstrap, topic, transaction_two_phase_commit_enable=True
    ) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        token = await producer.prepare()
        assert token.is_empty
        await complete(bootstrap, token, True)
        await producer.commit_transaction()
        for ends in (producer.commit_transaction, producer.abort_transaction):
            await producer.begin_transaction()
            await producer.send(topic, ends.__name__.encode())
            assert not (await producer.prepare()).is_empty
            await ends()
    assert await values(bootstrap, topic) == [b"commit_transaction"]


async def test_init_transactions_with_keep_prepared_keeps_or_raises_unsupported_version(
    bootstrap,
):
    topic = await new_topic(bootstrap)
    settings = {"transaction_two_phase_commit_enable": True}
    async with transactional(bootstrap, topic, **settings) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(topic, b"kept")
        token = await producer.prepare()
    async with transactional(bootstrap, topic, **settings) as producer:
        try:
            kept = await producer.init_transactions(keep_prepared_transaction=True)
        except UnsupportedVersion as problem:
            assert "complete(token)" in str(problem) and not problem.fatal
            assert producer.state is ProducerState.UNINITIALIZED
            await producer.complete(token, True)
            await producer.init_transactions()
        else:
            assert kept == token and producer.state is ProducerState.IN_TRANSACTION
            with pytest.raises(ProducerFenced):
                await complete(bootstrap, token, False)
            await producer.complete(str(token), True)
        await producer.begin_transaction()
        await producer.send(topic, b"next")
        await producer.commit_transaction()
    assert await values(bootstrap, topic) == [b"kept", b"next"]


# --- consumers


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_consumer_group_members_share_partitions_and_take_over_at_a_leave(
    bootstrap, strategy
):
    topic = await new_topic(bootstrap, 4)
    async with Producer(bootstrap, **QUICK) as producer:
        for i in range(400):
            await producer.send(topic, b"%d" % i, partition=i % 4)
    settings = {
        **QUICK,
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "partition_assignment_strategy": [strategy],
        "heartbeat_interval_ms": 100,
    }
    got: list[bytes] = []
    async with Consumer(bootstrap, **settings) as first:
        first.subscribe([topic])
        got += [present(r.value) for r in await joined(first)]
        assert len(first.assignment) == 4
        async with Consumer(bootstrap, **settings) as second:
            second.subscribe([topic])
            async with asyncio.timeout(TIMEOUT_S):
                while {len(first.assignment), len(second.assignment)} != {2}:
                    for records in await asyncio.gather(first.poll(50), second.poll(50)):
                        got += [present(r.value) for r in records]
            assert not set(first.assignment) & set(second.assignment)
        async with asyncio.timeout(TIMEOUT_S):
            while len(first.assignment) < 4 or len(got) < 400:
                got += [present(r.value) for r in await first.poll(50)]
    assert sorted(got, key=int) == [b"%d" % i for i in range(400)]


async def test_consumer_with_assigned_partitions_commits_seeks_and_pauses(bootstrap):
    topic = await new_topic(bootstrap, 2, retention_ms="-1")  # half of the records are years old
    async with Producer(bootstrap, **QUICK) as producer:
        for i in range(10):
            await producer.send(topic, b"%d" % i, partition=0, timestamp_ms=1_000 + i)
            await producer.send(topic, b"%d" % i, partition=1)
    one, other = (topic, 0), (topic, 1)
    settings = {**QUICK, "group_id": topic, "enable_auto_commit": False}
    async with Consumer(bootstrap, auto_offset_reset="earliest", **settings) as consumer:
        consumer.assign([one, other])
        consumer.pause(other)
        rows = await at_least(consumer, 4, max_records=4)
        assert [(r.partition, r.offset) for r in rows] == [(0, 0), (0, 1), (0, 2), (0, 3)]
        assert consumer.position(*one) == 4
        await consumer.commit()
        consumer.seek(*one, 8)
        assert [r.offset for r in await at_least(consumer, 2)] == [8, 9]
        consumer.resume(other)
        assert {r.partition for r in await at_least(consumer, 10)} == {1}
        assert await consumer.offsets_for_times({one: 1_003, other: 2**60}) == {
            one: (3, 1_003),
            other: None,
        }
        assert await consumer.beginning_offsets([one, other]) == {one: 0, other: 0}
        assert await consumer.end_offsets([one, other]) == {one: 10, other: 10}
    async with Consumer(bootstrap, **settings) as consumer:
        assert (await consumer.committed([one]))[one].offset == 4
        consumer.assign([one])
        assert [r.offset for r in await at_least(consumer, 6)] == list(range(4, 10))
        await consumer.seek_to_beginning()
        assert consumer.position(*one) == 0
        await consumer.seek_to_end()
        assert consumer.position(*one) == 10
    async with Consumer(bootstrap, auto_offset_reset="none", **QUICK) as consumer:
        consumer.assign({one: 99})
        with pytest.raises(KafkaError, match="no offset 99") as caught:
            await at_least(consumer, 1)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def at_least(consumer: Consumer, count: int, max_records: int | None = None):
    rows = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(rows) < count:
            rows += await consumer.poll(200, max_records)
    return rows


async def test_commit_of_a_removed_member_fails_and_the_member_rejoins(bootstrap):
    topic = await new_topic(bootstrap, 1)
    settings = {**QUICK, "group_id": topic, "enable_auto_commit": False}
    lost: list[object] = []
    async with Consumer(bootstrap, **settings) as consumer:
        consumer.subscribe([topic], on_lost=lost.extend)
        await joined(consumer)
        member = consumer.group_metadata().member_id
        async with Consumer(bootstrap, **settings) as other:
            # the group forgets the member, as after a session timeout
            requests: Any = other._require_group().requests
            requests.member_id = member
            await requests.leave()
        with pytest.raises(CommitFailed):
            await consumer.commit({(topic, 0): 1})
        await asyncio.wait_for(consumer.poll(100), TIMEOUT_S)
        async with asyncio.timeout(TIMEOUT_S):
            while not consumer.assignment:
                await consumer.poll(100)
        assert lost == [(topic, 0)]
        assert consumer.group_metadata().member_id != member
        await consumer.commit({(topic, 0): 1})


async def test_polled_batches_show_their_producer_ids_and_markers(bootstrap):
    topic = await new_topic(bootstrap, 1)
    async with transactional(bootstrap, topic) as producer:
        await producer.init_transactions()
        for ends in (producer.commit_transaction, producer.abort_transaction):
            await producer.begin_transaction()
            await (await producer.send(topic, b"x"))
            await ends()
        producer_id = producer.identity.producer_id
    async with Consumer(bootstrap, isolation_level="read_committed", **QUICK) as consumer:
        consumer.assign({(topic, 0): 0})
        found = []
        async with asyncio.timeout(TIMEOUT_S):
            while len(found) < 4:
                found += await consumer.poll_batches(200)
    shown = [(b.header.producer_id, b.header.is_control, b.is_aborted) for b in found]
    assert shown[:2] == [(producer_id, False, False), (producer_id, True, False)]
    assert shown[2] == (producer_id, False, True)
    assert found[3].header.is_control


# --- without an event loop


def test_blocking_clients_produce_consume_and_commit_a_transaction(bootstrap):
    with BlockingAdmin(bootstrap) as admin:
        topic = asyncio.run(new_topic(bootstrap, 2))
        assert len(admin.describe_topics([topic])) == 2
        settings = {**QUICK, "group_id": topic, "auto_offset_reset": "earliest"}
        with (
            BlockingProducer(bootstrap, transactional_id=topic, **QUICK) as producer,
            BlockingConsumer(bootstrap, isolation_level="read_committed", **settings) as consumer,
        ):
            producer.init_transactions()
            producer.begin_transaction()
            deliveries = [producer.send(topic, b"%d" % i, key=b"%d" % i) for i in range(500)]
            assert deliveries[7].result(TIMEOUT_S).topic == topic
            producer.commit_transaction()
            assert all(delivery.done() for delivery in deliveries)
            producer.begin_transaction()
            refused = producer.send(topic, bytes(2 << 20))
            with pytest.raises(RecordListTooLarge):
                producer.commit_transaction()
            with pytest.raises(RecordListTooLarge):
                refused.result(TIMEOUT_S)
            producer.abort_transaction()
            assigned: list[object] = []
            consumer.subscribe([topic], on_assigned=lambda ps: assigned.append(consumer.assignment))
            rows = []
            deadline = time.monotonic() + TIMEOUT_S
            while len(rows) < 500 and time.monotonic() < deadline:
                rows += consumer.poll(200)
            assert sorted(int(present(r.value)) for r in rows) == list(range(500))
            assert assigned == [[(topic, 0), (topic, 1)]]
            consumer.commit()
            producer.begin_transaction()
            offsets = {place: consumer.position(*place) for place in consumer.assignment}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
            producer.commit_transaction()
            found = admin.groups.committed(topic, list(offsets))
            assert {place: each.offset for place, each in found.items()} == offsets
