"""The bytes of a producer state snapshot, `<offset>.snapshot`, in Kafka's ProducerSnapshot v1.

The bytes are int16 version (1), uint32 CRC-32C of everything after it, int32 count, then 46 bytes
an entry. Only the last batch of a producer is stored. The rest of its window of five is read from
the log (`ProducerStateTable.refilling_windows`). Kafka writes the entries in the order of a hash
map. Here they are sorted by producer id, so that equal states have equal bytes.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import islice, starmap
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from ...runtime.steps import Steps, run_to_end
from ..corrupt_file import CorruptFile

VERSION = 1
_HEAD = struct.Struct(">hIi")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_END = 6
_ENTRIES_A_STEP = 128  # some 0.4 ms


class CorruptSnapshot(CorruptFile):
    """The error of an unusable snapshot. Recovery deletes it and replays from an older one."""


class ProducerSnapshotEntry(NamedTuple):
    """The entry of one producer. -1 stands for "none", except in offset_delta, where 0 does.

    `timestamp` is the largest timestamp of the last batch, or that of a later marker.
    `offset_delta` is the last offset of the last batch minus its base offset. `coordinator_epoch`
    is that of the last marker.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_transaction_first_offset: int


def encode(entries: Iterable[ProducerSnapshotEntry]) -> bytes:
    """Encode the content of a snapshot file."""
    ordered = sorted(entries)
    return run_to_end(encoding(ordered, len(ordered)))


def encoding(ordered: Iterable[ProducerSnapshotEntry], count: int) -> Steps[bytes]:
    """Encode the content of a snapshot file in steps. `ordered` are sorted by producer id."""
    content = bytearray(_HEAD.size)
    crc = crc32c(_COUNT.pack(count))
    entries = iter(ordered)
    while some := b"".join(_ENTRY.pack(*entry) for entry in islice(entries, _ENTRIES_A_STEP)):
        content += some
        crc = crc32c(some, crc)
        yield
    _HEAD.pack_into(content, 0, VERSION, crc, count)
    return bytes(content)


def decode(data: bytes, path: Path | str = "snapshot") -> list[ProducerSnapshotEntry]:
    """Decode the entries of a snapshot, or raise CorruptSnapshot, which names `path`."""
    return list(decode_entries(data, path))


def decode_entries(data: bytes, path: Path | str) -> Iterator[ProducerSnapshotEntry]:
    """Decode entries one at a time. The call itself raises errors of the whole file."""

    def corrupt(problem: str) -> CorruptSnapshot:
        remedy = "It may be deleted: the producer state is replayed from an older one and the log"
        return CorruptSnapshot(path, problem, remedy)

    if len(data) < _HEAD.size:
        raise corrupt(f"it has {len(data)} bytes, at least {_HEAD.size} are needed")
    version, stored_crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise corrupt(f"its version is {version}, only {VERSION} is known")
    if stored_crc != crc32c(memoryview(data)[_CRC_END:]):
        raise corrupt("its checksum does not fit")
    if count < 0 or len(data) != _HEAD.size + count * _ENTRY.size:
        raise corrupt(f"it names {count} producers but has {len(data)} bytes")
    return starmap(ProducerSnapshotEntry, _ENTRY.iter_unpack(memoryview(data)[_HEAD.size :]))
