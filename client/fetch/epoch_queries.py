"""Asks new leaders whether their logs have the records that were read (KIP-320).

After an unclean election the new leader's log may end before the reader's position, or diverge from
the old leader's log. A reader that continues at its offset misses records without an error.
Therefore the reader sends the epoch of its last known record, and gets the end of that epoch in the
new leader's log.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ...wire.errors import ErrorCode
from ...wire.identifiers import TopicPartition
from ..by_topic import entries_by_topic
from ..cluster_view import ClusterView

# from version 2 on brokers compare the client's epoch
OFFSET_FOR_LEADER_EPOCH, FENCED_FROM = 23, 2
CONSUMER = -1


class EpochEnd(NamedTuple):
    """The largest epoch in a leader's log up to the requested epoch, and its end offset
    (exclusive).

    Both are -1 if unknown.
    """

    error_code: int
    leader_epoch: int
    end_offset: int


async def epoch_ends(
    view: ClusterView, leader: int, asked: Mapping[TopicPartition, tuple[int, int]]
) -> dict[TopicPartition, EpochEnd] | None:
    """Return where the asked epochs end in the log of this leader, or None if it lacks KIP-320.

    asked: (epoch of the last known record, known epoch of the leader) by partition.
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
