"""Helpers of async tests, which wait for a condition or let the event loop run some turns."""

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], object], timeout_s: float = 20) -> None:
    async with asyncio.timeout(timeout_s):
        while not holds():
            await asyncio.sleep(0.002)


async def turns_until(holds: Callable[[], object], timeout_s: float = 20) -> int:
    """Run turns of the loop until a condition holds, and return their number."""
    turns = 0
    async with asyncio.timeout(timeout_s):
        while not holds():
            await asyncio.sleep(0)
            turns += 1
    return turns


async def settle(turns: int = 20) -> None:
    """Let the event loop run this many turns, in which tasks that wait for no event continue."""
    for _ in range(turns):
        await asyncio.sleep(0)
