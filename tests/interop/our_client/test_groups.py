"""Test static members and leader epochs with oncelog's client, on oncelog and Apache Kafka."""

import asyncio
import uuid

import pytest

from oncelog.client import Admin, Consumer, Producer
from oncelog.client.failures import LogTruncated
from oncelog.deploy.cluster.local_cluster import Cluster
from oncelog.wire.errors import ErrorCode, KafkaError

from ..client_peers import QUICK, TIMEOUT_S, new_topic

pytestmark = pytest.mark.cluster
GONE_ON = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


async def until_shared(partitions: int, *consumers: Consumer) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while sum(len(c.assignment) for c in consumers) < partitions or not all(
            c.assignment for c in consumers
        ):
            await asyncio.gather(*(c.poll(50) for c in consumers))


async def test_static_member_that_restarts_gets_its_partitions_back_without_a_rebalance(bootstrap):
    topic = await new_topic(bootstrap, 4)
    settings = {**QUICK, "group_id": topic, "heartbeat_interval_ms": 100}
    revoked: list[object] = []
    async with Consumer(bootstrap, group_instance_id="one", **settings) as stays:
        stays.subscribe([topic], on_revoked=revoked.append)
        async with Consumer(bootstrap, group_instance_id="two", **settings) as goes:
            goes.subscribe([topic])
            await until_shared(4, stays, goes)
            await stays.poll(0)  # of the present group
            had, revoked[:] = goes.assignment, []
            generation = stays.group_metadata().generation_id
        async with Consumer(bootstrap, group_instance_id="two", **settings) as back:
            back.subscribe([topic])
            await until_shared(4, stays, back)
            assert back.assignment == had
            for _ in range(5):
                await stays.poll(100)
            assert stays.group_metadata().generation_id == generation
            assert revoked == []


async def test_static_member_with_a_duplicate_instance_id_fences_the_first(bootstrap):
    topic = await new_topic(bootstrap, 1)
    settings = {**QUICK, "group_id": topic, "heartbeat_interval_ms": 100}
    async with Consumer(bootstrap, group_instance_id="one", **settings) as first:
        first.subscribe([topic])
        await until_shared(1, first)
        async with Consumer(bootstrap, group_instance_id="one", **settings) as second:
            second.subscribe([topic])
            await until_shared(1, second)
            with pytest.raises(KafkaError) as caught:
                async with asyncio.timeout(TIMEOUT_S):
                    while True:
                        await first.poll(100)
            assert caught.value.code is ErrorCode.FENCED_INSTANCE_ID
            assert not caught.value.retriable
            with pytest.raises(KafkaError):
                await first.commit({(topic, 0): 1})
            await second.commit({(topic, 0): 1})


