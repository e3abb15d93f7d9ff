"""Test that a follower with a damaged log joins the ISR only after it was copied again."""

import asyncio
import threading
from pathlib import Path

from oncelog.wire.errors import CorruptMessage

from ...awaiting import until
from ..three_brokers import three_brokers
from .test_damaged_logs import isr, produced, replica, whole_isr

SEEN_MS = 500


async def test_damaged_follower_without_a_new_fetch_does_not_enter_the_isr(
    tmp_path: Path,
) -> None:
    """The leader still has the follower's old position at the log end."""
    async with three_brokers(tmp_path) as cluster:
        leader = await cluster.create_topic()
        await produced(leader)
        await until(lambda: whole_isr(cluster))
        follower = next(broker for broker in cluster.brokers if broker is not leader)
        node_id, goes_on = follower.config.node_id, threading.Event()
        damage = replica(follower).log.damage
        damage.is_in_batches = True
        held = follower._roles._executor.submit(goes_on.wait, 20)
        try:
            damage.found(CorruptMessage("a byte is another"))
            await until(lambda: node_id not in isr(leader))
            for _ in range(SEEN_MS // 10):
                await asyncio.sleep(0.01)
                assert node_id not in isr(leader)
        finally:
            goes_on.set()
        await asyncio.wrap_future(held)
        await until(lambda: whole_isr(cluster))
