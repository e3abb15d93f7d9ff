"""Chooses a record's partition, by murmur2 of the key, or a sticky one without a key.

The file does no I/O. The hash is that of the Java client, so a Python and a Java producer put a key
into the same partition. Records without a key stay with one partition until a batch is full
(KIP-480, KIP-794), so batches are large. Partitions without a leader are skipped.
"""

import struct
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from .key_hashing import (
    MULTIPLIER,
    SEED,
    WORTH_IT,
    partitions_of_table,
    table_of_array,
    table_of_keys,
    vector_library,
)

ANYWHERE = -1
MASK = 0xFFFFFFFF
STICKY_BYTES = 64 * 1024
KEYS_KEPT = 20_000
KEY_BYTES_KEPT = 64


def murmur2(data: bytes) -> int:
    """Return the 32-bit murmur2 hash of Kafka's Java client, as an unsigned number."""
    length = len(data)
    value = (SEED ^ length) & MASK
    words = length >> 2
    if words:
        for word in struct.unpack_from(f"<{words}I", data):
            k = word * MULTIPLIER & MASK
            value = (value * MULTIPLIER & MASK) ^ ((k ^ k >> 24) * MULTIPLIER & MASK)
    if length & 3:
        rest = int.from_bytes(data[words << 2 :], "little")
        value = (value ^ rest) * MULTIPLIER & MASK
    value = (value ^ value >> 13) * MULTIPLIER & MASK
    return value ^ value >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key among `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class KeyPartitions(dict[bytes, int]):
    """A cache of the partitions of keys in a topic with one number of partitions."""

    def __init__(self, partitions: int) -> None:
        super().__init__()
        self.partitions = partitions

    def __missing__(self, key: bytes) -> int:
        partition = partition_for_key(key, self.partitions)
        if len(key) <= KEY_BYTES_KEPT:
            if len(self) >= KEYS_KEPT:
                self.clear()
            self[key] = partition
        return partition

    def of_many(self, keys: Sequence[bytes | None]) -> list[int]:
        """Return the partition of each key. A key of None has ANYWHERE."""
        numpy = vector_library()
        if numpy is None or len(keys) < WORTH_IT:
            return [ANYWHERE if key is None else self[bytes(key)] for key in keys]
        by_length: dict[int, list[int]] = {}
        for place, key in enumerate(keys):
            by_length.setdefault(-1 if key is None else len(key), []).append(place)
        found = [ANYWHERE] * len(keys)
        for length, places in by_length.items():
            if length < 0:
                continue
            alike: list[Any] = [keys[place] for place in places]
            if length and len(places) >= WORTH_IT:
                table = table_of_keys(numpy, alike)
                chosen = partitions_of_table(numpy, table, self.partitions).tolist()
            else:
                chosen = [self[bytes(key)] for key in alike]
            for place, partition in zip(places, chosen, strict=True):
                found[place] = partition
        return found

    def of_array(self, keys: Any) -> Any:
        """Return the partition of each key of an Arrow array, as a numpy array."""
        numpy, compute = vector_library(), sys.modules["pyarrow"].compute
        lengths = compute.binary_length(keys).fill_null(ANYWHERE).to_numpy(zero_copy_only=False)
        found = numpy.full(len(keys), ANYWHERE, dtype=numpy.int64)
        order = numpy.argsort(lengths, kind="stable")
        distinct, firsts = numpy.unique(lengths[order], return_index=True)
        groups = numpy.split(order, firsts[1:])
        for length, places in zip(distinct.tolist(), groups, strict=True):
            alike = keys if len(places) == len(keys) else keys.take(places)
            if length > 0 and len(places) >= WORTH_IT:
                table = table_of_array(numpy, alike, length)
                found[places] = partitions_of_table(numpy, table, self.partitions)
            elif length >= 0:
                found[places] = [self[each.as_buffer().to_pybytes()] for each in alike]
        return found


class StickyPartitioner:
    """Chooses the partitions of one topic's records without keys.

    The records stay with one partition for `bytes_max` bytes.
    """

    def __init__(self, start: int = 0, *, bytes_max: int = STICKY_BYTES) -> None:
        self._current, self._bytes, self._bytes_max = start, 0, bytes_max

    def choose(self, size_bytes: int, partitions: int, led: Sequence[int] = ()) -> int:
        """Return the next record's partition. `led` are the partitions with a leader, if known."""
        if self._bytes >= self._bytes_max:
            self._current, self._bytes = self._current + 1, 0
        self.took(size_bytes)
        if led:
            return led[self._current % len(led)]
        return self._current % partitions

    def choose_many(
        self, sizes: Iterable[int], partitions: int, led: Sequence[int] = ()
    ) -> Iterator[tuple[int, int]]:
        """Choose partitions for records of these sizes.

        Yield (record count, partition) for each run of consecutive records with one partition.
        """
        edges = list(accumulate(sizes, initial=0))
        at, last = 0, len(edges) - 1
        while at < last:
            partition = self.choose(0, partitions, led)
            until = bisect_left(edges, edges[at] + self._bytes_max - self._bytes, at + 1, last)
            self.took(edges[until] - edges[at])
            yield until - at, partition
            at = until

    def took(self, size_bytes: int) -> None:
        """Add the size of records that went to the current partition."""
        self._bytes += size_bytes
