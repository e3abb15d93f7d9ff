"""The topics that a group's members are subscribed to, and their hash.

The hash is in the record of a group's epoch: when topics are created, deleted or extended it
changes, and the group begins a new epoch. It need not be Kafka's: after a move between brokers a
different one costs one epoch.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

from .known_topics import Topics

TOPICS_REMEMBERED = 16_384  # each member that joins or leaves has all of its group's topics hashed
_HASH_BYTES = 8
_SIGN = 1 << 63


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Return the hash of the subscribed topics that exist: names, ids, numbers of partitions.

    It is 0 if there are none.
    """
    total = 0
    for name in set(names):
        topic = topics.get(name)
        if topic is not None:
            total += _topic_hash(name, topic.topic_id, len(topic.partitions))
    return (total + _SIGN) % (2 * _SIGN) - _SIGN


@lru_cache(TOPICS_REMEMBERED)
def _topic_hash(name: str, topic_id: bytes, partitions: int) -> int:
    line = f"{name} {topic_id.hex()} {partitions}"
    return int.from_bytes(blake2b(line.encode(), digest_size=_HASH_BYTES).digest())


def topic_ids(names: Iterable[str], topics: Topics) -> frozenset[bytes]:
    """Return the ids of the topics that exist."""
    return frozenset(topic.topic_id for name in names if (topic := topics.get(name)) is not None)
