"""The interface of all types of groups, which share one namespace.

Handlers for all types (offsets, ListGroups, DeleteGroups, expiry) use this interface. Handlers for
one type (JoinGroup, DescribeGroups) check the type first.
"""

from collections.abc import Container, Iterable, Mapping
from enum import Enum
from typing import ClassVar, NamedTuple, Protocol


class GroupType(Enum):
    """The type of a group, with its name in ListGroups."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class ExpiryRule(NamedTuple):
    """The rule by which a group's offsets expire.

    The retention counts from `base_ms`, or from each commit if `base_ms` is None. Offsets of
    subscribed topics do not expire.
    """

    base_ms: int | None = None
    subscribed: Container[str] = frozenset[str]()


class Group(Protocol):
    """A group of any type."""

    type: ClassVar[GroupType]
    group_id: str

    @property
    def protocol_type(self) -> str | None: ...

    @property
    def state_name(self) -> str:
        """Return the name that ListGroups shows for the state of the group."""
        ...

    @property
    def members(self) -> Mapping[str, object]: ...

    @property
    def is_unused(self) -> bool:
        """Return whether the group has no members, so that it is removed with its last offset."""
        ...

    @property
    def subscribed_or_all(self) -> Container[str]:
        """Return the subscribed topics, or all topics if unknown.

        Offsets of these topics must not be deleted.
        """
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
        """Check that the member may commit offsets of these partitions, given as (topic id, index).

        Raises the KafkaError of the answer.
        """
        ...

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Check the member that fetches offsets, or raise the KafkaError of the answer."""
        ...

    def check_offset_delete(self) -> None:
        """Raise GroupIdNotFound or NonEmptyGroup if no offsets may be deleted."""
        ...

    def check_delete(self) -> None:
        """Raise GroupIdNotFound or NonEmptyGroup if the group may not be deleted."""
        ...

    def offset_expiry(self) -> ExpiryRule | None:
        """Return the expiry rule of offsets, or None if no offset may expire."""
        ...

    def tombstone_keys(self) -> Iterable[bytes]:
        """Return the keys of all records of the group in the log."""
        ...
