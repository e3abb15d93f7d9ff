"""Directed scenarios about one log, with retries, unreplicated records, and damage."""

import asyncio
from functools import partial

from oncelog.client.consumer import Consumer
from oncelog.client.producer import Producer
from oncelog.proof.judge.history.schema import OpOutcome
from oncelog.wire.errors import KafkaError

from .context import Context, Scenario
from .old_producer import OldProducer
from .reader import Reader

COMPACTED, CLEANED_RECORDS, ROUNDS = "compacted", 40, 20
CLEANINGS_S = 4.0  # by then each node has cleaned
POWER_CUTS = 4  # one may happen to leave everything
LONE_ANSWER_MS = 700  # a lone leader must not answer acks=all; tests wait this long for an answer


async def lost_answer(context: Context) -> None:
    """A batch's answer is lost with its connection, and the producer repeats the batch."""
    topic = await context.topic("lost-answer")
    producer = OldProducer(context, topic)
    await producer.initialize(node_id=context.cluster.node_ids[0])
    assert await producer.send() == 0
    row, batch = producer.record(0)
    await producer.post(batch, 0, "first")
    await context.until(
        partial(context.log_end, topic), lambda end: end >= 2, "the batch in the log"
    )
    (await producer.to_leader(0, "first")).close()
    code, offset = await producer.deliver(batch, 0, "second")
    producer.note(row, code, offset, attempts=2)
    await context.probe("answering a batch sent again", topic, code == 0, f"error {code}")
    if code == 0:
        await producer.send()


async def lone_leader(context: Context) -> None:
    """A leader cut off from its followers gets a record with acks=all, is read from, and dies."""
    topic = await context.topic("lone-leader")
    producer = OldProducer(context, topic)
    await producer.initialize(node_id=context.cluster.node_ids[0])
    for _ in range(3):
        assert await producer.send() == 0
    reader = Reader(context, topic)
    await reader.read(3)
    leader = await context.leader(topic)
    await context.cluster.cut_off(leader)
    await producer.send(node_id=leader, timeout_ms=LONE_ANSWER_MS)
    await reader.poll(200)
    await context.cluster.kill(leader)
    await reader.close()
    await context.until(partial(context.leader, topic), lambda now: now != leader, "another leader")
    successor = OldProducer(context, topic)
    await successor.initialize(node_id=await context.leader(topic))
    for _ in range(2):
        await successor.send()
    context.dumps = True


async def two_producers(context: Context) -> None:
    """Two idempotent producers with ids from different brokers produce to one partition."""
    topic = await context.topic("two-producers")
    first, second = OldProducer(context, topic), OldProducer(context, topic)
    await first.initialize(node_id=context.cluster.node_ids[0])
    await second.initialize(node_id=context.cluster.node_ids[1])
    for producer in (first, second, first, second):
        await producer.send()


async def flipped_bit(context: Context) -> None:
    """A bit flips in each node's snapshots while that node is down. Then the producer continues."""
    topic = await context.topic("flipped-bit")
    producer = OldProducer(context, topic)
    await producer.initialize(node_id=context.cluster.node_ids[0])
    for _ in range(3):
        assert await producer.send() == 0
    for node_id in context.cluster.node_ids:
        await context.cluster.stop(node_id)
        assert context.cluster.flip_snapshots(node_id, topic, 0) > 0
        await context.cluster.start(node_id)
        await context.until_whole([topic])
    row, batch = producer.record(0)
    try:
        code, offset = await producer.deliver(batch, 0)
    except KafkaError as problem:
        code, offset = problem.number, -1
        context.recorder.send_ended(row, OpOutcome.INFO)
    else:
        producer.note(row, code, offset)
    await context.probe("going on after restarts", topic, code == 0, f"error {code}")
    context.dumps = True


async def power_cut(context: Context) -> None:
    """All nodes lose power together. The topic has flush.messages=1, so no record may be lost."""
    topic = await context.topic("power-cut", flush_messages="1")
    for _ in range(POWER_CUTS):
        producer = OldProducer(context, topic)
        await producer.initialize(node_id=context.cluster.node_ids[0])
        for _ in range(10):
            assert await producer.send() == 0
        await context.cluster.cut_power()
        await context.cluster.heal()
        await context.until_whole([topic])


async def removed_key(context: Context) -> None:
    """A key is removed from a recreated compacted topic, and the nodes are killed.

    The random simulation rarely kills a node before it has compacted another log.
    """
    topic = await context.topic("plain")
    plain = OldProducer(context, topic)
    await plain.initialize(node_id=context.cluster.node_ids[0])
    assert await plain.send() == 0
    reader = Reader(context, topic)
    await reader.read(1)
    await reader.close()
    await _compacted(context)
    async with Producer(context.cluster.bootstrap) as producer:
        for number in range(CLEANED_RECORDS):
            await (await producer.send(COMPACTED, b"old", key=b"%d" % (number % 3)))
    is_cleaned = partial(_values, context)
    await context.until(is_cleaned, lambda found: len(found) < CLEANED_RECORDS, "a cleaning")
    await asyncio.sleep(CLEANINGS_S)
    await context.admin.delete_topics([COMPACTED])
    await _compacted(context)
    async with Producer(context.cluster.bootstrap) as producer:
        for value in (b"secret", None):
            await (await producer.send(COMPACTED, value, key=b"removed"))
        for number in range(CLEANED_RECORDS // 2):
            await (await producer.send(COMPACTED, b"new", key=b"%d" % number))
    for node_id in context.cluster.node_ids:
        await context.cluster.kill(node_id)
    await context.cluster.heal()
    await context.until_whole([topic, COMPACTED])
    found: list[tuple[bytes | None, bytes | None]] = []
    for number in range(ROUNDS):
        async with Producer(context.cluster.bootstrap) as producer:
            for _ in range(10):
                await (await producer.send(COMPACTED, b"newer", key=b"%d" % number))
        found = await _values(context)
        if (b"removed", None) not in found:
            break
        await asyncio.sleep(1.0)
    is_gone = (b"removed", b"secret") not in found
    await context.probe("removing a key", topic, is_gone, "its value is there again")


async def _compacted(context: Context) -> None:
    configs = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "400",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "1000",
    }
    factor = len(context.cluster.node_ids)
    make = partial(
        context.admin.create_topic,
        COMPACTED,
        partitions=1,
        replication_factor=factor,
        configs=configs,
    )
    await make()
    await context.until_whole([COMPACTED])


async def _values(context: Context) -> list[tuple[bytes | None, bytes | None]]:
    """Return (key, value) of all records in the compacted topic."""
    end, found = await context.log_end(COMPACTED), list[tuple[bytes | None, bytes | None]]()
    async with Consumer(context.cluster.bootstrap) as consumer:
        consumer.assign({(COMPACTED, 0): 0})
        while consumer.position(COMPACTED, 0) < end:
            found += [(record.key, record.value) for record in await consumer.poll(100)]
    return found


SCENARIOS: dict[str, Scenario] = {
    "cleaned-key": removed_key,
    "power-cut": power_cut,
    "lost-answer": lost_answer,
    "lone-leader": lone_leader,
    "two-producers": two_producers,
    "flipped-bit": flipped_bit,
}
