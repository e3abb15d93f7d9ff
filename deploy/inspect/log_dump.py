"""The contents of a log as text, with batches, their producers, and markers.

Every batch is checked (length, CRC, ascending offsets), so a damaged batch is visible. A batch with
an invalid header ends the dump of its segment with CorruptMessage.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...wire.compression import CODEC_NAMES
from ...wire.control_record import decode_marker
from ...wire.errors import KafkaError
from ...wire.record_batch import BatchHeader, check_crc, iterate_batches
from ...wire.records import Record, decode_batch

CODECS = (*CODEC_NAMES, "?", "?", "?")  # by three bits


@dataclass(frozen=True, slots=True)
class DumpedBatch:
    """A batch, with its file and position. `marker` and `problem` are text, or ""."""

    file: str
    position: int
    header: BatchHeader
    marker: str
    problem: str
    records: tuple[Record, ...] = ()

    def words(self) -> str:
        h = self.header
        span = f"{h.base_offset}" if h.record_count == 1 else f"{h.base_offset}-{h.last_offset}"
        parts = [f"offsets {span}", f"leader epoch {h.partition_leader_epoch}"]
        if self.marker:
            parts.append(self.marker)
        else:
            parts.append(f"{h.record_count} records, {h.size_bytes} bytes, {CODECS[h.compression]}")
        if h.has_producer_id:
            parts.append(f"producer {h.producer_id} epoch {h.producer_epoch}")
            if not h.is_control:
                parts.append(f"sequences {h.base_sequence}-{h.last_sequence}")
        if h.is_transactional and not h.is_control:
            parts.append("in a transaction")
        if self.problem:
            parts.append(f"BAD: {self.problem}")
        return " · ".join(parts)

    def fields(self) -> dict[str, object]:
        h = self.header
        return {
            "file": self.file,
            "position": self.position,
            "base_offset": h.base_offset,
            "last_offset": h.last_offset,
            "records": h.record_count,
            "size_bytes": h.size_bytes,
            "leader_epoch": h.partition_leader_epoch,
            "producer_id": h.producer_id,
            "producer_epoch": h.producer_epoch,
            "base_sequence": h.base_sequence,
            "compression": CODECS[h.compression],
            "is_transactional": h.is_transactional,
            "is_control": h.is_control,
            "marker": self.marker or None,
            "max_timestamp": h.max_timestamp,
            "problem": self.problem or None,
        }


def dump_segment(name: str, data: bytes, *, deep: bool = False) -> Iterator[DumpedBatch]:
    """Yield the batches in the bytes `data` of a segment. `deep` also decodes their records.

    Raises CorruptMessage at an invalid batch header.
    """
    expected = -1
    for position, header in iterate_batches(data):
        marker, problem, records = "", "", ()
        try:
            check_crc(data, position, header)
            if header.base_offset < expected:
                problem = f"offset {header.base_offset} after {expected - 1}"
            if header.is_control:
                kind, coordinator_epoch = decode_marker(data, position)
                marker = f"{kind.name} marker, coordinator epoch {coordinator_epoch}"
            elif deep:
                records = tuple(decode_batch(data, position))
        except KafkaError as found:
            problem = str(found)
        expected = header.next_offset
        yield DumpedBatch(name, position, header, marker, problem, records)


def segments(place: Path) -> list[Path]:
    """Return the segment files of a path, which is a .log file or a partition's folder."""
    return [place] if place.is_file() else sorted(place.glob("*.log"))
