"""What a reader has of each partition, and which records it may see (KIP-98).

Pure. A fetch answers with whole batches, the first of which may begin before the asked offset.
Control batches are never shown. Under read_committed the broker stops at the last stable offset and
names the aborted transactions; a batch is dropped when its producer has an aborted transaction that
began at or before it and whose abort marker has not been met yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..wire.control_record import ControlType, decode_marker
from ..wire.record_batch import Buffer, check_crc, iterate_batches
from ..wire.records import Record, decode_batch


@dataclass(slots=True)
class FetchState:
    """One partition: the next offset to ask for, and what the last answer said."""

    position: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    _aborting: set[int] = field(default_factory=set[int])

    def seek(self, offset: int) -> None:
        """Read from another offset."""
        self.position = offset
        self._aborting.clear()

    def take(
        self,
        records: Buffer,
        aborted_transactions: Sequence[tuple[int, int]] | None,
        *,
        read_committed: bool,
    ) -> list[Record]:
        """The records that the reader may see; moves the position behind the last whole batch.

        Raises CorruptMessage when a checksum does not fit.
        """
        upcoming = sorted(aborted_transactions or (), key=lambda a: a[1])
        self._aborting.clear()  # the answer names every transaction that touches its range
        seen: list[Record] = []
        for at, header in iterate_batches(records):
            if header.next_offset <= self.position:
                continue
            check_crc(records, at, header)
            while upcoming and upcoming[0][1] <= header.last_offset:
                self._aborting.add(upcoming.pop(0)[0])
            if header.is_control:
                marker, _ = decode_marker(records, at)
                if marker is ControlType.ABORT:
                    self._aborting.discard(header.producer_id)
            elif not (
                read_committed and header.is_transactional and header.producer_id in self._aborting
            ):
                seen += [r for r in decode_batch(records, at) if r.offset >= self.position]
            self.position = header.next_offset
        return seen
