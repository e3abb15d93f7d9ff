"""The write-ahead log of all Raft groups of a process, and its group commit.

Records are only collected on the event loop. `take` returns all waiting records as one batch,
`write` writes and syncs the batch (blocking, in an executor), and `finish` marks the batch as
durable. Only one batch is written at a time, so recovery can distinguish an incomplete last write
from damage. Votes, terms and truncations are records like entries, so the order on disk is the
order of events.

Whole segments are deleted, oldest first, when every entry in them is included in a snapshot. The
head of a segment repeats the state of every group, so nothing else of older segments is needed.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .disk import Disk
from .records import (
    FORMAT_VERSION,
    FRAME,
    NO_STATE,
    RecordKind,
    encode_frame,
    encode_record,
    encode_state,
    state_after,
)
from .recovery import RecoveredJournal

# Called with a job and a callback.
RunBlocking = Callable[[Callable[[], Any], Callable[[Any], None]], None]


class _Frame(NamedTuple):
    segment: int
    position: int
    number: int
    records: list[bytes]


class GroupCommit(NamedTuple):
    """The records that one group commit makes durable."""

    frames: list[_Frame]
    sequence: int
    log_ends: dict[int, int]  # the last index of each group in the batch


class Journal:
    """The write-ahead log of one process. Only `write` may be called in another thread."""

    def __init__(
        self,
        disk: Disk,
        recovered: RecoveredJournal,
        *,
        node_id: int,
        voters: Sequence[int],
        segment_bytes: int,
    ) -> None:
        self._disk = disk
        self._node_id = node_id
        self._voters = b"".join(voter.to_bytes(4, "little") for voter in voters)
        self._segment_bytes = segment_bytes
        self._groups = {group_id: group.state for group_id, group in recovered.groups.items()}
        self._segments = recovered.segments  # number -> {group: its highest index in the segment}
        self._segment = recovered.last_segment
        self._position = recovered.position
        self._next_frame = recovered.next_frame
        self._frames: list[_Frame] = []
        self._open: _Frame | None = None
        self._log_ends: dict[int, int] = {}
        self._log_ends_under_way: dict[int, int] = {}
        self._sealed = False
        self.sequence = 0  # of the newest record
        self.durable_sequence = 0

    @property
    def has_work(self) -> bool:
        """Return whether records wait for `take`."""
        return bool(self._frames) or self._open is not None

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    def append_entry(self, group_id: int, index: int, term: int, command: bytes) -> None:
        """Record an entry after the group's last entry, or record an earlier entry again."""
        self._append(RecordKind.ENTRY, group_id, index, term, command)
        for ends in (self._segments[self._segment], self._log_ends):
            ends[group_id] = max(index, ends.get(group_id, 0))

    def append_term(self, group_id: int, term: int, voted_for: int) -> None:
        """Record the term, and the vote given in it (-1 for none)."""
        self._append(RecordKind.TERM, group_id, term, voted_for + 1)

    def append_truncate(self, group_id: int, first_index: int) -> None:
        """Record that the entries from `first_index` on are removed."""
        self._append(RecordKind.TRUNCATE, group_id, first_index, 0)
        for ends in (*self._segments.values(), self._log_ends, self._log_ends_under_way):
            if ends.get(group_id, 0) >= first_index:
                ends[group_id] = first_index - 1

    def append_base(self, group_id: int, index: int, term: int) -> None:
        """Record that the entries up to `index` are dropped, since a durable snapshot has them."""
        self._append(RecordKind.BASE, group_id, index, term)

    def append_reset(self, group_id: int, index: int, term: int) -> None:
        """Record that a durable snapshot of the leader replaces the whole log."""
        self._append(RecordKind.RESET, group_id, index, term)
        for ends in (*self._segments.values(), self._log_ends, self._log_ends_under_way):
            ends.pop(group_id, None)

    def append_voter(self, group_id: int, *, is_voter: bool = True) -> None:
        """Record whether this node may vote in the group. A node that has lost its log may not."""
        self._append(RecordKind.VOTER if is_voter else RecordKind.NON_VOTER, group_id, 0, 0)

    def seal(self) -> None:
        """Append a SEAL record after the last record of an idle journal, at most once.

        The frame of the SEAL record proves to recovery that the previous frame was synced.
        """
        if not self._sealed and self._segment:
            self._write_record(RecordKind.SEAL, 0, 0, 0, b"")
            self._sealed = True

    def add_group(self, group_id: int) -> None:
        """Add a group that has no records yet."""
        self._groups.setdefault(group_id, NO_STATE)

    def take(self) -> GroupCommit | None:
        """Return all waiting records as the next batch to write, or None."""
        self._close_frame()
        if not self._frames:
            return None
        batch = GroupCommit(self._frames, self.sequence, self._log_ends)
        self._frames, self._log_ends = [], {}
        self._log_ends_under_way = batch.log_ends
        return batch

    def write(self, batch: GroupCommit) -> None:
        """Write and sync a batch (blocking).

        A frame is durable before the next frame is written.
        """
        for i, (segment, position, number, records) in enumerate(batch.frames):
            if position == 0:
                self._disk.ensure_segment(segment, self._segment_bytes)
            self._disk.write(segment, position, encode_frame(number, records))
            if i == len(batch.frames) - 1 or batch.frames[i + 1].segment != segment:
                self._disk.sync(segment)

    def finish(self, batch: GroupCommit) -> None:
        """Mark a batch as durable."""
        self.durable_sequence = batch.sequence

    def needs_next_segment(self) -> int | None:
        """Return the number of the next segment once the current one is half full, else None."""
        return self._segment + 1 if self._position > self._segment_bytes // 2 else None

    def prepare(self, segment: int) -> None:
        """Create a segment with zeros (blocking)."""
        self._disk.ensure_segment(segment, self._segment_bytes)

    def pinned_by(self) -> list[int]:
        """Return the groups with entries that prevent the deletion of the oldest segment."""
        oldest = min(self._segments)
        return [] if oldest == self._segment else self._groups_with_live_entries(oldest)

    def unpin(self, group_id: int) -> int:
        """No longer count a group's entries in the oldest segment as needed.

        The caller writes them again. Returns the highest index that must be written again.
        """
        return self._segments[min(self._segments)].pop(group_id, 0)

    def deletable(self) -> list[int]:
        """Remove the oldest segments without needed entries from memory. Return their numbers.

        The files of these segments may be deleted once all BASE records are durable.
        """
        numbers: list[int] = []
        for number in sorted(self._segments):
            if number == self._segment or self._groups_with_live_entries(number):
                break
            numbers.append(number)
        for number in numbers:
            del self._segments[number]
        return numbers

    def delete(self, numbers: Sequence[int]) -> None:
        """Delete segments, oldest first (blocking)."""
        for number in numbers:
            self._disk.delete_segment(number)

    def _groups_with_live_entries(self, segment: int) -> list[int]:
        ends = self._segments[segment]
        return [g for g, end in ends.items() if end > self._groups[g].base_index]

    def _append(
        self, kind: int, group_id: int, first: int, second: int, payload: bytes = b""
    ) -> None:
        self._write_record(kind, group_id, first, second, payload)
        self._groups[group_id] = state_after(self._groups[group_id], kind, first, second)
        self._sealed = False

    def _write_record(
        self, kind: int, group_id: int, first: int, second: int, payload: bytes
    ) -> None:
        record = encode_record(kind, group_id, first, second, payload)
        head = FRAME.size if self._open is None else 0
        if not self._segment or self._position + head + len(record) > self._segment_bytes:
            self._begin_segment()
        self._put(record)

    def _put(self, record: bytes) -> None:
        if self._open is None:
            self._open = _Frame(self._segment, self._position, self._next_frame, [])
            self._next_frame += 1
            self._position += FRAME.size
        self._open.records.append(record)
        self._position += len(record)
        self.sequence += 1

    def _close_frame(self) -> None:
        if self._open is not None:
            self._frames.append(self._open)
            self._open = None

    def _begin_segment(self) -> None:
        self._close_frame()
        self._segment += 1
        self._position = 0
        self._segments[self._segment] = {}
        version = (FORMAT_VERSION, self._voters)
        self._put(encode_record(RecordKind.SEGMENT, 0, self._node_id, *version))
        for group_id, state in self._groups.items():
            self._put(encode_record(RecordKind.STATE, group_id, 0, 0, encode_state(state)))


