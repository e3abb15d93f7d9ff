"""Directed scenarios about groups that change between the classic and the consumer protocol."""

import asyncio
import contextlib

from oncelog.wire.errors import ErrorCode, KafkaError

from .context import Context, Scenario
from .hand_made_classic_member import HandMadeClassicMember
from .hand_made_member import HandMadeMember
from .scenarios_groups import GROUP, read_one

DOWNGRADES = 16
FIRST_S, LATER_S = 0.0015, 0.0005  # when the coordinator dies, from when the last consumer leaves


async def former_generation(context: Context) -> None:
    """A classic member commits with an old generation, for a partition that a consumer has."""
    classic = await _alone(context, "former-generation")
    before = classic.generation
    assert await classic.commit(0, 0, before) == ErrorCode.NONE
    (given_since,) = (await _joined(context, classic)).owned
    await asyncio.sleep(0.01)  # without this, no virtual time passes in between
    await classic.commit(given_since, 0, before)


async def dead_in_downgrade(context: Context) -> None:
    """The last consumer leaves, and the coordinator dies while the group becomes a classic one."""
    classic = await _alone(context, "dead-in-downgrade")
    for number in range(DOWNGRADES):
        await context.until_whole(["__consumer_offsets"])
        consumer = await _joined(context, classic)
        dies = await classic.coordinator()
        leaving = asyncio.ensure_future(consumer.leave())
        await asyncio.sleep(FIRST_S + number * LATER_S)
        await context.cluster.kill(dies)
        with contextlib.suppress(KafkaError):
            await leaving
        await context.cluster.start(dies)
        await context.until(classic.goes_on, lambda owned: owned == {0, 1}, "both again")
    is_known = classic.forgotten == 0
    words = f"forgotten {classic.forgotten} times"
    await context.probe("remembering a classic member", classic.topic, is_known, words)


async def _alone(context: Context, name: str) -> HandMadeClassicMember:
    """Return the only member of a classic group, which has both partitions."""
    topic = await context.topic(name, partitions=2)
    await read_one(context, topic)
    classic = HandMadeClassicMember(context, GROUP, topic, 2)
    await context.until(classic.goes_on, lambda owned: owned == {0, 1}, "both partitions")
    return classic


async def _joined(context: Context, classic: HandMadeClassicMember) -> HandMadeMember:
    """Return a consumer member that has joined the classic group, and got one of two partitions."""
    consumer = HandMadeMember(context, GROUP, classic.topic)

    async def both() -> tuple[int, int]:
        await classic.goes_on()
        await consumer.heartbeat()
        return len(classic.owned), len(consumer.owned)

    await context.until(both, lambda counts: counts == (1, 1), "a partition for each")
    return consumer


SCENARIOS: dict[str, Scenario] = {
    "former-generation": former_generation,
    "dead-in-downgrade": dead_in_downgrade,
}
