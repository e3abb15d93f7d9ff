"""The parts of Raft groups and of the peer transport that the transaction coordinator uses."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

Reply = Callable[[bytes, Sequence[Any]], object]
OnDone = Callable[[Any, Exception | None], None]


class ShardGroup(Protocol):
    preferred_leader: int | None

    @property
    def is_leader(self) -> bool:
        """Leads, and its state is current."""
        ...

    @property
    def leader_id(self) -> int | None:
        """The leader last heard of."""
        ...

    def propose(self, command: bytes, timeout_ms: float, on_done: OnDone) -> None:
        """on_done(result of apply, None), or (None, DefinitelyNot | OutcomeUnknown | ...)."""
        ...

    def on_elected(self, callback: Callable[[int], None]) -> None:
        """Called with the term when this node begins to lead."""
        ...

    def on_resigned(self, callback: Callable[[], None]) -> None:
        """Called when it ceases to lead."""
        ...

    def on_applied(self, callback: Callable[[int], None]) -> None:
        """Called with the last applied index."""
        ...


class PeerLinks(Protocol):
    def on_request(
        self, kind: int, handler: Callable[[int, bytes, list[Any], Reply], None]
    ) -> None:
        """Who answers requests of this kind."""
        ...

    async def request(
        self, peer: int, kind: int, header: bytes, *, timeout_ms: int
    ) -> tuple[bytes, list[Any]]:
        """The peer's reply; raises PeerError."""
        ...
