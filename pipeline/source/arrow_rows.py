"""Conversion of a log's record batches to Arrow for Spark, without handling single records.

The file does no I/O. `client.record_columns` splits a batch into lists. Here the lists are
concatenated until they are large enough for Spark, and values that are constant in a batch are
repeated by numpy. The Arrow schema is exactly the schema that Spark derives from columns.py, as
Spark requires.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ...client.fetch.record_columns import RecordColumns
from ...wire.control_record import ControlType, marker_of
from ...wire.errors import InvalidRecord
from ...wire.records import Record

# limits of an Arrow batch; the batch of the log that reaches a limit is included as a whole
ROWS_MAX = 16_384
BYTES_MAX = 8 * 1024 * 1024
SEQUENCE_MASK = 2**31 - 1
TIME_MS_MAX = (2**63 - 1) // 1000  # Spark has microseconds
Headers = tuple[tuple[str, bytes | None], ...]


Added = Sequence[tuple[RecordColumns, int | None]]
"""Records of batches, each with the replica that they were read from; None: from the leader."""


class ArrowRows:
    """A converter of record batches' columns to Arrow.

    is_raw: the rows are for audits, with markers. Otherwise they have the columns of Spark's own
    source.
    """

    def __init__(self, schema: pa.Schema, *, is_raw: bool) -> None:
        self._schema, self._is_raw = schema, is_raw
        self._clear()

    def _clear(self) -> None:
        self._added: list[tuple[RecordColumns, int | None]] = []
        self._count = self._bytes = 0

    def add(self, columns: RecordColumns, replica: int | None = None) -> bool:
        """Add a batch's records, or its marker. Return whether there are enough rows for `take`.

        replica: the node that has the log.
        """
        if columns.values:
            self._added.append((columns, replica))
            self._count += len(columns.values)
            self._bytes += _size_bytes(columns)
        return self._count >= ROWS_MAX or self._bytes >= BYTES_MAX

    def take(self) -> pa.RecordBatch | None:
        """Return all rows since the last call as one Arrow batch, or None if there are none."""
        if not self._added:
            return None
        arrays = (_raw if self._is_raw else _plain)(self._added, self._schema)
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _plain(added: Added, schema: pa.Schema) -> list[pa.Array]:
    """Return the columns of Spark's own source. All records are of one partition."""
    batches = [columns for columns, _ in added]
    counts = [len(c.values) for c in batches]
    first, count = batches[0], sum(counts)
    is_append_time = [c.header.is_log_append_time for c in batches]
    arrays = [
        *_keys_and_values(batches),
        pa.repeat(first.topic, count),
        pa.repeat(pa.scalar(first.partition, pa.int32()), count),
        pa.array(_joined([c.offsets for c in batches])),
        _timestamps(batches),
        pa.array(np.repeat(np.array(is_append_time, np.int32), counts)),
    ]
    return [*arrays, _headers(batches, schema)] if "headers" in schema.names else arrays


def _raw(added: Added, schema: pa.Schema) -> list[pa.Array]:
    """Return the columns for audits, in which every record and marker has its producer."""
    batches = [columns for columns, _ in added]
    heads = [c.header for c in batches]
    counts = [len(c.values) for c in batches]
    markers = [_marker(c) if c.header.is_control else (None, None) for c in batches]
    offsets = _joined([c.offsets for c in batches])

    def each(values: list[Any], kind: pa.DataType) -> pa.Array:
        """Repeat the value of each batch for each of its rows."""
        places = pa.array(np.repeat(np.arange(len(counts)), counts))
        return pa.array(values, kind).take(places)

    return [
        each([c.topic for c in batches], pa.string()),
        each([c.partition for c in batches], pa.int32()),
        pa.array(offsets),
        each([h.partition_leader_epoch for h in heads], pa.int32()),
        _timestamps(batches, is_raw=True),
        each([int(h.is_log_append_time) for h in heads], pa.int32()),
        each([h.producer_id for h in heads], pa.int64()),
        each([h.producer_epoch for h in heads], pa.int32()),
        _sequences(batches, counts, offsets),
        each([h.is_transactional for h in heads], pa.bool_()),
        each([h.is_control for h in heads], pa.bool_()),
        each([kind for kind, _ in markers], pa.string()),
        each([epoch for _, epoch in markers], pa.int32()),
        each([h.crc for h in heads], pa.int64()),
        *_keys_and_values(batches),
        _headers(batches, schema),
        each([replica for _, replica in added], pa.int32()),
    ]


