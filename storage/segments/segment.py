"""One segment, a .log file of record batches with its three indexes.

The file is named by its base offset. Batches follow one another with rising offsets. Every offset
is less than 2^31 above the base offset, because the indexes store the difference.

Index entries depend only on the bytes of the .log file, on every replica (leader, follower, or
recovery). A batch gets an entry if more than index.interval.bytes are between its start and the
start of the previous batch with an entry. An entry has the batch's last offset and its position.
The time index gets the largest timestamp so far at the same time. A closed segment gets one more
time entry, so that retention finds its largest timestamp. The entry is removed when the segment is
opened for appending again.
"""

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from ...runtime.steps import Steps
from ...wire.errors import CorruptMessage
from ...wire.record_batch import HEADER_BYTES, BatchHeader
from ..checkpoint import TEMPORARY_SUFFIX
from ..disk_guard import OUT_OF_RESOURCES
from ..log_config import LogConfig
from ..topic_configs import INT_MAX
from .advanced_clock import AdvancedSince, never_advanced
from .entry_checks import REBUILT, check_time_entry, checking_aborts
from .index import NO_TIMESTAMP, CorruptIndex, KeptEntries, OffsetIndex, TimeIndex
from .log_file import Buffer, LogFile, check_crcs, scan_batches, scan_headers
from .transaction_index import TransactionIndex

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """Return the path of a segment's file, with twenty digits of its base offset and the suffix."""
    return directory / f"{base_offset:020d}{suffix}"


def _jitter_ms(directory: Path, base_offset: int, config: LogConfig) -> int:
    """Return the time by which a segment is rolled earlier than segment.ms (segment.jitter.ms)."""
    bound_ms = min(config.segment_jitter_ms, config.segment_ms)
    return crc32(f"{directory.name}/{base_offset}".encode()) % bound_ms if bound_ms else 0


class KeptBatches(NamedTuple):
    """The batches that remain after a truncation of a segment (see `Segment.kept_below`)."""

    size_bytes: int
    next_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    offset_index: KeptEntries
    time_index: KeptEntries
    transactions: int


