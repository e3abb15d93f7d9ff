"""OffsetForLeaderEpoch: whether what was read still stands in the log of a new leader (KIP-320).

After an unclean election the new leader's log may end before, or part from, what the old one gave
out. Whoever goes on at his offset there misses records without an error. So a reader tells the
epoch of the last record that it knows, and learns where that epoch ends in the new leader's log.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ...wire.errors import ErrorCode
from ...wire.identifiers import TopicPartition
from ..by_topic import entries_by_topic
from ..cluster_view import ClusterView

OFFSET_FOR_LEADER_EPOCH, FENCED_FROM = 23, 2  # from version 2 on brokers compare our own epoch
CONSUMER = -1


class EpochEnd(NamedTuple):
    """The largest epoch up to the asked one, and its end (exclusive); -1 where none is known."""

    error_code: int
    leader_epoch: int
    end_offset: int


async def epoch_ends(
    view: ClusterView, leader: int, asked: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, EpochEnd] | None:
    """Where epochs end on this leader; None when it cannot be asked (before KIP-320).

    asked: (epoch of the last known record, the leader's epoch as we know it) by partition.
    """
    connection = await view.broker(leader)
    if connection.versions.get(OFFSET_FOR_LEADER_EPOCH, (0, -1))[1] < FENCED_FROM:
        return None
    entries = (
        (topic, {"partition": p, "current_leader_epoch": current, "leader_epoch": epoch})
        for (topic, p), (epoch, current) in asked.items()
    )
    values = {"replica_id": CONSUMER, "topics": entries_by_topic(entries, named="topic")}
    answer = await connection.call(OFFSET_FOR_LEADER_EPOCH, values)
    found = dict.fromkeys(asked, EpochEnd(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1))
    for topic in answer.topics:
        for p in topic.partitions:
            end = EpochEnd(int(p.error_code), p.leader_epoch, p.end_offset)
            found[(str(topic.topic), p.partition)] = end
    return found
