"""The parts of the Raft group and of the peer transport that the controller's shells use."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ...coordinator.controller.quorum import GroupView

Reply = Callable[[bytes, Sequence[Any]], object]


class MetadataGroup(Protocol):
    @property
    def is_leader(self) -> bool:
        """Leads, and its state is current."""
        ...

    @property
    def leader_id(self) -> int | None:
        """The leader last heard of."""
        ...

    @property
    def term(self) -> int: ...

    @property
    def applied_index(self) -> int:
        """The last index that this node's state knows."""
        ...

    def status(self) -> GroupView:
        """Where it stands; how far the voters are on the leader only."""
        ...

    async def submit(self, command: bytes, *, timeout_ms: float = ...) -> Any:
        """The result of apply; raises DefinitelyNot or OutcomeUnknown."""
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


class Links(Protocol):
    def on_request(
        self, kind: int, handler: Callable[[int, bytes, list[Any], Reply], None]
    ) -> None:
        """Who answers requests of this kind."""
        ...

    def on_peer_change(self, callback: Callable[[int, bool], None]) -> None:
        """Called with (peer, is up)."""
        ...

    async def request(
        self, peer: int, kind: int, header: bytes, *, timeout_ms: int
    ) -> tuple[bytes, list[Any]]:
        """The peer's reply; raises PeerError."""
        ...
