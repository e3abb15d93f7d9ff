"""A transaction index that cannot be read is made again from the batches, while the log goes on.

What was aborted in a segment follows from the producers as they were at its begin, and its batches.
The three steps are those of everything that waits for a disk: work in slices, `write` in an
executor, and on the loop again a rename, if the segment is as it was.
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
    """The new transaction index of one segment, which nobody appends to."""

    def __init__(self, segment: Segment, transactions: list[AbortedTransaction]) -> None:
        self.segment = segment
        self._size_bytes = segment.size_bytes
        self._content = encode(transactions)
        self._path = segment.transaction_index.path
        self._temporary = self._path.with_name(self._path.name + TEMPORARY_SUFFIX)

    def write(self) -> None:
        """Bring it to the disk under another name (blocks). Raises OSError."""
        try:
            with opened(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
                write_all(fd, self._content)
                os.fsync(fd)
        except OSError:
            self.discard()
            raise

    def discard(self) -> None:
        """It is not to be used."""
        with suppress(OSError):
            self._temporary.unlink()

    def swap_in(self, segments: SegmentList) -> None:
        """Let the segment have it, unless it was cut, cleaned or dropped. Raises OSError."""
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
    """Read a segment, which ends at `end_offset`, once more."""
    producers = yield from load_producers(segments, snapshots, segment.base_offset, now_ms)
    aborted: list[AbortedTransaction] = []

    def replay(segment: Segment, position: int, header: BatchHeader) -> None:
        read = partial(segment.file.read, position, header.size_bytes)
        take_in(producers, header, header.base_offset, read, now_ms, aborted.append)

    yield from walk_headers(segments, segment.base_offset, end_offset, replay)
    return IndexMending(segment, aborted)
