"""The repair of an unreadable transaction index from the batches, while the log is in use.

The aborted transactions of a segment are derived from the producers at its start and from its
batches. The repair has three steps, which are a read in slices, `write` in an executor, and a
rename on the event loop if the segment is unchanged.
"""

import os
from contextlib import suppress
from functools import partial

from ...runtime.steps import Steps
from ...wire.record_batch import BatchHeader
from ..checkpoint import TEMPORARY_SUFFIX
from ..producers.recovery import load_producers, take_in, walk_headers
from ..producers.snapshot_files import SnapshotFiles
from .open_file import opened, write_all
from .segment import Segment
from .segment_list import SegmentList
from .transaction_index import AbortedTransaction, TransactionIndex, encode


class IndexMending:
    """A new transaction index that replaces the unreadable one of an inactive segment."""

    def __init__(self, segment: Segment, transactions: list[AbortedTransaction]) -> None:
        self.segment = segment
        self._size_bytes = segment.size_bytes
        self._content = encode(transactions)
        self._path = segment.transaction_index.path
        self._temporary = self._path.with_name(self._path.name + TEMPORARY_SUFFIX)

    def write(self) -> None:
        """Write the index to the disk under another name (blocks), or raise OSError."""
        try:
            with opened(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
                write_all(fd, self._content)
                os.fsync(fd)
        except OSError:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove the written file without using it."""
        with suppress(OSError):
            self._temporary.unlink()

    def swap_in(self, segments: SegmentList) -> None:
        """Replace the segment's index, or drop the new index if the segment has changed.

        Raises OSError.
        """
        segment = self.segment
        is_there = segments.floor(segment.base_offset) is segment
        if is_there and segment is not segments.active and segment.size_bytes == self._size_bytes:
            os.replace(self._temporary, self._path)
            segment.transaction_index = TransactionIndex(self._path, segment.base_offset)
        else:
            self.discard()


def mending(
    segments: SegmentList, snapshots: SnapshotFiles, segment: Segment, end_offset: int, now_ms: int
) -> Steps[IndexMending]:
    """Rebuild the transaction index of a segment that ends at `end_offset`."""
    producers = yield from load_producers(segments, snapshots, segment.base_offset, now_ms)
    aborted: list[AbortedTransaction] = []

    def replay(segment: Segment, position: int, header: BatchHeader) -> None:
        read = partial(segment.file.read, position, header.size_bytes)
        take_in(producers, header, header.base_offset, read, now_ms, aborted.append)

    yield from walk_headers(segments, segment.base_offset, end_offset, replay)
    return IndexMending(segment, aborted)
