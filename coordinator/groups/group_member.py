"""One member of a classic group."""

from collections.abc import Collection
from dataclasses import dataclass

from .group_messages import Protocols


@dataclass(slots=True, eq=False)
class HeldMetadata:
    """How many bytes the members of some groups have said of themselves."""

    size_bytes: int = 0


def metadata_bytes(protocols: Protocols) -> int:
    """How many bytes a member says of itself."""
    return sum(len(metadata) for _, metadata in protocols)


@dataclass(slots=True, eq=False, kw_only=True)
class Member:
    """A member; a static one has a `group_instance_id` (KIP-345).

    Its tickets stand for the JoinGroup and the SyncGroup that wait for their answers. `is_new`
    until it has been told its id in a first generation.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_ticket: object | None = None
    sync_ticket: object | None = None
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        """Whether it keeps its place when its process restarts."""
        return self.group_instance_id is not None

    @property
    def counts_as_alive(self) -> bool:
        """Whether its session may go on without a heartbeat: it waits for us.

        A new member does not: we could not tell whether its client is still there.
        """
        if self.is_new:
            return False
        return self.join_ticket is not None or self.sync_ticket is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """What it said of itself under a protocol that it supports."""
        return dict(self.protocols)[protocol_name or ""]

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that it likes best; it supports all of them."""
        return next(name for name, _ in self.protocols if name in candidates)