async def test_commit_of_a_member_replaced_after_its_max_poll_interval_is_refused(bootstrap):
    """The member was too slow, and another member has read its records since.

    An offset commit without generation and member id, as of a client before KIP-447, would be
    accepted. The records would then count twice.
    """
    topic = await new_topic(bootstrap, 1)
    settings = {
        **QUICK,
        "group_id": topic,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    slow = Consumer(bootstrap, max_poll_interval_ms=1_000, heartbeat_interval_ms=100, **settings)
    quick = Consumer(bootstrap, **settings)
    producer = Producer(bootstrap, transactional_id=topic, **QUICK)
    async with slow, quick, producer, asyncio.timeout(TIMEOUT_S):
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(topic, b"x")
        await producer.commit_transaction()
        slow.subscribe([topic])
        quick.subscribe([topic])
        while not await slow.poll(100):
            pass
        while not await quick.poll(100):
            pass
        for reader in (slow, quick):
            await producer.begin_transaction()
            sending = producer.send_offsets_to_transaction({(topic, 0): 1}, reader.group_metadata())
            if reader is slow:
                with pytest.raises(KafkaError) as caught:
                    await sending
                assert caught.value.code in GONE_ON
                await producer.abort_transaction()
            else:
                await sending
                await producer.commit_transaction()
        await quick.close()  # the group is empty now
        with pytest.raises(KafkaError) as caught:
            await slow.commit({(topic, 0): 0})
        assert caught.value.code in GONE_ON
        assert (await slow.committed([(topic, 0)]))[topic, 0].offset == 1


async def test_commit_in_the_on_revoked_callback_is_accepted_for_the_revoked_partitions(bootstrap):
    """In a cooperative rebalance no member gets revoked partitions before their owner rejoins."""
    topic = await new_topic(bootstrap, 2)
    settings = {
        **QUICK,
        "group_id": topic,
        "heartbeat_interval_ms": 100,
        "partition_assignment_strategy": ("cooperative-sticky",),
    }
    first, second = Consumer(bootstrap, **settings), Consumer(bootstrap, **settings)
    producer = Producer(bootstrap, transactional_id=topic, **QUICK)
    revoked = []

    async def on_revoked(partitions):
        await producer.begin_transaction()
        offsets = dict.fromkeys(partitions, 7)
        await producer.send_offsets_to_transaction(offsets, first.group_metadata())
        await producer.commit_transaction()
        revoked.extend(partitions)

    async with producer, second, first, asyncio.timeout(TIMEOUT_S):
        await producer.init_transactions()
        first.subscribe([topic], on_revoked=on_revoked)
        await until_shared(2, first)
        second.subscribe([topic])
        await until_shared(2, first, second)
        assert len(revoked) == 1
        assert (await second.committed(revoked))[revoked[0]].offset == 7


async def test_static_member_polling_after_max_poll_interval_keeps_partitions_within_its_session(
    bootstrap,
):
    topic = await new_topic(bootstrap, 1)
    settings = {**QUICK, "group_id": topic, "heartbeat_interval_ms": 100}
    lost: list[object] = []
    async with Consumer(
        bootstrap, group_instance_id="one", max_poll_interval_ms=300, **settings
    ) as slow:
        slow.subscribe([topic], on_lost=lost.append)
        await until_shared(1, slow)
        await slow.poll(0)
        before = slow.group_metadata()
        await asyncio.sleep(1.0)  # of a session of at least 6
        await slow.poll(0)
        await slow.commit({(topic, 0): 1})
        assert slow.group_metadata() == before and lost == []


async def test_committed_offset_has_a_leader_epoch_and_reading_continues_after_it(bootstrap):
    topic = await new_topic(bootstrap, 1)
    async with Producer(bootstrap, **QUICK) as producer:
        await (await producer.send_many(topic, [b"x"] * 10))
    settings = {**QUICK, "group_id": topic, "auto_offset_reset": "earliest"}
    async with Consumer(bootstrap, **settings) as consumer, asyncio.timeout(TIMEOUT_S):
        consumer.assign([(topic, 0)])
        while consumer.position(topic, 0) < 10:
            await consumer.poll(100)
        await consumer.commit()
        found = (await consumer.committed([(topic, 0)]))[(topic, 0)]
        assert (found.offset, found.leader_epoch >= 0) == (10, True)
    async with Consumer(bootstrap, **settings) as consumer, asyncio.timeout(TIMEOUT_S):
        consumer.assign([(topic, 0)])  # the epoch is checked with the leader first
        async with Producer(bootstrap, **QUICK) as producer:
            await (await producer.send(topic, b"after"))
        rows = []
        while not rows:
            rows = await consumer.poll(100)
        assert [r.offset for r in rows] == [10]


# --- a log whose end is before offsets already read


async def reach(consumer: Consumer, topic: str, end: int) -> list[bytes | None]:
    found = []
    async with asyncio.timeout(TIMEOUT_S):
        while consumer.position(topic, 0) < end:
            found += [r.value for r in await consumer.poll(100)]
    return found


@pytest.mark.in_turn
def test_consumer_after_an_unclean_election_detects_the_log_truncation():
    """Without leader epochs the consumer would continue at its offset and miss records."""

    async def main(cluster: Cluster):
        topic = f"t-{uuid.uuid4().hex[:12]}"
        configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
        async with Admin(cluster.bootstrap) as admin:
            await admin.create_topic(topic, partitions=1, replication_factor=2, configs=configs)

        async def aside(work, *arguments):
            return await asyncio.get_running_loop().run_in_executor(None, work, *arguments)

        async def write(value: bytes, count: int) -> None:
            async with Producer(cluster.bootstrap, **QUICK) as producer:
                await (await producer.send_many(topic, [value] * count, partition=0))

        await aside(cluster.wait_for_isr, topic, 2)
        async with Admin(cluster.bootstrap) as admin:
            (described,) = await admin.describe_topics([topic])
        leader = described.leader
        (follower,) = set(described.replicas) - {leader}
        async with (
            Consumer(cluster.bootstrap, auto_offset_reset="none", **QUICK) as strict,
            Consumer(cluster.bootstrap, auto_offset_reset="latest", **QUICK) as easy,
        ):
            for consumer in (strict, easy):
                consumer.assign({(topic, 0): 0})
            await write(b"both have it", 5)
            await aside(cluster.kill, follower)
            await write(b"the leader alone has it", 5)
            for consumer in (strict, easy):
                assert len(await reach(consumer, topic, 10)) == 10
            await aside(cluster.kill, leader)
            await aside(cluster.start, follower)
            await write(b"anew", 7)
            found = []
            async with asyncio.timeout(TIMEOUT_S):
                while len(found) < 7:
                    found += await easy.poll(200)
            assert [(r.offset, r.value) for r in found] == [(5 + i, b"anew") for i in range(7)]
            with pytest.raises(LogTruncated, match=r"read up to offset 10 .* up to 5 "):
                async with asyncio.timeout(TIMEOUT_S):
                    while True:
                        assert not await strict.poll(200)
            strict.seek(topic, 0, 5)
            assert await reach(strict, topic, 12) == [b"anew"] * 7

    with Cluster(nodes=3) as cluster:
        asyncio.run(main(cluster))
