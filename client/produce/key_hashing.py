"""Kafka's murmur2 of many keys at once, where numpy has been loaded by somebody already.

Pure. Never imports numpy by itself: programs that have their records as columns mostly have it, and
for the others it would cost more than it saves. The plain form is `partitioner.murmur2`.
"""

import sys
from collections.abc import Sequence
from typing import Any

SEED, MULTIPLIER = 0x9747B28C, 0x5BD1E995
WORTH_IT = 64  # keys of one length


def vector_library() -> Any:
    """numpy, if it is loaded."""
    return sys.modules.get("numpy")


def partitions_of_keys(numpy: Any, keys: Sequence[bytes], partitions: int) -> list[int]:
    """The partitions of keys that all have the same length."""
    length = len(keys[0])
    table = numpy.frombuffer(b"".join(keys), dtype=numpy.uint8).reshape(len(keys), length)
    factor = numpy.uint32(MULTIPLIER)
    value = numpy.full(len(keys), (SEED ^ length) & 0xFFFFFFFF, dtype=numpy.uint32)
    words = length >> 2
    for at in range(0, words << 2, 4):
        k = numpy.ascontiguousarray(table[:, at : at + 4]).view("<u4").ravel() * factor
        k ^= k >> numpy.uint32(24)
        value *= factor
        value ^= k * factor
    rest = length & 3
    if rest:
        for place in range(rest):
            byte = table[:, (words << 2) + place].astype(numpy.uint32)
            value ^= byte << numpy.uint32(8 * place)
        value *= factor
    value ^= value >> numpy.uint32(13)
    value *= factor
    value ^= value >> numpy.uint32(15)
    return ((value & numpy.uint32(0x7FFFFFFF)) % numpy.uint32(partitions)).tolist()
