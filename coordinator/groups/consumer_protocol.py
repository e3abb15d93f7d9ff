"""The topics in the metadata that members of type "consumer" send with JoinGroup.

The coordinator needs that metadata only for this: offsets of topics that are subscribed to are
neither deleted nor expired. Every version begins as version 0 does: version int16, topics as an
array of strings, ...
"""

import struct
from dataclasses import dataclass

from ...runtime.steps import StepCounter, Steps

CONSUMER = "consumer"
_COUNT_AT, _COUNT, _SIZE = 2, struct.Struct(">i"), struct.Struct(">h")


@dataclass(frozen=True)
class EveryTopic:
    """The set of all topics: for groups with unreadable subscriptions."""

    def __contains__(self, topic: object) -> bool:
        """Return True."""
        return True


def subscribed_topics(metadata: bytes, topics: set[str], counter: StepCounter) -> Steps[bool]:
    """Add the topics of a subscription to `topics`; False when the bytes are something else."""
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
    except (struct.error, UnicodeDecodeError):  # too short
        return False
    return True
