"""The keys and values of consumer groups' records in __consumer_offsets.

type  key                 value
3     group               group epoch and hash of the subscribed topics
4     group               topics of the group: read, but not written, as in Kafka since 4.1
5     group, member       a member with the fields of its requests
6     group               epoch of the target assignment and its time
7     group, member       target assignment of a member
8     group, member       current assignment of a member, with its epochs
16    group, expression   topics that a regular expression matches

A record without a value is a tombstone. The bytes are in record_codec.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ..assignors.spec import PartitionsByTopic

# The epoch in which each partition was assigned, by topic id and partition (KIP-1251).
EpochsByTopic = Mapping[bytes, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class GroupEpochKey:
    """The key of a group's epoch, type 3."""

    group_id: str


@dataclass(frozen=True, slots=True)
class GroupTopicsKey:
    """The key of a group's topics, type 4."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerMemberKey:
    """The key of a member, type 5."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochKey:
    """The key of a target's epoch, type 6."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TargetAssignmentKey:
    """The key of a member's target assignment, type 7."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentAssignmentKey:
    """The key of a member's current assignment, type 8."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ResolvedPatternKey:
    """The key of a resolved expression, type 16."""

    group_id: str
    pattern: str


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The epoch of a group, and the hash of its subscribed topics (0 before Kafka 4.1)."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class GroupTopics:
    """A record of a group's topics. Its content is ignored."""


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """The session timeout and the protocols of a member of the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]  # the name and the metadata of each protocol


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    """A member with the fields of its requests.

    `classic` is None unless the member uses the classic protocol.
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
    """The group epoch of a target assignment, and its computation time (0 before Kafka 4.3)."""

    epoch: int
    timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class TargetAssignment:
    """The partitions of a member's target assignment."""

    partitions: PartitionsByTopic


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """The partitions that a member owns, and those that it must still revoke.

    `state` is a MemberState.
    """

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
