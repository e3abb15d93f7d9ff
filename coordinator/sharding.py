"""Which shard a transactional id belongs to, and which partition a group's offsets.

Kafka takes the hash of Java's String.hashCode over the UTF-16 code units, so its tools, and
people who compute it by hand, come to the same number.
"""

_INT_MIN = -(1 << 31)


def java_string_hash(text: str) -> int:
    """Java's String.hashCode: a signed 32-bit number."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def shard_for(key: str, count: int) -> int:
    """The shard of a transactional id, or the __consumer_offsets partition of a group id.

    abs of the hash, with Kafka's exception: the smallest integer, which has none, counts as 0.
    """
    value = java_string_hash(key)
    return (0 if value == _INT_MIN else abs(value)) % count
