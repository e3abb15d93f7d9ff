"""How fast one broker may be asked: at most so many requests in any second; pure."""

from collections import deque

WINDOW_MS = 1_000.0


class RequestPace:
    """Counts the requests of the last second to one broker."""

    def __init__(self, requests_a_second: int) -> None:
        if requests_a_second < 1:
            raise ValueError("a pace is one request a second at least")
        self._sent_ms: deque[float] = deque(maxlen=requests_a_second)  # the newest ones

    def wait_ms(self, now_ms: float) -> float:
        """Return how long the next request has to wait; 0 when it may go now."""
        if len(self._sent_ms) < (self._sent_ms.maxlen or 0):
            return 0.0
        return max(0.0, self._sent_ms[0] + WINDOW_MS - now_ms)

    def sent(self, now_ms: float) -> None:
        """Count a request that goes now."""
        self._sent_ms.append(now_ms)
