"""Coroutines of the client in programs that run an event loop of their own, or none."""

import asyncio
import threading
from collections.abc import Awaitable, Mapping
from typing import Any

from ...client.blocking import BlockingAdmin


def blocking_admin(source: str | Mapping[str, Any], *, timeout_ms: int = 15_000) -> BlockingAdmin:
    """An admin that soon turns to another broker when one is silent. ValueError: no address."""
    config = {"bootstrap.servers": source} if isinstance(source, str) else source
    return BlockingAdmin(
        {"request.timeout.ms": min(2_000, timeout_ms), **config}, timeout_ms=timeout_ms
    )


def run_apart(work: Awaitable[None]) -> None:
    """Run a coroutine to its end in a thread of its own, so that a caller's event loop is no bar.

    Of several failures that came together, one comes out, plain.
    """
    problems: list[BaseException] = []

    async def call() -> None:
        await work

    def run() -> None:
        try:
            asyncio.run(call())
        except BaseException as problem:  # handed to the caller's thread
            problems.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join()
    if problems:
        first = problems[0]
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise first
