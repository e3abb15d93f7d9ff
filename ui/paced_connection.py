"""A client's connection that sends its broker at most five requests a second.

All requests wait here, including retries of the client, so the limit always holds. Each broker has
its own connection and its own limit.
"""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from ..client.connection import BrokerConnection

REQUESTS_A_SECOND = 5
WINDOW_MS = 1_000.0


class RequestPace:
    """The limit on requests to one broker, with the times of its last requests."""

    def __init__(self, requests_a_second: int) -> None:
        if requests_a_second < 1:
            raise ValueError("a pace is one request a second at least")
        self._sent_ms: deque[float] = deque(maxlen=requests_a_second)  # the newest ones

    def wait_ms(self, now_ms: float) -> float:
        """Return the ms that the next request has to wait, 0 for none."""
        if len(self._sent_ms) < (self._sent_ms.maxlen or 0):
            return 0.0
        return max(0.0, self._sent_ms[0] + WINDOW_MS - now_ms)

    def sent(self, now_ms: float) -> None:
        """Count a request that is sent at `now_ms`."""
        self._sent_ms.append(now_ms)


class PacedConnection(BrokerConnection):
    """A connection to a broker with a limited rate of requests.

    answer_ms: how long the newest answer took.
    """

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self._pace = RequestPace(REQUESTS_A_SECOND)
        self._turn = asyncio.Lock()
        self.answer_ms: float | None = None

    async def send(
        self, api_key: int, version: int, body: Sequence[Any], *, timeout_ms: int | None = None
    ) -> memoryview:
        """Wait until the rate allows this request, then send it. Return the answer's body."""
        async with self._turn:
            while (wait_ms := self._pace.wait_ms(time.monotonic() * 1000)) > 0:
                await asyncio.sleep(wait_ms / 1000)
            began = time.monotonic()
            self._pace.sent(began * 1000)
        answer = await super().send(api_key, version, body, timeout_ms=timeout_ms)
        self.answer_ms = (time.monotonic() - began) * 1000
        return answer
