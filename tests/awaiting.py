"""Waiting in tests that have an event loop: for a condition with a deadline, or for some turns."""

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], object], timeout_s: float = 20) -> None:
    async with asyncio.timeout(timeout_s):
        while not holds():
            await asyncio.sleep(0.002)


async def turns_until(holds: Callable[[], object], timeout_s: float = 20) -> int:
    """Look in each turn of the loop; how many it took."""
    turns = 0
    async with asyncio.timeout(timeout_s):
        while not holds():
            await asyncio.sleep(0)
            turns += 1
    return turns


async def settle(turns: int = 20) -> None:
    """Let everything that can go on without anybody's help go on."""
    for _ in range(turns):
        await asyncio.sleep(0)
