"""The rate of new connections, of a listener and of the whole broker (KIP-612).

Kafka leaves new connections in the kernel while there were too many in the last samples. Here they
are accepted, take a place, and wait unread. A connection that would wait for too long is closed at
once, so that useless connections keep others out for seconds only. Pure: the time is an argument.
"""

WAIT_MAX_MS = 10_000


class CreationRate:
    """A limit of `rate` connections a second; a burst of `burst_ms` does not wait."""

    def __init__(self, rate: int, burst_ms: int) -> None:
        self._interval_ms, self._burst_ms = 1000 / rate, burst_ms
        self._due_ms = 0.0  # when the next one would begin at an even pace

    def wait_ms(self, now_ms: float) -> float:
        """Return the wait of a connection that is accepted now."""
        return max(0.0, self._due_ms - self._burst_ms - now_ms)

    def note(self, now_ms: float) -> None:
        """Count a connection that was accepted."""
        self._due_ms = max(self._due_ms, now_ms) + self._interval_ms


def wait_ms(rates: "list[CreationRate]", now_ms: float) -> float | None:
    """Return a connection's wait by all these rates; None if it must be closed."""
    longest_ms = max((rate.wait_ms(now_ms) for rate in rates), default=0.0)
    return None if longest_ms > WAIT_MAX_MS else longest_ms
