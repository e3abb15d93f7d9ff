"""The topics to which a group's members are subscribed, and their hash.

The hash is in the record of a group's epoch. The hash changes when topics are created, deleted or
extended, and the group then begins a new epoch. The hash need not equal Kafka's hash, because
another hash costs only one additional epoch.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

from .known_topics import Topics

# Each member that joins or leaves causes a hash of all topics of its group.
TOPICS_REMEMBERED = 16_384
_HASH_BYTES = 8
_SIGN = 1 << 63


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Return a hash of the names, ids and partition counts of the named topics that exist.

    The hash is 0 if none of the topics exists.
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
    """Return the ids of the named topics. Names of topics that do not exist are skipped."""
    return frozenset(topic.topic_id for name in names if (topic := topics.get(name)) is not None)
