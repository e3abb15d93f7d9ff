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
    """Kind 3."""

    group_id: str


@dataclass(frozen=True, slots=True)
class GroupTopicsKey:
    """Kind 4."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerMemberKey:
    """Kind 5."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TargetEpochKey:
    """Kind 6."""

    group_id: str


@dataclass(frozen=True, slots=True)
class TargetAssignmentKey:
    """Kind 7."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class CurrentAssignmentKey:
    """Kind 8."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ResolvedPatternKey:
    """Kind 16."""

    group_id: str
    pattern: str


@dataclass(frozen=True, slots=True)
class GroupEpoch:
    """The epoch of a group; the hash is 0 in records before Kafka 4.1."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class GroupTopics:
    """That a group has a record of its topics; what it says is not kept."""


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What a member of the classic protocol has brought with it."""

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
    """What a member shall have."""

    partitions: PartitionsByTopic


@dataclass(frozen=True, slots=True)
class CurrentAssignment:
    """What a member has, and what it was told to give up; `state` is one of reconciliation.py."""

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
