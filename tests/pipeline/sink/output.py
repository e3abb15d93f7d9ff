"""What a reader of committed records sees of a sink's output, and that nothing is left open."""

import asyncio
from collections import Counter
from collections.abc import Iterable

from oncelog.client import Admin, Consumer
from oncelog.client.fetch.offset_queries import LATEST
from oncelog.pipeline.sink.names import PREFIX

TIMEOUT_S = 120.0


async def read_committed(bootstrap: str, topic: str) -> list[str]:
    """The values up to the high watermarks; TimeoutError when a transaction holds one back."""
    values: list[str] = []
    async with Admin(bootstrap) as admin, asyncio.timeout(TIMEOUT_S):
        places = [(topic, p.partition) for p in await admin.describe_topics([topic])]
        ends = await admin.list_offsets(dict.fromkeys(places, LATEST))
        async with Consumer(
            bootstrap, isolation_level="read_committed", auto_offset_reset="none"
        ) as consumer:
            consumer.assign(dict.fromkeys(places, 0))
            while any(consumer.position(*place) < ends[place] for place in places):
                values += [(r.value or b"").decode() for r in await consumer.poll(200)]
    return values


async def open_transactions(bootstrap: str) -> list[str]:
    """Ids of sinks with something open."""
    async with Admin(bootstrap) as admin:
        found = await admin.transactions.list_transactions(prefix=PREFIX, states=["Ongoing"])
    return [each.transactional_id for each in found]


def assert_once(bootstrap: str, topic: str, wanted: Iterable[str]) -> None:
    """Every value once, in no order; nothing else; nothing open."""
    assert asyncio.run(open_transactions(bootstrap)) == []
    found, expected = Counter(asyncio.run(read_committed(bootstrap, topic))), Counter(wanted)
    doubled = {value: count for value, count in found.items() if count > 1}
    assert not doubled, f"{len(doubled)} values are there twice: {sorted(doubled)[:5]}"
    assert not expected - found, f"missing: {sorted((expected - found).keys())[:5]}"
    assert not found - expected, f"more than was written: {sorted((found - expected).keys())[:5]}"
