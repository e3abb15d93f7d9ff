"""The interface of groups of every kind; all kinds share one namespace.

Handlers that serve every kind (offsets, ListGroups, DeleteGroups, expiry) use this interface.
Handlers for one kind (JoinGroup, DescribeGroups) look up the kind first.
"""

from collections.abc import Container, Iterable, Mapping
from enum import Enum
from typing import ClassVar, NamedTuple, Protocol


class GroupType(Enum):
    """A kind of group, by the name that ListGroups shows."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class ExpiryRule(NamedTuple):
    """The expiry of a group's offsets: since base_ms, or since each commit when that is None.

    Offsets of subscribed topics are kept.
    """

    base_ms: int | None = None
    subscribed: Container[str] = frozenset[str]()


class Group(Protocol):
    """A group of any kind."""

    type: ClassVar[GroupType]
    group_id: str

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def state_name(self) -> str:
        """Return the state by the name that ListGroups shows."""
        ...

    @property
    def members(self) -> Mapping[str, object]: ...

    @property
    def is_unused(self) -> bool:
        """Return whether it has no (pending) members, so that it may go with its last offset."""
        ...

    @property
    def subscribed_or_all(self) -> Container[str]:
        """Return the topics with offsets that must not be deleted."""
        ...

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        is_transactional: bool,
        api_version: int,
        partitions: Iterable[tuple[bytes, int]],
    ) -> None:
        """Check the member that commits offsets, of partitions by topic id.

        Raises the KafkaError of the answer.
        """
        ...

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Check the member that asks for offsets. Raises the KafkaError of the answer."""
        ...

    def check_offset_delete(self) -> None:
        """Raise GroupIdNotFound or NonEmptyGroup if no offsets may be deleted."""
        ...

    def check_delete(self) -> None:
        """Raise GroupIdNotFound or NonEmptyGroup if the group may not be deleted."""
        ...

    def offset_expiry(self) -> ExpiryRule | None:
        """Return how offsets expire; None while none may."""
        ...

    def tombstone_keys(self) -> Iterable[bytes]:
        """Return the keys of all records that the group has in the log."""
        ...
