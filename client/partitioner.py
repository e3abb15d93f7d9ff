"""Which partition a record goes to: Kafka's murmur2 of the key; without a key, stick to one.

Pure. The hash is that of the Java client, so that a Python and a Java producer put one key into one
partition. Without a key records stay with one partition while a batch fills (KIP-480, KIP-794), so
that batches are large.
"""

SEED, MULTIPLIER = 0x9747B28C, 0x5BD1E995
MASK = 0xFFFFFFFF
STICKY_BYTES = 64 * 1024


def murmur2(data: bytes) -> int:
    """The 32-bit hash of Kafka's Java client, unsigned."""
    length = len(data)
    value = (SEED ^ length) & MASK
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * MULTIPLIER & MASK
        k = (k ^ k >> 24) * MULTIPLIER & MASK
        value = (value * MULTIPLIER & MASK) ^ k
    if whole != length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    value = (value ^ value >> 13) * MULTIPLIER & MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of a key among so many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Chooses partitions for one topic."""

    def __init__(self, start: int = 0) -> None:
        self._current, self._bytes = start, 0

    def choose(self, key: bytes | None, size_bytes: int, partitions: int) -> int:
        """The partition of a record of this size."""
        if key is not None:
            return partition_for_key(key, partitions)
        if self._bytes >= STICKY_BYTES:
            self._current, self._bytes = self._current + 1, 0
        self._bytes += size_bytes
        return self._current % partitions
