"""The shard of a transactional id, and the partition of a group's offsets.

As in Kafka the hash is Java's String.hashCode over the UTF-16 code units, so Kafka's tools show the
same number.
"""

import sys
from functools import lru_cache

_UTF_16 = f"utf-16-{sys.byteorder[0]}e"
_INT_MIN = -(1 << 31)
_LENGTH_KEPT_MAX = 256


def java_string_hash(text: str) -> int:
    """Return Java's String.hashCode, a signed 32-bit number."""
    # Cached, because each request of a group or a transaction needs it, and it takes about 3 us.
    return (_hash_kept if len(text) <= _LENGTH_KEPT_MAX else _hash)(text)


def _hash(text: str) -> int:
    value = 0
    for unit in memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H"):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


_hash_kept = lru_cache(maxsize=4096)(_hash)


def shard_for(key: str, count: int) -> int:
    """Return the shard of a transactional id, or the __consumer_offsets partition of a group.

    The absolute value of the hash is used, with Kafka's exception: the smallest integer counts as
    0.
    """
    value = java_string_hash(key)
    return (0 if value == _INT_MIN else abs(value)) % count