class SegmentKeeper:
    """The preparation of the journal's next segment, and the deletion of old segments.

    Both are slow jobs of an executor and never run together. Otherwise a late preparation would
    create a deleted segment again, empty, and a gap between the segments would look like damage.
    """

    def __init__(self, journal: Journal, run_blocking: RunBlocking, segments_max: int) -> None:
        self._journal = journal
        self._run_blocking = run_blocking
        self._segments_max = segments_max
        self._prepared = 0  # the newest segment whose preparation was requested
        self._is_busy = False
        self._garbage: deque[tuple[int, list[int]]] = deque()  # (sequence, segments)

    def tend(self, release: Callable[[int], None]) -> None:
        """Prepare and delete segments. Call it after each group commit.

        release: asks a group to remove its entries from the oldest segment.
        """
        journal = self._journal
        wanted = journal.needs_next_segment()
        if wanted is not None and wanted != self._prepared and not self._is_busy:
            self._prepared, self._is_busy = wanted, True
            self._run_blocking(lambda: journal.prepare(wanted), self._job_ended)
        if journal.segment_count > self._segments_max:
            for group_id in journal.pinned_by():
                release(group_id)
        if numbers := journal.deletable():
            self._garbage.append((journal.sequence, numbers))
        self._delete_garbage()

    def _job_ended(self, _: None) -> None:
        self._is_busy = False
        self._delete_garbage()

    def _delete_garbage(self) -> None:
        ready = self._garbage and self._garbage[0][0] <= self._journal.durable_sequence
        if ready and not self._is_busy:
            self._is_busy = True
            _, numbers = self._garbage.popleft()
            self._run_blocking(lambda: self._journal.delete(numbers), self._job_ended)
