"""Read the sink's output as a read_committed consumer sees it, and list open transactions."""

import asyncio
from collections import Counter
from collections.abc import Iterable

from oncelog.client import Admin
from oncelog.pipeline.sink.names import PREFIX

from ...interop.client_peers import read_to_end

TIMEOUT_S = 120.0


async def open_transactions(bootstrap: str) -> list[str]:
    """Return the transactional ids of sinks that have an open transaction."""
    async with Admin(bootstrap) as admin:
        found = await admin.transactions.list_transactions(prefix=PREFIX, states=["Ongoing"])
    return [each.transactional_id for each in found]


async def committed_values(bootstrap: str, topic: str) -> list[str]:
    """Return all committed values, sorted. Fail if a transaction is open."""
    assert await open_transactions(bootstrap) == []
    rows = await read_to_end(bootstrap, topic, timeout_s=TIMEOUT_S)
    return sorted((row.value or b"").decode() for row in rows)


async def check_once(bootstrap: str, topic: str, wanted: Iterable[str]) -> None:
    """Assert that the topic has exactly these values, each once.

    No sink may have an open transaction.
    """
    found, expected = Counter(await committed_values(bootstrap, topic)), Counter(wanted)
    doubled = {value: count for value, count in found.items() if count > 1}
    assert not doubled, f"{len(doubled)} values are there twice: {sorted(doubled)[:5]}"
    assert not expected - found, f"missing: {sorted((expected - found).keys())[:5]}"
    assert not found - expected, f"more than was written: {sorted((found - expected).keys())[:5]}"


def assert_once(bootstrap: str, topic: str, wanted: Iterable[str]) -> None:
    asyncio.run(check_once(bootstrap, topic, wanted))


def values_of(bootstrap: str, topic: str) -> list[str]:
    return asyncio.run(committed_values(bootstrap, topic))
