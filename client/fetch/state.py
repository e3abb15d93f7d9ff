"""The fetched data of one partition, and the visibility of its records (KIP-98).

The file does no I/O. A fetch answers with whole batches, the first of which may begin before the
requested offset. Control batches are never shown. Under read_committed the broker stops at the last
stable offset and names the aborted transactions. A batch is dropped if its producer has an aborted
transaction that began at or before the batch, and if the abort marker comes later.

An answer is loaded unread and decoded batch by batch as records are requested. The position
therefore covers the records that the application has received, never the records fetched ahead.
Unreadable data is dropped and fetched again from the position, so no record is skipped.

Each position has the leader epoch of the record before it. When a leader with another epoch is
known, the position is first checked against that leader's log (KIP-320, `epoch_queries`).
"""

from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from ...wire.control_record import ControlType, decode_marker
from ...wire.errors import InvalidRecord, KafkaError
from ...wire.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    check_crc,
    decode_header,
    iterate_batches,
)
from .record_columns import RecordColumns, read_columns
from .record_reader import ConsumerRecord, read_records

NO_EPOCH = -1


class RawBatch(NamedTuple):
    """A batch as it is in the log, for audits.

    is_aborted: whether the transaction of the batch was aborted.
    """

    topic: str
    partition: int
    header: BatchHeader
    data: memoryview
    is_aborted: bool

    def columns(self, from_offset: int = 0, until_offset: int | None = None) -> RecordColumns:
        """Return the batch's records between two offsets, or raise InvalidRecord.

        A control batch raises InvalidRecord too.
        """
        if self.header.is_control:
            raise InvalidRecord("a control batch holds a marker, no records")
        whole = read_columns(self.topic, self.partition, self.data, 0, self.header)
        return whole.between(from_offset, until_offset)


class Mark(NamedTuple):
    """A saved state of a partition, from before a poll."""

    position: int
    position_epoch: int
    drops: int
    data: memoryview | None
    at: int
    answers: tuple[tuple[memoryview, Sequence[tuple[int, int]]], ...]
    upcoming: tuple[tuple[int, int], ...]
    aborting: frozenset[int]


