"""The decision whether a broken connection means that the peer is down.

A reset alone does not, because the connection is opened again within milliseconds. A peer is down
if its connection closed and then two successive attempts are refused (no process listens). A peer
is also down if the connection is not open again after a grace time. Times are monotonic
milliseconds.
"""

GRACE_MS = 200
REFUSALS_TO_BE_DOWN = 2


class LinkState:
    """The state of the control link to one peer.

    Methods that return a bool return whether they have changed `is_up`.
    """

    __slots__ = ("_closed_at_ms", "_refusals", "is_up")

    def __init__(self) -> None:
        self.is_up = False
        self._closed_at_ms: int | None = None
        self._refusals = 0

    def connected(self) -> bool:
        """Record that the handshake with the peer succeeded."""
        self._closed_at_ms = None
        self._refusals = 0
        was_up, self.is_up = self.is_up, True
        return not was_up

    def closed(self, now_ms: int) -> None:
        """Record that an established connection broke.

        The caller must call `grace_over` after GRACE_MS.
        """
        if self._closed_at_ms is None:
            self._closed_at_ms = now_ms

    def refused(self) -> bool:
        """Record that an attempt to connect was refused."""
        if not self.is_up or self._closed_at_ms is None:
            return False
        self._refusals += 1
        return self._refusals >= REFUSALS_TO_BE_DOWN and self._down()

    def grace_over(self, now_ms: int) -> bool:
        """Mark the peer as down if its link broke GRACE_MS ago and is not open again."""
        if not self.is_up or self._closed_at_ms is None:
            return False
        return now_ms - self._closed_at_ms >= GRACE_MS and self._down()

    def _down(self) -> bool:
        self.is_up = False
        return True