class Segment:
    """One segment of a log, which begins at `base_offset` and can be appended to and read.

    Methods raise OSError, which the log turns into its failure. `created_ms` is wall-clock time,
    used as the first timestamp of records without timestamps.
    """

    @staticmethod
    def remove_files(directory: Path, base_offset: int, suffix: str = "") -> None:
        """Remove the files that an earlier segment with this base offset may have left."""
        for kind in SUFFIXES:
            segment_path(directory, base_offset, kind + suffix).unlink(missing_ok=True)

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        config: LogConfig,
        now_ms: int,
        *,
        suffix: str = "",
    ) -> None:
        """Open the .log file and the indexes, and create those missing (no transaction index).

        Only the last index entries are read here. `suffix` is appended to every name while the
        segment is not part of its log yet.
        """
        self.directory = directory
        self.base_offset = base_offset
        self._suffix = suffix
        paths = self.paths()
        self.file = LogFile(paths[0])
        self.size_bytes = self.file.size_on_disk()
        self._index_bytes_max = config.segment_index_bytes
        self._lacks_index = not all(path.exists() for path in paths[1:3])
        is_damaged = self._lacks_index and self.size_bytes > 0
        self._open_indexes(TEMPORARY_SUFFIX if is_damaged else "")
        # For the active segment only; others end at the next segment's base.
        self.next_offset = base_offset
        self.first_batch_timestamp: int | None = None
        self._max_timestamp: int | None = NO_TIMESTAMP if self.size_bytes == 0 else None
        self.offset_of_max_timestamp = base_offset
        self.created_ms = now_ms
        self._index_interval_bytes = config.index_interval_bytes
        self._last_indexed_position = 0
        self.written_back_bytes = self.size_bytes  # the kernel was asked to write these bytes
        self._jitter_ms = _jitter_ms(directory, base_offset, config)

    def _open_indexes(self, suffix: str = "") -> None:
        _, offset_path, time_path, transaction_path = self.paths()
        offset_path = offset_path.with_name(offset_path.name + suffix)
        time_path = time_path.with_name(time_path.name + suffix)
        self.offset_index = OffsetIndex(offset_path, self.base_offset, self._index_bytes_max)
        self.time_index = TimeIndex(time_path, self.base_offset, self._index_bytes_max)
        self.transaction_index = TransactionIndex(transaction_path, self.base_offset)

    # -- appending ---------------------------------------------------------------------------

    def should_roll(
        self,
        config: LogConfig,
        batch_bytes: int,
        max_timestamp: int,
        last_offset: int,
        now_ms: int,
        advanced_since_ms: AdvancedSince = never_advanced,
    ) -> bool:
        """Return whether a batch needs a new segment, by size, by time, or by full indexes."""
        size_bytes = self.size_bytes
        if (
            size_bytes > config.segment_bytes - batch_bytes
            or last_offset - self.base_offset > INT_MAX
        ):
            return True
        if size_bytes == 0:
            return False
        first_timestamp = self.first_batch_timestamp
        if first_timestamp is None:
            first_timestamp = self.find_first_timestamp()
        if first_timestamp > NO_TIMESTAMP:
            waited_ms = max_timestamp - first_timestamp
            if advanced_since_ms is not never_advanced:
                waited_ms += advanced_since_ms(first_timestamp) - advanced_since_ms(max_timestamp)
        else:
            waited_ms = now_ms - self.created_ms + advanced_since_ms(self.created_ms)
        offset_index, time_index = self.offset_index, self.time_index
        return (  # is_full is inlined, since every batch calls it
            waited_ms > config.segment_ms - self._jitter_ms
            or offset_index.count >= offset_index.full_count
            or time_index.count >= time_index.full_count
        )

    def write(self, records: Buffer) -> None:
        """Write bytes after the last batch. `add_batch` then adds their batches.

        After a failed write the bytes are removed. If a later write replaced only their start, a
        restart might find one of the unremoved batches.
        """
        try:
            self.file.write_at(self.size_bytes, records)
        except OSError:
            self.file.truncate(self.size_bytes)
            raise

    def add_batch(self, batch_bytes: int, last_offset: int, max_timestamp: int) -> None:
        """Add a batch, after `write`, to the indexes and to the segment's state."""
        position = self.size_bytes
        if position == 0:
            self.first_batch_timestamp = max_timestamp
        largest_timestamp = self._max_timestamp
        if largest_timestamp is None:
            largest_timestamp = self.max_timestamp
        if max_timestamp > largest_timestamp:
            self._max_timestamp = largest_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if position - self._last_indexed_position > self._index_interval_bytes:
            if self.offset_index.has_full_tail:
                try:
                    self.write_out()
                except OSError as problem:
                    if problem.errno not in OUT_OF_RESOURCES:
                        raise
            self.time_index.append(largest_timestamp, self.offset_of_max_timestamp)
            self.offset_index.append(last_offset, position)
            self._last_indexed_position = position
        self.size_bytes = position + batch_bytes
        self.next_offset = last_offset + 1

    def become_inactive(self) -> None:
        """Close the segment for appending. Add the last time entry, and free preallocated space."""
        if self.max_timestamp > NO_TIMESTAMP:
            self.time_index.append(self.max_timestamp, self.offset_of_max_timestamp)
        if self.file.size_on_disk() > self.size_bytes:
            self.file.truncate(self.size_bytes)
        self.write_out()

    # -- reading -----------------------------------------------------------------------------

    @property
    def max_timestamp(self) -> int:
        """Return the largest timestamp in the segment, or NO_TIMESTAMP."""
        if self._max_timestamp is None:
            newest = check_time_entry(self, self.time_index.last_entry)
            self._max_timestamp, self.offset_of_max_timestamp = newest
        return self._max_timestamp

    def position_of(self, offset: int) -> tuple[int, int, int] | None:
        """Find the batch that holds `offset`, or the first batch after it.

        Returns (position, size in bytes, base offset), or None if all batches are below. If no
        batch holds `offset`, the batches before are checked, since a damaged header may hide the
        right batch.
        """
        start, end, next_offset, found = -1, self.size_bytes, self.base_offset, None
        for position, header in self.headers_near(offset):
            start, base_offset = (position if start < 0 else start), header.base_offset
            if base_offset < next_offset:
                raise CorruptMessage(f"{self.file.path}: {base_offset} after {next_offset}")
            next_offset = header.next_offset
            if next_offset > offset:
                found = position, header.size_bytes, base_offset
                if base_offset <= offset:
                    return found
                end = position + header.size_bytes
                break
        check_crcs(self.file, max(start, 0), end)
        return found

    def headers_near(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """Return (position, header) of the last indexed batch up to `offset`, and of all after it.

        Raises CorruptMessage if the index names another batch at this position, since a reader
        could miss batches then.
        """
        last_offset, start = self.offset_index.lookup(offset)
        is_within = 0 <= start < self.size_bytes
        headers = scan_headers(self.file, start, self.size_bytes) if is_within else iter(())
        if start:
            first = next(headers, None)
            if first is None or first[1].last_offset != last_offset:
                path = self.offset_index.path
                raise CorruptMessage(f"{path}: no batch up to {last_offset} begins at {start}")
            return chain((first,), headers)
        return headers

    def offset_near(self, timestamp_ms: int) -> int:
        """Return an offset up to which all records have at most this timestamp."""
        return check_time_entry(self, self.time_index.lookup(timestamp_ms))[1]

    # -- opening, cutting, closing -----------------------------------------------------------

    def rewind_to(self, offset: int) -> None:
        """Restore the state after the last indexed batch below `offset`.

        Recovery adds the following batches again. Raises CorruptIndex or CorruptMessage if no such
        batch is at the position of the index.
        """
        self.transaction_index.truncate_to(offset)
        self.offset_index.truncate_to(offset)
        size_on_disk = self.file.size_on_disk()
        self.offset_index.truncate_to_position(size_on_disk)
        last_offset, position = self.offset_index.last_entry
        self.size_bytes, self.next_offset = 0, self.base_offset
        if self.offset_index.count:
            batches = scan_batches(self.file, position, size_on_disk, HEADER_BYTES)
            _, header, _ = next(batches, (0, None, None))
            if header is None or header.last_offset != last_offset:
                path = self.offset_index.path
                raise CorruptIndex(path, f"no batch ends with {last_offset}", REBUILT)
            self.size_bytes, self.next_offset = position + header.size_bytes, last_offset + 1
        self.time_index.truncate_to(self.next_offset)
        self._last_indexed_position = position
        newest = check_time_entry(self, self.time_index.last_entry)
        self._max_timestamp, self.offset_of_max_timestamp = newest

    def checking(self) -> Steps[None]:
        """Raise CorruptIndex or CorruptTransactionIndex unless the indexes are consistent."""
        if self._lacks_index and self.size_bytes:
            raise CorruptIndex(self.offset_index.path, "it was missing", REBUILT)
        self.offset_index.check()
        self.time_index.check()
        yield from self.transaction_index.checking()
        yield from checking_aborts(self)

    def check_newest(self, entry: tuple[int, int], *, is_as_closed: bool) -> None:
        """Check the newest entry of the time index, as it was before recovery read the batches.

        After a clean shutdown (`is_as_closed`) the entry must have the segment's largest timestamp,
        because the close adds such an entry. Raises CorruptIndex.
        """
        if entry == (self.max_timestamp, self.offset_of_max_timestamp):
            return  # the recovery has found its batch
        if is_as_closed:
            raise CorruptIndex(self.time_index.path, f"{entry} is not the newest", REBUILT)
        check_time_entry(self, entry)

    def drop_torn_entries(self) -> None:
        """Remove the partial last index entries that a killed process may have left."""
        for index in (self.offset_index, self.time_index, self.transaction_index):
            index.drop_torn_entry()

    def start_over(self) -> None:
        """Empty the indexes and the state. Recovery adds the batches of the .log file again.

        The indexes have temporary names until `end_rebuild`. A kill leaves them missing, so that
        the next opening does not take incomplete indexes for those of the segment.
        """
        paths = dict.fromkeys([self.offset_index.path, self.time_index.path, *self.paths()[1:]])
        indexes = [path for path in paths if path.exists()]
        # Those of a new partition are empty.
        if self.size_bytes or any(path.stat().st_size for path in indexes):
            for path in indexes:
                path.unlink()
            self._open_indexes(TEMPORARY_SUFFIX)
        self.size_bytes = 0
        self.next_offset = self.base_offset
        self.first_batch_timestamp = None
        self._max_timestamp, self.offset_of_max_timestamp = NO_TIMESTAMP, self.base_offset
        self._last_indexed_position = 0

    def end_rebuild(self, *, must_sync: bool) -> None:
        """Give the indexes their names, after recovery has added all batches.

        must_sync: sync them first (blocks). Without this a power failure may leave the names of
        empty files, and recovery does not read every segment after it.
        """
        _, offset_path, time_path, transaction_path = self.paths()
        for index, path in (
            (self.transaction_index, transaction_path),
            (self.time_index, time_path),
            (self.offset_index, offset_path),
        ):
            if must_sync:
                index.flush()
            if index.path != path:
                os.rename(index.path, path)
                index.path = path

    def kept_below(self, offset: int) -> KeptBatches:
        """Return the batches that remain if every batch with a record from `offset` on is removed.

        The segment then ends with the last remaining batch, as after a restart. That end is below
        `offset` if a batch spans `offset`, or if compaction left a gap. Everything that may need a
        file descriptor is done here, before anything is changed. The cost is
        O(index.interval.bytes).
        """
        found = self.position_of(offset)
        end, end_offset = (self.size_bytes, offset) if found is None else (found[0], found[2])
        offset_index = self.offset_index.kept_below(min(offset, end_offset))
        last_offset, position = offset_index.last_entry
        next_offset = last_offset + 1 if offset_index.entry_count else self.base_offset
        # Without the entry of a close, see above.
        time_index = self.time_index.kept_below(next_offset)
        newest_ms, newest_offset = time_index.last_entry
        next_offset, read_to = self.base_offset, position
        for at, header in scan_headers(self.file, position, end):
            if header.max_timestamp > newest_ms:
                newest_ms, newest_offset = header.max_timestamp, header.last_offset
            next_offset, read_to = header.last_offset + 1, at + header.size_bytes
        if read_to != end:
            raise CorruptIndex(self.offset_index.path, f"no batch begins at {read_to}", REBUILT)
        transactions = self.transaction_index.count
        if found is not None:  # else nothing is removed
            transactions = self.transaction_index.count_below(min(offset, end_offset))
        return KeptBatches(
            end, next_offset, newest_ms, newest_offset, offset_index, time_index, transactions
        )

    def truncate(self, kept: KeptBatches) -> None:
        """Remove everything except `kept`. Afterwards batches can be appended again."""
        if kept.size_bytes < self.size_bytes:
            self.file.truncate(kept.size_bytes)
        self.size_bytes, self.next_offset = kept.size_bytes, kept.next_offset
        self._max_timestamp, self.offset_of_max_timestamp = kept[2:4]
        self.offset_index.keep(kept.offset_index)
        self.time_index.keep(kept.time_index)
        self.transaction_index.keep(kept.transactions)
        self._last_indexed_position = kept.offset_index.last_entry[1]
        self.written_back_bytes = min(self.written_back_bytes, kept.size_bytes)
        if kept.size_bytes == 0:
            self.first_batch_timestamp = None

    def move_to(self, base_offset: int, now_ms: int) -> None:
        """Rename an empty segment to begin at another offset, without a file descriptor.

        The segment has moved once the .log file is renamed. If an index keeps its old name, the
        next start rebuilds the index.
        """
        log = segment_path(self.directory, base_offset, SUFFIXES[0])
        os.rename(self.file.path, log)
        self.file.path, self.created_ms = log, now_ms
        self.base_offset = self.next_offset = self.offset_of_max_timestamp = base_offset
        indexes = (self.offset_index, self.time_index, self.transaction_index)
        for index, path in zip(indexes, self.paths()[1:], strict=True):
            try:
                index.move_to(path, base_offset)
            except OSError as problem:
                if problem.errno not in OUT_OF_RESOURCES:
                    raise

    def take_final_names(self) -> None:
        """Record that the files were renamed and are part of the log now."""
        self._suffix = ""
        self.file.path, *paths = self.paths()
        indexes = (self.offset_index, self.time_index, self.transaction_index)
        for index, path in zip(indexes, paths, strict=True):
            index.path = path

    def flush(self) -> None:
        """Sync every file of an inactive segment (blocks)."""
        for file in (self.file, self.time_index, self.offset_index, self.transaction_index):
            file.flush()

    def write_out(self) -> None:
        """Write index entries in memory to their files.

        The offset index is written last, so that the others are complete up to its end.
        """
        self.transaction_index.close()
        self.time_index.close()
        self.offset_index.close()

    def delete(self) -> None:
        """Remove the files immediately. A reader in another thread may keep its open file."""
        self.remove_files(self.directory, self.base_offset, self._suffix)

    def paths(self) -> list[Path]:
        """Return the paths of the segment's files, whether or not they exist."""
        return [
            segment_path(self.directory, self.base_offset, suffix + self._suffix)
            for suffix in SUFFIXES
        ]

    def preallocate(self, segment_bytes: int) -> None:
        """Allocate `segment_bytes` on the disk for the .log file (topic config preallocate)."""
        if segment_bytes > self.size_bytes:
            os.posix_fallocate(self.file.fd, 0, segment_bytes)

    def last_modified_ms(self) -> int:
        """Return the time of the last write to the .log file, by the file system's clock."""
        return os.fstat(self.file.fd).st_mtime_ns // 1_000_000

    def find_first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch, or NO_TIMESTAMP without a batch."""
        if self.first_batch_timestamp is not None:
            return self.first_batch_timestamp
        for _, header in scan_headers(self.file, 0, self.size_bytes):
            self.first_batch_timestamp = header.max_timestamp
            return header.max_timestamp
        return NO_TIMESTAMP
