"""A proxy to a broker that can delay the bytes of clients.

Held bytes are forwarded at their release, even if their client has disconnected, as in a network
that delivers late.
"""

import threading
from collections.abc import Callable

from ..loopback_proxy import LoopbackProxy


class DelayingProxy(LoopbackProxy):
    """A proxy that can hold bytes, used as a context manager."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._open = threading.Event()
        self._open.set()
        super().__init__(target)

    def __exit__(self, *details: object) -> None:
        self.let_go()
        super().__exit__(*details)

    def hold(self) -> None:
        """Hold back the bytes that clients send from now on."""
        self._open.clear()

    def let_go(self) -> None:
        """Release the held bytes, and hold no later bytes."""
        self._open.set()

    def forward(self) -> Callable[[bytes], object]:
        return lambda _: self._open.wait()
