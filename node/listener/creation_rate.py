"""How fast connections may begin: of a listener and of the whole broker (KIP-612).

Kafka lets new connections wait in the kernel while there were too many in the last samples. Here
they are accepted, take a place, and wait unread. One that would wait for too long is closed at
once, so that those that come to nothing keep others out for seconds only. Pure: the time is given.
"""

WAIT_MAX_MS = 10_000


class CreationRate:
    """At most `rate` connections a second; a burst of those of `burst_ms` waits for nothing."""

    def __init__(self, rate: int, burst_ms: int) -> None:
        self._interval_ms, self._burst_ms = 1000 / rate, burst_ms
        self._due_ms = 0.0  # when the next one would begin at an even pace

    def wait_ms(self, now_ms: float) -> float:
        """Return for how long a connection that comes now has to wait."""
        return max(0.0, self._due_ms - self._burst_ms - now_ms)

    def note(self, now_ms: float) -> None:
        """Count a connection that was accepted."""
        self._due_ms = max(self._due_ms, now_ms) + self._interval_ms


def wait_ms(rates: "list[CreationRate]", now_ms: float) -> float | None:
    """Return for how long a connection waits by all these rates; None: it is to be closed."""
    longest_ms = max((rate.wait_ms(now_ms) for rate in rates), default=0.0)
    return None if longest_ms > WAIT_MAX_MS else longest_ms
