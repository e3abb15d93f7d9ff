"""Producer state rebuilt from snapshots and batches, when a log is opened or truncated.

Producer state is the newest earlier snapshot plus a replay of the later headers. A snapshot has
only the last batch of a producer, so the windows of five batches are filled from earlier batches.
Kafka does not fill the windows, and a retry after a clean restart fails in Kafka. The transaction
indexes then show which of these batches were aborted.

Slow functions are generators (see runtime/steps.py).
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ...runtime.steps import Steps
from ...wire.control_record import ControlType, decode_marker
from ...wire.errors import CorruptMessage
from ...wire.record_batch import CONTROL_BIT, BatchHeader
from ..corrupt_file import INDEX_TROUBLE
from ..segments.entry_checks import REBUILT
from ..segments.index import CorruptIndex
from ..segments.log_file import Buffer, scan_headers
from ..segments.segment import Segment
from ..segments.segment_list import SegmentList
from ..segments.transaction_index import AbortedTransaction
from .snapshot_files import SnapshotFiles
from .state import ProducerStateTable

logger = logging.getLogger(__name__)

# The limits for filling the windows of five batches, for several producers with more than five
# batches in flight together. Producers with older batches have no retry waiting.
REFILL_BYTES_MAX = 8 << 20
REFILL_BATCHES_MAX = 4096
_REFILL_STEP_BYTES = 64 << 10
ABORTED_MAX = 16_384  # the limit of aborted transactions that are compared with the windows
HEADERS_A_STEP = 128  # some 0.3 ms


def load_producers(
    segments: SegmentList,
    snapshots: SnapshotFiles,
    end_offset: int,
    now_ms: int,
    high_watermark: int = 0,
) -> Steps[ProducerStateTable]:
    """Load producer state as of `end_offset` from the newest snapshot and the batches after it.

    Transactions with markers below `high_watermark` are removed on the way, since the first fetch
    would remove all of them at once.

    A snapshot below the log start is also used (Kafka drops it), because a producer's last sequence
    is needed even after its records were deleted.
    """
    producers = ProducerStateTable(min(segments.first.base_offset, end_offset))
    newest = snapshots.newest(at_most=end_offset)
    if newest is not None:
        logger.info(
            "%s: the producer state is loaded from the snapshot at offset %d and the "
            "batches up to offset %d",
            segments.first.directory.name,
            newest[0],
            end_offset,
        )
        yield from producers.loading_entries(newest[1], newest[0], now_ms)
        if len(producers):
            headers = yield from _headers_before(segments, newest[0])
            yield
            yield from producers.refilling_windows(headers)
            yield from _mark_aborted(producers, segments, newest[0])

    def replay(segment: Segment, position: int, header: BatchHeader) -> None:
        read = partial(segment.file.read, position, header.size_bytes)
        take_in(producers, header, header.base_offset, read, now_ms)
        producers.advance_high_watermark(high_watermark)

    yield from walk_headers(segments, producers.end_offset, end_offset, replay)
    producers.skip_to(end_offset)
    return producers


def take_in(
    producers: ProducerStateTable,
    header: BatchHeader,
    base_offset: int,
    batch: Buffer | Callable[[], Buffer],
    now_ms: int,
    note_aborted: Callable[[AbortedTransaction], object] | None = None,
) -> None:
    """Apply a batch of the log to the producer state. `batch` is read only for a marker.

    A control batch without records is a marker that compaction emptied, and is skipped. An aborted
    transaction is passed to `note_aborted`, the transaction index, before readers may pass it.
    """
    if not header.attributes & CONTROL_BIT:
        producers.append(header, base_offset, now_ms)
        return
    if header.record_count == 0:
        producers.skip_to(base_offset + header.last_offset_delta + 1)
        return
    control_type, coordinator_epoch = decode_marker(batch() if callable(batch) else batch)
    completed = producers.append_marker(
        header.producer_id,
        header.producer_epoch,
        coordinator_epoch,
        is_aborted=control_type is ControlType.ABORT,
        offset=base_offset,
        timestamp=header.max_timestamp,
        now_ms=now_ms,
    )
    if completed is None:
        return
    if completed.is_aborted and note_aborted is not None:
        note_aborted(
            AbortedTransaction(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                completed.last_stable_offset,
            )
        )
    producers.complete_transaction(completed)


def walk_headers(
    segments: SegmentList,
    start_offset: int,
    end_offset: int,
    take: Callable[[Segment, int, BatchHeader], object],
) -> Steps[None]:
    """Call `take` with (segment, position, header) of each batch that begins in these offsets."""
    count = 0
    for segment in segments.from_floor(start_offset):
        if segment.base_offset >= end_offset:
            return
        found = segment.position_of(start_offset)
        if found is None:
            continue
        for position, header in scan_headers(segment.file, found[0], segment.size_bytes):
            if header.base_offset >= end_offset:
                return
            if header.base_offset >= start_offset:
                take(segment, position, header)
                count += 1
                if count % HEADERS_A_STEP == 0:
                    yield
            if header.next_offset >= end_offset:
                return  # the file may be incomplete after this


def _mark_aborted(
    producers: ProducerStateTable, segments: SegmentList, end_offset: int
) -> Steps[None]:
    """Mark the aborted batches in the windows of producers loaded from a snapshot at `end_offset`.

    An unreadable index is skipped. Then a batch with the sequences of an aborted one may be taken
    for its duplicate, as in Kafka.
    """
    left = ABORTED_MAX
    for segment in reversed(list(segments)):
        if segment.base_offset >= end_offset:
            continue
        with suppress(*INDEX_TROUBLE):
            for block in segment.transaction_index.newest_first(end_offset):
                for producer_id, first_offset, last_offset, _ in block:
                    if last_offset < end_offset:
                        producers.mark_aborted(producer_id, first_offset, last_offset)
                left -= len(block)
                if left <= 0:
                    return
                yield


def _headers_before(segments: SegmentList, end_offset: int) -> Steps[list[tuple[int, BatchHeader]]]:
    """Return the last data batches with producer ids before `end_offset`.

    The batches are (base offset, header), oldest first. The search goes backwards by index entries,
    through at most REFILL_BYTES_MAX bytes and REFILL_BATCHES_MAX batches. Raises CorruptIndex if an
    index of an inactive segment does not lead to its batches, or if one of them is damaged.
    """
    pieces: list[list[tuple[int, BatchHeader]]] = []
    bytes_left, batches_left = REFILL_BYTES_MAX, REFILL_BATCHES_MAX
    for segment in reversed(list(segments)):
        if segment.base_offset >= end_offset:
            continue
        if bytes_left <= 0 or batches_left <= 0:
            break
        try:
            found = segment.position_of(end_offset)
            end = segment.size_bytes if found is None else found[0]
            while end > 0 and bytes_left > 0 and batches_left > 0:
                step_bytes = min(_REFILL_STEP_BYTES, bytes_left)
                _, start = segment.offset_index.lookup_position(end - step_bytes)
                headers = [header for _, header in scan_headers(segment.file, start, end)]
                bytes_left -= end - start
                batches_left -= len(headers)
                pieces.append(
                    [
                        (header.base_offset, header)
                        for header in headers
                        if header.producer_id >= 0 and not header.attributes & CONTROL_BIT
                    ]
                )
                end = start
                yield
        except CorruptMessage as problem:
            if segment is segments.active:
                raise
            raise CorruptIndex(segment.offset_index.path, str(problem), REBUILT) from problem
    return [each for piece in reversed(pieces) for each in piece]
