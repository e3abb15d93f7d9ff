"""The requests of a group's members and their answers, independent of protocol versions.

Times are in milliseconds. Error fields are numbers of `ErrorCode`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...wire.errors import ErrorCode
from .consumer.settings import ConsumerGroupSettings

NO_GENERATION = -1
NO_MEMBER = ""
NO_LEADER = ""
Protocols = tuple[tuple[str, bytes], ...]  # names and metadata, in the member's order of preference


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """The request JoinGroup. `new_member_id` is the id for a member without one.

    `requires_member_id` (from version 4 on, KIP-394) means that a new dynamic member first gets its
    id, and joins with a second request. `can_skip_assignment` (version 9, KIP-814) means that the
    leader understands skip_assignment.
    """

    group_id: str
    member_id: str
    new_member_id: str
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    reason: str = ""
    requires_member_id: bool = True
    can_skip_assignment: bool = True


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member, as it is listed in the JoinGroup answer to the group leader."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """The answer of JoinGroup. `members` is filled only for the group leader."""

    error: int = ErrorCode.NONE
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_LEADER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """The request SyncGroup. `assignments` by member id are sent only by the group leader."""

    group_id: str
    member_id: str
    group_instance_id: str | None = None
    generation: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    error: int = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """One member of a LeaveGroup, named by its member id, its instance id (KIP-345), or both."""

    member_id: str
    group_instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveAnswer:
    """The answer of LeaveGroup, with an ErrorCode for each member."""

    errors: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The configuration of groups."""

    max_size: int = (1 << 31) - 1
    initial_rebalance_delay_ms: int = 0
    # A member that has not received its id sends no heartbeats, so this timeout limits its wait.
    new_member_join_timeout_ms: int = 300_000
    consumer: Callable[[str], ConsumerGroupSettings] = lambda group_id: ConsumerGroupSettings()
    # Whether groups may change to the consumer protocol, and back to the classic one.
    may_upgrade: bool = True
    may_downgrade: bool = True
