"""The subscribed topics in the metadata of members of type "consumer" (JoinGroup).

The coordinator needs the topics only because offsets of subscribed topics are neither deleted nor
expired. Every version of the metadata begins like version 0, with an int16 version and an array of
topic names.
"""

import struct
from dataclasses import dataclass

from ...runtime.steps import StepCounter, Steps

CONSUMER = "consumer"
_COUNT_AT, _COUNT, _SIZE = 2, struct.Struct(">i"), struct.Struct(">h")


@dataclass(frozen=True)
class EveryTopic:
    """The set of all topics, for groups with unreadable subscriptions."""

    def __contains__(self, topic: object) -> bool:
        """Return True for every topic."""
        return True


def subscribed_topics(metadata: bytes, topics: set[str], counter: StepCounter) -> Steps[bool]:
    """Add the topics of a subscription to `topics`. Return False if the bytes are invalid."""
    try:
        (count,) = _COUNT.unpack_from(metadata, _COUNT_AT)
        position = _COUNT_AT + _COUNT.size
        if count < 0 or count * _SIZE.size > len(metadata) - position:
            return False
        for _ in range(count):
            (size,) = _SIZE.unpack_from(metadata, position)
            start = position + _SIZE.size
            position = start + size
            if size < 0 or position > len(metadata):
                return False
            topics.add(metadata[start:position].decode())
            if counter.ends_step():
                yield
    except (struct.error, UnicodeDecodeError):  # truncated
        return False
    return True
