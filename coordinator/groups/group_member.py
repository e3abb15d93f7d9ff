"""One member of a classic group."""

from collections.abc import Collection
from dataclasses import dataclass

from .group_messages import JoinRequest, Protocols

# Python's memory besides the characters of strings.
PROTOCOL_BYTES, MEMBER_BYTES, PENDING_MEMBER_BYTES = 200, 1_000, 500
# The limit of one partition's groups together, with pending members; a client may send a megabyte
# for each.
METADATA_BYTES_MAX = 32 * 1024 * 1024
# The limit of one partition; groups expire, so only a faulty client reaches it.
GROUPS_MAX = 1_000_000


@dataclass(slots=True, eq=False)
class HeldMetadata:
    """A counter of the bytes of memory that the metadata of several groups' members takes."""

    size_bytes: int = 0


def text_bytes(*texts: str | None) -> int:
    """Return the number of bytes of memory that the strings take."""
    return sum(len(text) if text.isascii() else 4 * len(text) for text in texts if text)


def metadata_bytes(protocols: Protocols) -> int:
    """Return the number of bytes of memory that a member's protocol names and metadata take."""
    return sum(PROTOCOL_BYTES + text_bytes(name) + len(metadata) for name, metadata in protocols)


def pending_member_bytes(member_id: str) -> int:
    """Return the memory in bytes of a pending member, which has an id but has not joined yet."""
    return PENDING_MEMBER_BYTES + text_bytes(member_id)


@dataclass(slots=True, eq=False, kw_only=True)
class Member:
    """A member of a classic group. A static member has a `group_instance_id` (KIP-345).

    Its tickets stand for the JoinGroup and the SyncGroup that wait for their answers. `is_new` is
    set until the member gets its id with a first generation.
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
    def held_bytes(self) -> int:
        """Return the number of bytes of memory that the member takes."""
        texts = text_bytes(self.member_id, self.group_instance_id, self.client_id)
        return MEMBER_BYTES + texts + metadata_bytes(self.protocols)

    @property
    def is_static(self) -> bool:
        """Return whether the member keeps its assignment when its process restarts."""
        return self.group_instance_id is not None

    @property
    def counts_as_alive(self) -> bool:
        """Return whether a waiting request keeps the session alive without heartbeats.

        A new member's session expires nevertheless, because its client may already have ended.
        """
        if self.is_new:
            return False
        return self.join_ticket is not None or self.sync_ticket is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a supported protocol."""
        return dict(self.protocols)[protocol_name or ""]

    def vote(self, candidates: Collection[str]) -> str:
        """Return the protocol that the member prefers among `candidates`.

        The member supports all candidates.
        """
        return next(name for name, _ in self.protocols if name in candidates)


def member_of(request: JoinRequest, member_id: str, *, is_new: bool) -> Member:
    """Return the member that a JoinGroup describes."""
    return Member(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=request.protocols,
        is_new=is_new,
    )
