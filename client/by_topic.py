"""Groups partitions by topic, in the form of a request."""

from collections.abc import Iterable, Mapping
from typing import Any

from ..wire.identifiers import TopicPartition
from .group_metadata import OffsetAndMetadata

COMMIT_BY_NAME_NEWEST = 9  # of OffsetCommit


def entries_by_topic(
    entries: Iterable[tuple[Any, Any]], listed_as: str = "partitions", named: str = "name"
) -> list[dict[str, Any]]:
    """Group pairs (topic, entry) by topic, and keep the order of topics and entries.

    Each topic becomes one `{named: topic, listed_as: entries}`.
    """
    topics: dict[Any, list[Any]] = {}
    for topic, entry in entries:
        topics.setdefault(topic, []).append(entry)
    return [{named: topic, listed_as: listed} for topic, listed in topics.items()]


def committed_by_topic(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    topic_ids: Mapping[TopicPartition, bytes] | None = None,
) -> list[dict[str, Any]]:
    """Return the topics of an OffsetCommit or TxnOffsetCommit request with these offsets.

    With `topic_ids` the topics have ids instead of names.
    """
    entries: Iterable[tuple[Any, Any]] = (
        (
            topic if topic_ids is None else topic_ids[topic, partition],
            {
                "partition_index": partition,
                "committed_offset": each.offset,
                "committed_leader_epoch": each.leader_epoch,
                "committed_metadata": each.metadata,
            },
        )
        for (topic, partition), each in offsets.items()
    )
    return entries_by_topic(entries, named="name" if topic_ids is None else "topic_id")
