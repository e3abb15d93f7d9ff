"""Computes Kafka's murmur2 of many keys at once, if numpy is already loaded.

The file does no I/O. This module never imports numpy itself. Applications with columns of records
mostly have numpy, and for other applications the import would cost more than it saves. The plain
form is `partitioner.murmur2`.
"""

import sys
from collections.abc import Sequence
from typing import Any

SEED, MULTIPLIER = 0x9747B28C, 0x5BD1E995
WORTH_IT = 64  # keys of one length


def vector_library() -> Any:
    """Return numpy if it is loaded, else None."""
    return sys.modules.get("numpy")


def table_of_keys(numpy: Any, keys: Sequence[bytes]) -> Any:
    """Return keys of equal length as a numpy array with one row of bytes for each key."""
    return numpy.frombuffer(b"".join(keys), dtype=numpy.uint8).reshape(len(keys), len(keys[0]))


def table_of_array(numpy: Any, keys: Any, length: int) -> Any:
    """Return an Arrow array as a numpy array with one row of bytes for each key.

    The keys are binary or text without nulls, all of this length.
    """
    _, offsets, data = keys.buffers()
    first = int(numpy.frombuffer(offsets, numpy.int32)[keys.offset])
    table = numpy.frombuffer(data, numpy.uint8, len(keys) * length, first)
    return table.reshape(len(keys), length)


def partitions_of_table(numpy: Any, table: Any, partitions: int) -> Any:
    """Return the partition of each key in a table of `table_of_keys` or `table_of_array`."""
    count, length = table.shape
    factor = numpy.uint32(MULTIPLIER)
    value = numpy.full(count, (SEED ^ length) & 0xFFFFFFFF, dtype=numpy.uint32)
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
    return (value & numpy.uint32(0x7FFFFFFF)) % numpy.uint32(partitions)
