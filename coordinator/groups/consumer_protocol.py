"""The topics in the metadata that members of type "consumer" send with JoinGroup.

To the coordinator that metadata is the members' own affair, but for this: offsets of topics that
are subscribed to are neither deleted nor expired. Every version begins as version 0 does:
version int16, topics as an array of strings, ...
"""

from dataclasses import dataclass

CONSUMER = "consumer"


@dataclass(frozen=True)
class EveryTopic:
    """What a group reads whose members' metadata nobody here can read."""

    def __contains__(self, topic: object) -> bool:
        """It may read that one."""
        return True


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a subscription, None when the bytes are something else."""
    data = memoryview(metadata)
    try:
        count = _int(data, 2, 4)
        if count < 0 or count * 2 > len(data) - 6:
            return None
        position, topics = 6, set[str]()
        for _ in range(count):
            size = _int(data, position, 2)
            position += 2
            if size < 0 or position + size > len(data):
                return None
            topics.add(bytes(data[position : position + size]).decode())
            position += size
    except ValueError:  # too short, or not UTF-8
        return None
    return frozenset(topics)


def _int(data: memoryview, position: int, size: int) -> int:
    if position + size > len(data):
        raise ValueError("the metadata ends early")
    return int.from_bytes(data[position : position + size], "big", signed=True)