def _keys_and_values(batches: list[RecordColumns]) -> tuple[pa.Array, pa.Array]:
    return (
        pa.array([key for c in batches for key in c.keys], pa.binary()),
        pa.array([value for c in batches for value in c.values], pa.binary()),
    )


def _headers(batches: list[RecordColumns], schema: pa.Schema) -> pa.Array:
    listed = [h for c in batches for h in c.headers or [()] * len(c.values)]
    return headers_array(listed, schema.field("headers").type)


def headers_array(headers: list[Headers], kind: pa.ListType) -> pa.Array:
    """Return each record's headers as a list of name and value, or null for none, as in Spark."""
    if not any(headers):
        return pa.nulls(len(headers), kind)
    offsets: list[int | None] = []
    names: list[str] = []
    values: list[bytes | None] = []
    for listed in headers:
        offsets.append(len(names) if listed else None)
        for name, value in listed:
            names.append(name)
            values.append(value)
    offsets.append(len(names))
    inner: Any = kind.value_type
    pairs = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(values, pa.binary())],
        fields=[inner.field(0), inner.field(1)],
    )
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pairs, type=kind)


def _size_bytes(columns: RecordColumns) -> int:
    """Return the size of the batch's records without compression, for the limit of `add`."""
    if not columns.header.compression:
        return columns.header.size_bytes
    return sum(len(field) for field in (*columns.keys, *columns.values) if field)


def _joined(columns: list[Any]) -> np.ndarray[Any, Any]:
    """Concatenate a column of several batches, which is a range or a list of numbers in each."""
    return np.concatenate(
        [
            np.arange(c.start, c.stop, dtype=np.int64)
            if isinstance(c, range)
            else np.array(c, np.int64)
            for c in columns
        ]
    )


def _timestamps(batches: list[RecordColumns], *, is_raw: bool = False) -> pa.Array:
    """Return the timestamps of all records.

    A timestamp out of Spark's range becomes null in raw rows, else InvalidRecord is raised.
    """
    times_ms = _joined([c.timestamps for c in batches])
    beyond = (times_ms > TIME_MS_MAX) | (times_ms < -TIME_MS_MAX)
    if beyond.any() and not is_raw:
        at = int(beyond.argmax())
        offset = _joined([c.offsets for c in batches])[at]
        raise InvalidRecord(
            f"{batches[0].topic}/{batches[0].partition}: the record at offset {offset} has the "
            f"time {times_ms[at]} ms, which no timestamp of Spark can hold (is its unit another?)"
        )
    return pa.array(times_ms * 1000, mask=beyond).view(pa.timestamp("us", tz="UTC"))


def _sequences(
    batches: list[RecordColumns], counts: list[int], offsets: np.ndarray[Any, Any]
) -> pa.Array:
    """Return the sequence of each record (0 follows 2^31-1), or -1 for a missing sequence."""
    bases = np.repeat(np.array([c.header.base_sequence for c in batches], np.int64), counts)
    firsts = np.repeat(np.array([c.header.base_offset for c in batches], np.int64), counts)
    sequences = (bases + (offsets - firsts)) & SEQUENCE_MASK
    return pa.array(np.where(bases < 0, -1, sequences).astype(np.int32))


def _marker(columns: RecordColumns) -> tuple[str | None, int | None]:
    """Return "commit" or "abort" and the coordinator epoch, or None for other control records."""
    try:
        kind, epoch = marker_of(Record(0, 0, columns.keys[0], columns.values[0]))
    except InvalidRecord:
        return None, None
    return ("commit" if kind is ControlType.COMMIT else "abort"), epoch
