"""What a consumer hands to a producer: its offsets, and who it is in its group."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..wire.identifiers import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """What is committed for a partition: the next offset to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """A member as its group knows it; the defaults are not checked (KIP-447).

    topic_ids: of the partitions that a member of a consumer group (KIP-848) has. Offsets in
    transactions name topics by these where the broker takes them (TxnOffsetCommit 6).
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
    """Plain offsets with none."""
    return {
        key: OffsetAndMetadata(each) if isinstance(each, int) else each
        for key, each in offsets.items()
    }
