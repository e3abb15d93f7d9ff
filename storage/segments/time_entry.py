"""An entry of a time index can be checked: it names a batch, and the timestamp of that batch."""

from collections.abc import Iterator
from typing import Protocol

from ...wire.record_batch import BatchHeader
from .index import NO_TIMESTAMP, CorruptIndex, TimeIndex

REMEDY = "It is rebuilt when the broker starts again"


class _Timed(Protocol):
    time_index: TimeIndex

    def headers_near(self, offset: int) -> Iterator[tuple[int, BatchHeader]]: ...


def check_time_entry(segment: _Timed, entry: tuple[int, int]) -> tuple[int, int]:
    """The entry (timestamp, offset) of a segment, which may be that of an empty index.

    Raises CorruptIndex unless the batch that ends with its offset has its timestamp.
    """
    timestamp_ms, offset = entry
    if timestamp_ms == NO_TIMESTAMP:
        return entry
    for _, header in segment.headers_near(offset):
        if header.last_offset >= offset:
            if (header.last_offset, header.max_timestamp) == entry[::-1]:
                return entry
            break
    raise CorruptIndex(segment.time_index.path, f"no {timestamp_ms} at offset {offset}", REMEDY)
