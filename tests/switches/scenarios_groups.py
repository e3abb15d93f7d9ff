"""Directed scenarios about consumer groups (KIP-848), with valid, outdated and fenced epochs."""

import asyncio
import contextlib

from oncelog.client.consumer import Consumer
from oncelog.wire.errors import ErrorCode, KafkaError

from .context import Context, Scenario
from .hand_made_member import HandMadeMember
from .old_producer import OldProducer
from .reader import Reader

GROUP = "team"
INTERVAL_S = 1.2  # between two assignments of a group at least
SESSIONS_S = 20  # three sessions of the simulation's brokers
NEW_TOPIC_S = 60  # a broker looks for the topics of a pattern at most every 10 s
LONE_ANSWER_MS = 700  # how long the test waits for an answer that a lone coordinator must not give


async def read_one(context: Context, topic: str) -> None:
    """Produce and read one record, since the judge accepts no history without polls."""
    producer, reader = OldProducer(context, topic), Reader(context, topic)
    await producer.initialize(node_id=context.cluster.node_ids[0])
    assert await producer.send() == 0
    await reader.read(1)
    await reader.close()


async def stale_epoch(context: Context) -> None:
    """A member commits with its old epoch, for a partition that another member got meanwhile."""
    first, _, given_since, before = await _shared(context, "stale-epoch")
    await asyncio.sleep(0.01)  # without this, no virtual time passes in between
    await first.commit(given_since, 0, before)


async def returned_partition(context: Context) -> None:
    """A member commits with its first epoch, for a partition that another member had meanwhile."""
    first, second, given_since, before = await _shared(context, "returned-partition")
    await second.leave()
    await context.until(first.heartbeat, lambda owned: owned == {0, 1}, "both partitions again")
    await asyncio.sleep(0.01)
    await first.commit(given_since, 0, before)


async def replaced_member(context: Context) -> None:
    """A static member commits again after another process has taken its place."""
    topic = await context.topic("replaced-member")
    await read_one(context, topic)
    first, second = (HandMadeMember(context, GROUP, topic, "one") for _ in range(2))
    await context.until(first.heartbeat, lambda owned: owned == {0}, "the partition")
    before = first.epoch
    assert await first.commit(0, 0, before) == ErrorCode.NONE
    await first.leave()
    await context.until(second.heartbeat, lambda owned: owned == {0}, "the place of the first one")
    await asyncio.sleep(0.01)
    await first.commit(0, 0, before)


async def silent_member(context: Context) -> None:
    """The coordinator dies, and a member without heartbeats loses its partitions."""
    first, _, _, _ = await _shared(context, "silent-member")
    dies = await first.coordinator()
    await context.cluster.kill(dies)
    await context.until(first.coordinator, lambda now: now != dies, "another coordinator")
    await _wait_for_all(first)
    await context.cluster.heal()
    await context.until_whole([first.topic])
    await _probe_all(context, first, "following a silent member")


async def hasty_member(context: Context) -> None:
    """A new member requests partitions before their owner learns that it must revoke them."""
    topic = await context.topic("hasty-member", partitions=2)
    await read_one(context, topic)
    first, second = (HandMadeMember(context, GROUP, topic) for _ in range(2))
    await context.until(first.heartbeat, lambda owned: owned == {0, 1}, "both partitions")
    for _ in range(2):
        await second.heartbeat()
        await asyncio.sleep(INTERVAL_S)
    await first.heartbeat()


async def departed_member(context: Context) -> None:
    """A member leaves, and the other one gets all its partitions."""
    first, second, _, _ = await _shared(context, "departed-member")
    await second.leave()
    await _wait_for_all(first)
    await _probe_all(context, first, "following a departed member")


async def _wait_for_all(member: HandMadeMember) -> None:
    """Send heartbeats until the member has both partitions, for at most SESSIONS_S seconds."""
    for _ in range(SESSIONS_S):
        with contextlib.suppress(KafkaError):
            await member.heartbeat()
        if member.owned == {0, 1}:
            break
        await asyncio.sleep(1)


async def _probe_all(context: Context, member: HandMadeMember, kind: str) -> None:
    await context.probe(kind, member.topic, member.owned == {0, 1}, f"{member.owned}")


async def late_topic(context: Context) -> None:
    """A member is subscribed to a pattern, and a matching topic is created later."""
    names = "late-topic-1", "late-topic-2"
    await read_one(context, await context.topic(names[0]))
    consumer = Consumer(context.cluster.bootstrap, group_id=GROUP, group_protocol="consumer")
    try:
        consumer.subscribe(pattern="late-topic-.*")
        await context.until(
            lambda: consumer.poll(100), lambda _: bool(consumer.assignment), "the first topic"
        )
        await context.topic(names[1])
        for _ in range(NEW_TOPIC_S):
            if len(consumer.assignment) == len(names):
                break
            await consumer.poll(1_000)
        found = sorted(topic for topic, _ in consumer.assignment)
        await context.probe("following a new topic", names[0], found == [*names], f"{found}")
    finally:
        await consumer.close()


async def _shared(context: Context, name: str) -> tuple[HandMadeMember, HandMadeMember, int, int]:
    """Let a second member take a partition of the first.

    Returns both members, the partition, and the first member's epoch before the change.
    """
    topic = await context.topic(name, partitions=2)
    await read_one(context, topic)
    first, second = (HandMadeMember(context, GROUP, topic) for _ in range(2))
    await context.until(first.heartbeat, lambda owned: owned == {0, 1}, "both partitions")
    before = first.epoch
    assert await first.commit(1, 0, before) == ErrorCode.NONE

    async def both() -> tuple[int, int]:
        await first.heartbeat()
        await second.heartbeat()
        return len(first.owned), len(second.owned)

    await context.until(both, lambda counts: counts == (1, 1), "a partition for each")
    (given_since,) = second.owned
    return first, second, given_since, before


async def lone_coordinator(context: Context) -> None:
    """Members join a coordinator without followers, which dies and is replaced."""
    topic = await context.topic("lone-coordinator")
    await read_one(context, topic)
    first = HandMadeMember(context, GROUP, topic)
    await context.until(first.heartbeat, lambda owned: owned == {0}, "the partition")
    await context.until_whole(["__consumer_offsets"])
    lone = await first.coordinator()
    await context.cluster.cut_off(lone)
    for _ in range(2):
        await asyncio.sleep(INTERVAL_S)
        joins = HandMadeMember(context, GROUP, topic)
        with contextlib.suppress(KafkaError):
            await joins.heartbeat(node_id=lone, timeout_ms=LONE_ANSWER_MS)
    await context.cluster.kill(lone)
    await context.until(first.coordinator, lambda now: now != lone, "another coordinator")
    last = HandMadeMember(context, GROUP, topic)
    await context.until(last.heartbeat, lambda _: last.epoch > 0, "an epoch of the next one")


SCENARIOS: dict[str, Scenario] = {
    "stale-epoch": stale_epoch,
    "returned-partition": returned_partition,
    "replaced-member": replaced_member,
    "silent-member": silent_member,
    "departed-member": departed_member,
    "hasty-member": hasty_member,
    "late-topic": late_topic,
    "lone-coordinator": lone_coordinator,
}
