"""A way to a broker on which what clients send can be held up, connection by connection.

Bytes that are held travel on when they are let go, whatever their client has done in the meantime:
just as on a network that delivers late.
"""

import threading
from collections.abc import Callable

from ..loopback_proxy import LoopbackProxy


class DelayingProxy(LoopbackProxy):
    """Use as a context manager."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._open = threading.Event()
        self._open.set()
        super().__init__(target)

    def __exit__(self, *details: object) -> None:
        self.let_go()
        super().__exit__(*details)

    def hold(self) -> None:
        """What clients send from now on stays here."""
        self._open.clear()

    def let_go(self) -> None:
        """It goes on its way, and so does what comes."""
        self._open.set()

    def forward(self) -> Callable[[bytes], object]:
        return lambda _: self._open.wait()
