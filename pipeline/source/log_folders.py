"""The raw logs of nodes, read from their folders without a broker, for audits.

    DIR/TOPIC-PARTITION/00000000000000000000.log ...

Each segment is read by one task. A crash may leave a batch that is cut at the end of the last
segment, and reading stops there. Any other invalid batch is an error with its position. Indexes are
not read, so only the batches themselves count.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...client.fetch.record_columns import RecordColumns, read_columns
from ...wire.errors import CorruptMessage
from ...wire.record_batch import HEADER_BYTES, LENGTH_COUNTS_FROM, check_crc, decode_header
from .options import OptionError, SourceOptions, Where


@dataclass(frozen=True, slots=True)
class SegmentFile:
    replica: int
    topic: str
    partition: int
    file: str
    is_last: bool


def segments_of(options: SourceOptions) -> list[SegmentFile]:
    """Return the segment files of all wanted partitions. Raises OptionError if there are none."""
    if options.starting is not Where.EARLIEST or options.ending is not Where.LATEST:
        raise OptionError("log directories are read whole: leave out where to begin and to end")
    found: list[SegmentFile] = []
    for replica, folder in sorted(options.logs.items()):
        if not Path(folder).is_dir():
            raise OptionError(f"logs: there is no folder {folder}")
        for place in sorted(p for p in Path(folder).iterdir() if p.is_dir()):
            topic, _, number = place.name.rpartition("-")
            if not topic or not number.isdigit():
                continue
            if not options.topics.wants(topic, int(number), is_internal=topic.startswith("__")):
                continue
            files = sorted(place.glob("*.log"))
            found += [
                SegmentFile(replica, topic, int(number), str(file), file == files[-1])
                for file in files
            ]
    if not found:
        folders = ", ".join(options.logs.values())
        raise OptionError(f"logs: no partition of what is asked for has a segment in {folders}")
    return found


def read_segment(segment: SegmentFile) -> Iterator[RecordColumns]:
    """Yield the records of each batch, with markers, or raise CorruptMessage with the place."""
    with open(segment.file, "rb") as file:
        size = file.seek(0, 2)
        if not size:
            return
        with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
            at = 0
            while at < size:
                found = _read_batch(segment, data, at, size)
                if found is None:
                    return
                columns, at = found
                yield columns


def _read_batch(
    segment: SegmentFile, data: mmap.mmap, at: int, size: int
) -> tuple[RecordColumns, int] | None:
    try:
        if at + HEADER_BYTES <= size:
            length = int.from_bytes(data[at + 8 : at + 12], "big", signed=True)
            end = at + length + LENGTH_COUNTS_FROM
            if end <= size:
                batch = data[at:end]
                header = decode_header(batch)
                check_crc(batch, 0, header)
                columns = read_columns(segment.topic, segment.partition, batch, 0, header)
                return columns, end
        if segment.is_last:
            return None
        raise CorruptMessage("the batch is cut short, and further segments follow")
    except CorruptMessage as problem:
        raise CorruptMessage(f"{segment.file} at byte {at}: {problem}") from None
