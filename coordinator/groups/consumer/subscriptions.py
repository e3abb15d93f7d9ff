"""The topics that a group's members are subscribed to, and their hash.

The hash is in the record of a group's epoch: when topics come, go or grow it is another one, and
the group begins a new epoch. It need not be Kafka's: after a move another one costs one epoch.
"""

from collections.abc import Iterable
from hashlib import blake2b

from .known_topics import Topics

_HASH_BYTES = 8


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Return the hash of the subscribed topics that exist: names, ids, numbers of partitions.

    It is 0 if there are none.
    """
    known = [
        (name, topic) for name in sorted(set(names)) if (topic := topics.get(name)) is not None
    ]
    if not known:
        return 0
    lines = [f"{name} {topic.topic_id.hex()} {len(topic.partitions)}" for name, topic in known]
    digest = blake2b("\n".join(lines).encode(), digest_size=_HASH_BYTES).digest()
    return int.from_bytes(digest, signed=True)


def topic_ids(names: Iterable[str], topics: Topics) -> frozenset[bytes]:
    """Return the ids of the topics that exist."""
    return frozenset(topic.topic_id for name in names if (topic := topics.get(name)) is not None)
