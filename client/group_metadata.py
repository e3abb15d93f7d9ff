"""The data that a consumer passes to a producer: offsets, and its membership of a group."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..wire.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """The committed position of a partition, which is the offset of the next record."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A member as its group knows it. The broker does not check fields with default values
    (KIP-447).

    topic_ids: the topic ids of the partitions of a member of a consumer group (KIP-848). Offsets in
    transactions name topics by id if the broker supports TxnOffsetCommit 6.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    topic_ids: Mapping[TopicPartition, bytes] = field(
        default_factory=dict[TopicPartition, bytes], compare=False, repr=False
    )


def with_metadata(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return offsets as OffsetAndMetadata. A plain offset gets empty metadata."""
    return {
        key: OffsetAndMetadata(each) if isinstance(each, int) else each
        for key, each in offsets.items()
    }
