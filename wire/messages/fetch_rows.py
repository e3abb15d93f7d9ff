"""The partitions of a Fetch request as hashes, to compare two requests without decoding.

A client without sessions fetches the same partitions repeatedly, each time in another order
(librdkafka rotates the partitions). Of a request, only keyed 64-bit hashes and the number of
partitions are kept.
"""

import struct
from typing import NamedTuple

from ...runtime.steps import StepCounter, Steps
from ..primitives import MalformedFrame, Reader
from .fetch import partition_row_bytes
from .fetch_answer import FLEXIBLE_FROM, read_topic

NO_SESSION = struct.pack(">ii", 0, -1)
HEAD_BYTES = 13  # max wait, min bytes, max bytes, isolation level


class FetchRows(NamedTuple):
    """The hashes of a Fetch request.

    around: the hash of everything outside the topics. rows: the hash of the partitions in any
    order.
    """

    version: int
    row_count: int
    around: int
    rows: int


def fetch_rows(body: memoryview, version: int) -> Steps[FetchRows | None]:
    """Return the hashes of a request, computed in steps.

    Returns None for a request with a session, with tags of a topic or partition, or with a repeated
    partition, and for a malformed one.
    """
    flexible = version >= FLEXIBLE_FROM
    size = partition_row_bytes(version)
    row = struct.Struct(f"{size - 1}sx" if flexible else f"{size}s")
    reader = Reader(body)
    rows: set[int] = set()
    count = 0
    counter = StepCounter()
    try:
        reader.take((4 if version < 15 else 0) + HEAD_BYTES + (8 if version >= 7 else 0))
        begin = reader.position
        if version >= 7 and bytes(body[begin - 8 : begin]) != NO_SESSION:
            return None
        for _ in range(reader.length(flexible, 3)):
            name, topic_id = read_topic(reader, version)
            data = reader.take(reader.length(flexible, size) * size)
            if flexible and (any(data[size - 1 :: size]) or reader.take(1)[0]):
                return None  # a row has tags
            count += len(data) // size
            if counter.ends_step():
                yield
            for each in row.iter_unpack(data):
                rows.add(hash((topic_id or name, each)))
                if counter.ends_step():
                    yield
    except MalformedFrame:
        return None
    if len(rows) < count:
        return None
    around = bytes(body[:begin]) + bytes(body[reader.position :])
    return FetchRows(version, count, hash(around), hash(frozenset(rows)))
