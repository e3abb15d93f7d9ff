"""The requests of a connection that are not answered yet, in order.

A broker answers in the order of the requests; an answer that is made here (an error) comes out when
those before it are answered.
"""

from collections import deque
from dataclasses import dataclass

from ....wire.primitives import MalformedFrame
from .events import Answer, Request
from .rules import Action, Rule


@dataclass(slots=True)
class Exchange:
    """action: what a rule does to its answer; made: an answer that needs no broker."""

    request: Request
    rule: Rule | None = None
    action: Action | None = None
    made: Answer | None = None
    made_frame: bytes = b""


class InFlight:
    """Order of answers."""

    def __init__(self) -> None:
        self._waiting: deque[Exchange] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, exchange: Exchange) -> None:
        """It was sent to the broker, or has an answer made here."""
        self._waiting.append(exchange)

    def answered(self, correlation_id: int) -> Exchange:
        """What the broker has answered now. MalformedFrame for what nobody has asked, or not yet
        (call `take_made` first, after each `add` and `answered`)."""
        expected = self._waiting[0].request.correlation_id if self._waiting else None
        if expected != correlation_id:
            raise MalformedFrame(
                f"the broker answers request {correlation_id}, the next to be answered is "
                f"{'none' if expected is None else expected}"
            )
        return self._waiting.popleft()

    def take_made(self) -> list[Exchange]:
        """Those whose answers were made here and whose turn it is."""
        taken: list[Exchange] = []
        while self._waiting and self._waiting[0].made is not None:
            taken.append(self._waiting.popleft())
        return taken

    def abandon(self) -> list[Exchange]:
        """All that will not be answered any more."""
        left = list(self._waiting)
        self._waiting.clear()
        return left
