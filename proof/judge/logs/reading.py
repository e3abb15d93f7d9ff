"""Reads partitions of a live cluster from their starts to ends that were taken before."""

import time
from collections.abc import Awaitable, Callable, Mapping

from ....client.admin import Admin
from ....client.cluster_view import ClusterView
from ....client.consumer import Consumer

POLL_MS = 500
PROGRESS_TIMEOUT_S = 60.0  # limit for a partition without progress
Key = tuple[str, int]


async def read_to(
    view: ClusterView,
    starts: Mapping[Key, int],
    ends: Mapping[Key, int],
    poll: Callable[[Consumer], Awaitable[None]],
    *,
    isolation: str,
) -> list[Key]:
    """Call `poll` with a consumer until each position has reached its end.

    Returns the partitions that did not reach it, because no position moved for a while.
    """
    unfinished = {key for key in starts if starts[key] < ends[key]}
    async with Consumer(view, isolation_level=isolation, auto_offset_reset="none") as consumer:
        consumer.assign({key: starts[key] for key in unfinished})
        progress_at = time.monotonic()
        while unfinished and time.monotonic() - progress_at < PROGRESS_TIMEOUT_S:
            before = {key: consumer.position(*key) for key in unfinished}
            await poll(consumer)
            for key, position in before.items():
                if consumer.position(*key) != position:
                    progress_at = time.monotonic()
                if consumer.position(*key) >= ends[key]:
                    unfinished.discard(key)
                    consumer.unassign(*key)
    return sorted(unfinished)


async def is_compacted(admin: Admin, topic: str) -> bool:
    policy = {config.name: config.value for config in await admin.describe_configs(topic)}
    return "compact" in (policy.get("cleanup.policy") or "")
