"""The records of consumer groups in __consumer_offsets: what their keys and values say.

kind  key                 value
3     group               group epoch and hash of the subscribed topics
4     group               topics of the group: read and never written, as in Kafka since 4.1
5     group, member       a member as it described itself
6     group               epoch of the target assignment and when it was made
7     group, member       target assignment of a member
8     group, member       current assignment of a member, with its epochs
16    group, expression   topics that a regular expression stands for

No value is a tombstone. Their bytes are in record_codec.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..assignors.spec import PartitionsByTopic

# The epoch in which each partition was assigned, by topic id and partition (KIP-1251).
EpochsByTopic = Mapping[bytes, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class GroupEpochKey:
    """The key of a group's epoch: kind 3."""

    group_id: str


@dataclass(frozen=True, slots=True)
class GroupTopicsKey:
    """The key of a group's topics: kind 4."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerMemberKey:
    """The key of a member: kind 5."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochKey:
    """The key of a target's epoch: kind 6."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TargetAssignmentKey:
    """The key of a member's target assignment: kind 7."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentAssignmentKey:
    """The key of a member's current assignment: kind 8."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ResolvedPatternKey:
    """The key of a resolved expression: kind 16."""

    group_id: str
    pattern: str


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The epoch of a group; the hash is 0 in records before Kafka 4.1."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class GroupTopics:
    """A record of a group's topics; its content is not kept."""


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """The session timeout and the protocols of a member of the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # name and metadata


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member as its requests described it.

    `classic` is None unless the member speaks the classic protocol.
    """

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_pattern: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMetadata | None = None


@dataclass(frozen=True, slots=True)
class TargetEpoch:
    """The group epoch that a target assignment was made for; the time is 0 before Kafka 4.3."""

    epoch: int
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    """The partitions that a member shall have."""

    partitions: PartitionsByTopic


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """The partitions of a member, and those it must revoke; `state` is one of reconciliation.py."""

    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned: EpochsByTopic
    pending_revocation: EpochsByTopic


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    """The topics that a regular expression matched in a version of the metadata."""

    topics: tuple[str, ...]
    version: int
    timestamp_ms: int


ConsumerKey = (
    GroupEpochKey
    | GroupTopicsKey
    | ConsumerMemberKey
    | TargetEpochKey
    | TargetAssignmentKey
    | CurrentAssignmentKey
    | ResolvedPatternKey
)
ConsumerValue = (
    GroupEpoch
    | GroupTopics
    | ConsumerMember
    | TargetEpoch
    | TargetAssignment
    | CurrentAssignment
    | ResolvedPattern
)
