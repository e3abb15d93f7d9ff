"""Pauses between attempts, which grow, are scattered at random, and are bounded.

Repeated immediate failures must not flood a broker. Many clients that lost the same broker must not
reconnect at the same moment.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..wire.errors import KafkaError, RequestTimedOut
from .failures import ClientClosed

TRY_MS_MIN = 500  # also for an attempt that begins at the deadline
T = TypeVar("T")


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Backoff:
    """The pauses between the attempts of one operation, up to its deadline."""

    def __init__(self, first_ms: int, last_ms: int, deadline_ms: int) -> None:
        self._next_ms, self._last_ms, self.deadline_ms = first_ms, last_ms, deadline_ms

    @property
    def left_ms(self) -> int:
        """The ms until the deadline, at least 0."""
        return max(0, self.deadline_ms - now_ms())

    @property
    def is_over(self) -> bool:
        """Whether the deadline has passed."""
        return now_ms() >= self.deadline_ms

    async def pause(self) -> None:
        """Wait before the next attempt."""
        pause_ms = min(self._next_ms * random.uniform(0.8, 1.2), self.left_ms)
        self._next_ms = min(self._next_ms * 2, self._last_ms)
        await asyncio.sleep(pause_ms / 1000)


async def until_decided(
    attempt: Callable[[], Awaitable[tuple[KafkaError | None, T]]],
    judge: Callable[[KafkaError], None],
    backoff: Backoff,
    what: str,
) -> T:
    """Repeat an attempt, and return the first answer without an error.

    `judge` is called with each error that an attempt returns or raises, and may raise it to end the
    operation. RequestTimedOut, which names the operation `what`, is raised at the deadline.
    ClientClosed is raised at once.
    """
    while True:
        try:
            async with asyncio.timeout(max(backoff.left_ms, TRY_MS_MIN) / 1000):
                problem, answer = await attempt()
            if problem is None:
                return answer
        except ClientClosed:  # its code is that of a lost connection, for which `judge` goes on
            raise
        except KafkaError as caught:
            problem = caught
        except TimeoutError:
            problem = RequestTimedOut()
        judge(problem)
        if backoff.is_over:
            raise RequestTimedOut(f"{what} was not decided in time; the last answer: {problem}")
        await backoff.pause()
