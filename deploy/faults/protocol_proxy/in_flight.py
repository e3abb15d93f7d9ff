"""The unanswered requests of a connection, in order.

A broker answers in the order of the requests. An answer from the proxy (an error) is sent after the
answers to earlier requests.
"""

from collections import deque
from dataclasses import dataclass

from ....wire.primitives import MalformedFrame
from .events import Answer, Request
from .rules import Action, Rule


@dataclass(slots=True)
class Exchange:
    """A request in flight.

    rule, action: a rule that acts on the answer. made, made_frame: the answer and its bytes, if the
    proxy created it.
    """

    request: Request
    rule: Rule | None = None
    action: Action | None = None
    made: Answer | None = None
    made_frame: bytes = b""


class InFlight:
    """The unanswered requests of one connection, in the order of their answers."""

    def __init__(self) -> None:
        self._waiting: deque[Exchange] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, exchange: Exchange) -> None:
        """Add a request that was sent to the broker, or that has an answer from the proxy."""
        self._waiting.append(exchange)

    def answered(self, correlation_id: int) -> Exchange:
        """Remove and return the oldest request, which the broker answers with this correlation id.

        Raises MalformedFrame if the oldest request has another id, or if no request waits. Requests
        with answers from the proxy must be removed from the front before (`take_made`).
        """
        expected = self._waiting[0].request.correlation_id if self._waiting else None
        if expected != correlation_id:
            raise MalformedFrame(
                f"the broker answers request {correlation_id}, the next to be answered is "
                f"{'none' if expected is None else expected}"
            )
        return self._waiting.popleft()

    def take_made(self) -> list[Exchange]:
        """Remove and return the oldest requests, as far as the proxy itself has their answers.

        The caller must call this method after each `add` and `answered`.
        """
        taken: list[Exchange] = []
        while self._waiting and self._waiting[0].made is not None:
            taken.append(self._waiting.popleft())
        return taken

    def abandon(self) -> list[Exchange]:
        """Remove and return all waiting requests, when the connection has ended."""
        left = list(self._waiting)
        self._waiting.clear()
        return left