class FetchState:
    """A partition that is fetched, with its position and the data that was not returned yet."""

    def __init__(self, topic: str, partition: int, position: int) -> None:
        self.topic, self.partition, self.position = topic, partition, position
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        self.is_paused = False  # by the application
        self.is_frozen = False  # about to be revoked
        self.fetch_offset = position  # the offset of the next fetch
        self.position_epoch = self.fetch_epoch = NO_EPOCH  # of the records before these offsets
        self.checked_epoch = NO_EPOCH  # the leader's epoch when the position was checked
        self.settled = position, NO_EPOCH  # the position when the last poll began
        self._answers: deque[tuple[memoryview, Sequence[tuple[int, int]]]] = deque()
        self._ready: deque[ConsumerRecord] = deque()  # the rest of a batch that exceeded a limit
        self._data: memoryview | None = None
        self._at = self._batch_at = 0
        self._next_offset = position  # after the last decoded batch
        self._upcoming: deque[tuple[int, int]] = deque()
        self._aborting: set[int] = set()
        self._drops = 0  # how often fetched data was dropped

    @property
    def answers_waiting(self) -> int:
        """The number of fetched answers that were not read yet."""
        return len(self._answers)

    @property
    def has_data(self) -> bool:
        """Whether some fetched data has not been returned yet."""
        return self._data is not None or bool(self._ready or self._answers)

    @property
    def buffered_bytes(self) -> int:
        """The size of fetched data that has not been returned yet, in bytes."""
        begun = len(self._data) - self._at if self._data is not None else 0
        return begun + sum(len(data) for data, _ in self._answers)

    @property
    def is_read(self) -> bool:
        """Return whether the partition is read, so neither paused nor about to be revoked."""
        return not (self.is_paused or self.is_frozen)

    def seek(self, offset: int, leader_epoch: int = NO_EPOCH) -> None:
        """Read from another offset. `leader_epoch` is the epoch of the record before, if known."""
        self.position, self.position_epoch = offset, leader_epoch
        self.checked_epoch = NO_EPOCH
        self.settle()
        self.drop_fetched()

    def settle(self) -> None:
        """Record that the application has finished all records it received."""
        self.settled = self.position, self.position_epoch

    def mark(self) -> Mark:
        """Return the current state, for `back_to`."""
        return Mark(
            self.position,
            self.position_epoch,
            self._drops,
            self._data,
            self._batch_at if self._ready else self._at,  # as `_rewind` does
            tuple(self._answers),
            tuple(self._upcoming),
            frozenset(self._aborting),
        )

    def back_to(self, mark: Mark) -> None:
        """Restore a state that `mark` returned. Dropped data is fetched again."""
        if mark.drops != self._drops:
            self.seek(mark.position, mark.position_epoch)
            return
        begun = [each for each in mark.answers if all(each is not a for a in self._answers)]
        self._answers.extendleft(reversed(begun))
        self._ready.clear()
        self._data, self._at = mark.data, mark.at
        self._upcoming, self._aborting = deque(mark.upcoming), set(mark.aborting)
        self.position, self.position_epoch = mark.position, mark.position_epoch

    def drop_fetched(self) -> None:
        """Drop all fetched data, so that the next fetch begins at the position."""
        self._drops += 1
        self.fetch_offset = self._next_offset = self.position
        self.fetch_epoch = self.position_epoch
        self._data = None
        self._answers.clear()
        self._ready.clear()

    def needs_check(self, leader_epoch: int) -> bool:
        """Return whether the leader's log must be compared with the position before the next fetch.

        A leader epoch that was not compared yet requires this, also a lower one, because the topic
        may have been created again.
        """
        return self.fetch_epoch >= 0 and leader_epoch != self.checked_epoch

    def is_truncated(self, known_epoch: int, end_offset: int, leader_epoch: int) -> bool:
        """Return whether a log lacks records that a poll has returned.

        The leader, whose epoch is `leader_epoch`, knows `known_epoch` as the last epoch up to
        `fetch_epoch`, and the end of that epoch (-1 if it knows none). A log that lacks only data
        fetched ahead has that data dropped. If nothing is lacking, the leader counts as checked.
        """
        knows = known_epoch >= self.fetch_epoch
        if knows and end_offset >= self.fetch_offset:
            self.checked_epoch = leader_epoch
            return False
        if end_offset < self.position or known_epoch < self.position_epoch:
            return True
        self.drop_fetched()  # only data fetched ahead is lost
        return False

    def load(
        self,
        data: Buffer,
        aborted: Sequence[tuple[int, int]] | None,
        leader_epoch: int = NO_EPOCH,
    ) -> None:
        """Add the answer to a fetch from `fetch_offset`.

        `leader_epoch` is the epoch of the leader that sent the answer.
        """
        view = memoryview(data)
        last = None
        for _, header in iterate_batches(view):
            last = header
        if last is not None:
            self.fetch_offset, self.fetch_epoch = last.next_offset, last.partition_leader_epoch
            self.checked_epoch = max(self.checked_epoch, leader_epoch)
            self._answers.append((view, aborted or ()))

    def take(self, count_max: int, *, read_committed: bool) -> list[ConsumerRecord]:
        """Return at most `count_max` records of the next visible batch, or [] without fetched data.

        Raises CorruptMessage for a wrong checksum, InvalidRecord for unreadable records.
        """
        while not self._ready:
            raw = self._next_batch()
            if raw is None:
                return []
            at, header, is_aborted = raw
            data = self._data
            assert data is not None
            records: list[ConsumerRecord] = []
            if not (header.is_control or (read_committed and is_aborted)):
                with self._or_again():
                    records = read_records(
                        self.topic, self.partition, data, at, header, self.position
                    )
            self._next_offset = header.next_offset
            self.position_epoch = header.partition_leader_epoch
            if len(records) <= count_max:
                self.position = header.next_offset
                if records:
                    return records
            else:
                self._ready.extend(records)
        ready = self._ready
        taken = [ready.popleft() for _ in range(min(count_max, len(ready)))]
        self.position = ready[0].offset if ready else self._next_offset
        return taken

    def take_columns(self, *, read_committed: bool) -> RecordColumns | None:
        """Return the rest of the next visible batch, or None when all answers are used up.

        Raises as `take` does.
        """
        self._rewind()
        while (raw := self._next_batch()) is not None:
            at, header, is_aborted = raw
            data, columns = self._data, None
            assert data is not None
            if not (header.is_control or (read_committed and is_aborted)):
                with self._or_again():
                    columns = read_columns(self.topic, self.partition, data, at, header)
                columns = columns.between(self.position)
            self._has_given(header)
            if columns is not None and columns.values:
                return columns
        return None

    def take_raw(self) -> RawBatch | None:
        """Return the next batch of any kind unchanged, or None when all fetched data is used up."""
        self._rewind()
        raw = self._next_batch()
        if raw is None:
            return None
        at, header, is_aborted = raw
        assert self._data is not None
        data = self._data[at : at + header.size_bytes]
        self._has_given(header)
        return RawBatch(self.topic, self.partition, header, data, is_aborted)

    def _has_given(self, header: BatchHeader) -> None:
        self._next_offset = self.position = header.next_offset
        self.position_epoch = header.partition_leader_epoch

    @contextmanager
    def _or_again(self) -> Generator[None, None, None]:
        """Drop the fetched data if the context raises an error of unreadable data.

        The data is then fetched again, so no record is skipped.
        """
        try:
            yield
        except KafkaError:
            self.drop_fetched()
            raise

    def _rewind(self) -> None:
        """Return to the start of a batch of which `take` has returned some records."""
        if self._ready:
            self._ready.clear()
            self._at = self._batch_at

    def _next_batch(self) -> tuple[int, BatchHeader, bool] | None:
        """Return the next unread batch as (place, header, whether its transaction was aborted).

        Return None at the end of the fetched data.
        """
        while self._data is not None or self._begin_answer():
            data, at = self._data, self._at
            assert data is not None
            if at + HEADER_BYTES > len(data):
                self._data = None
                continue
            header = decode_header(data, at)
            self._batch_at, self._at = at, at + header.size_bytes
            if self._at > len(data):  # a partial last batch
                self._data = None
                continue
            if header.next_offset <= self.position:
                continue
            with self._or_again():
                check_crc(data, at, header)
            upcoming, aborting = self._upcoming, self._aborting
            while upcoming and upcoming[0][1] <= header.last_offset:
                aborting.add(upcoming.popleft()[0])
            is_aborted = header.is_transactional and header.producer_id in aborting
            if header.is_control and decode_marker(data, at)[0] is ControlType.ABORT:
                aborting.discard(header.producer_id)
            return at, header, is_aborted
        return None

    def _begin_answer(self) -> bool:
        if not self._answers:
            return False
        self._data, aborted = self._answers.popleft()
        self._at = 0
        self._upcoming = deque(sorted(aborted, key=lambda a: a[1]))
        self._aborting.clear()  # each answer names all aborted transactions in its range
        return True
