"""Creates records for an application from the columns of `record_columns`."""

from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

from ...wire.record_batch import BatchHeader, Buffer
from .record_columns import Headers, read_columns


class ConsumerRecord(NamedTuple):
    """A record as a consumer returns it, with a timestamp in wall-clock ms."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


_new: Callable[[Iterable[Any]], ConsumerRecord] = partial(
    tuple[Any, ...].__new__, ConsumerRecord
)  # without an interpreter step for each record


def read_records(
    topic: str, partition: int, buffer: Buffer, position: int, header: BatchHeader, from_offset: int
) -> list[ConsumerRecord]:
    """Return the records of the batch at this position of the buffer, from `from_offset` on.

    Raises InvalidRecord if the records do not fill the batch exactly.
    """
    columns = read_columns(topic, partition, buffer, position, header)
    if header.base_offset < from_offset:
        columns = columns.between(from_offset)
    headers = repeat(()) if columns.headers is None else columns.headers
    offsets_to_values = columns[3:7]
    rows = zip(repeat(topic), repeat(partition), *offsets_to_values, headers)
    return list(map(_new, rows))
