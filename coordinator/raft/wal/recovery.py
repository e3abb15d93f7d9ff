"""Recovery of the write-ahead log after a crash.

An incomplete last write, which was never synced or acknowledged, is dropped and overwritten with
zeros. Any other missing or damaged data raises CorruptJournal, because a node that forgets
acknowledged entries would let the cluster lose them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..outcomes import CorruptJournal, ForeignJournal
from .disk import Disk
from .records import (
    FORMAT_VERSION,
    NO_STATE,
    Frame,
    RaftGroupState,
    RecordKind,
    WalRecord,
    decode_frame,
    decode_records,
    decode_state,
    find_frame_after,
    state_after,
)

Entry = tuple[bytes, int, int]  # command, index, term


@dataclass(slots=True)
class RecoveredGroup:
    """The state of one group, as recovered from the write-ahead log."""

    state: RaftGroupState = NO_STATE
    # index -> command, term
    entries: dict[int, tuple[bytes, int]] = field(default_factory=dict[int, tuple[bytes, int]])

    def log(self) -> list[Entry]:
        """Return the entries that follow the snapshot, or raise KeyError if one is missing."""
        first, last = self.state.base_index + 1, self.state.end_index
        return [(self.entries[i][0], i, self.entries[i][1]) for i in range(first, last + 1)]


@dataclass(slots=True)
class RecoveredJournal:
    """The recovered write-ahead log, and the position at which writes continue."""

    owner: tuple[int, tuple[int, ...]]  # node id and voters
    groups: dict[int, RecoveredGroup] = field(default_factory=dict[int, RecoveredGroup])
    segments: dict[int, dict[int, int]] = field(default_factory=dict[int, dict[int, int]])
    last_segment: int = 0
    position: int = 0
    next_frame: int = 1


def recover(disk: Disk, *, node_id: int, voters: Sequence[int]) -> RecoveredJournal:
    """Read all segments, remove an incomplete last write, and return their content."""
    journal = RecoveredJournal((node_id, tuple(voters)))
    expected: int | None = None
    torn: tuple[int, int] | None = None  # the segment and position at which reading stopped
    numbers = disk.segments()
    for number in numbers:
        segment = disk.read_segment(number)
        if torn is not None:
            _refuse_if_later(disk, torn, number, segment, after=(expected or 1) - 1)
            disk.delete_segment(number)  # prepared and never used, or itself incomplete
            continue
        position = 0
        while (frame := decode_frame(segment, position)) is not None:
            if expected is not None and frame.number != expected:
                problem = f"frame {expected} is missing before byte {position}"
                raise CorruptJournal(disk.segment_name(number), problem)
            _replay(disk, journal, number, frame)
            expected, position = frame.number + 1, frame.next_position
            journal.last_segment, journal.position = number, position
        if position == 0 or segment[position:].strip(b"\0"):
            torn = number, position
            if expected is None and number > 1 and segment.strip(b"\0"):
                # Older segments are deleted only after the head of this one was synced.
                raise CorruptJournal(disk.segment_name(number), "its head is damaged")
            _refuse_if_later(disk, torn, number, segment[position:], after=expected or 1)
            if position == 0:
                disk.delete_segment(number)
            else:
                disk.write(number, position, bytes(len(segment) - position))
                disk.sync(number)
    if journal.last_segment:
        disk.sync(journal.last_segment)  # after a SIGKILL frames may be written, but not synced
    journal.next_frame = expected or 1
    _check_complete(disk, journal)
    return journal


def _refuse_if_later(
    disk: Disk, broken: tuple[int, int], number: int, data: bytes, *, after: int
) -> None:
    """Raise CorruptJournal if `data` has a valid frame with a number above `after`.

    Such a frame was written after the broken frame had been synced.
    """
    if find_frame_after(data, after) is not None:
        later = disk.segment_name(number)
        problem = f"synced bytes at {broken[1]} are damaged (intact records follow in {later})"
        raise CorruptJournal(disk.segment_name(broken[0]), problem)


def _replay(disk: Disk, journal: RecoveredJournal, segment: int, frame: Frame) -> None:
    ends = journal.segments.setdefault(segment, {})
    for record in decode_records(frame.records):
        if record.kind == RecordKind.SEGMENT:
            _check_owner(disk, segment, record, journal.owner)
        elif record.kind != RecordKind.SEAL:
            group = journal.groups.setdefault(record.group_id, RecoveredGroup())
            if record.kind == RecordKind.TRUNCATE:
                _clamp(journal, record.group_id, record.first - 1)
            elif record.kind == RecordKind.ENTRY:
                ends[record.group_id] = max(record.first, ends.get(record.group_id, 0))
            try:
                _replay_group(group, record)
            except ValueError as error:
                raise CorruptJournal(disk.segment_name(segment), str(error)) from None


def _clamp(journal: RecoveredJournal, group_id: int, last_index: int) -> None:
    for ends in journal.segments.values():
        if ends.get(group_id, 0) > last_index:
            ends[group_id] = last_index


def _replay_group(group: RecoveredGroup, record: WalRecord) -> None:
    state, entries = group.state, group.entries
    index, term = record.first, record.second
    match record.kind:
        case RecordKind.STATE:
            group.state = decode_state(record.payload)
            return
        case RecordKind.ENTRY:
            if index > state.end_index + 1 or (index in entries and entries[index][1] != term):
                raise ValueError(f"entry {index} does not follow entry {state.end_index}")
            entries[index] = record.payload, term
        case RecordKind.TRUNCATE:
            for taken_back in range(index, state.end_index + 1):
                entries.pop(taken_back, None)
        case RecordKind.BASE:
            for covered in range(state.base_index, index + 1):
                entries.pop(covered, None)
        case RecordKind.RESET:
            entries.clear()
        case _:
            pass
    group.state = state_after(state, record.kind, index, term)


def _check_owner(
    disk: Disk, segment: int, record: WalRecord, owner: tuple[int, tuple[int, ...]]
) -> None:
    node_id, voters = owner
    payload = record.payload
    written_for = tuple(
        int.from_bytes(payload[i : i + 4], "little") for i in range(0, len(payload), 4)
    )
    if record.second != FORMAT_VERSION:
        problem = f"format version {record.second} is not version {FORMAT_VERSION}"
    elif record.first != node_id:
        problem = f"it belongs to node {record.first}, and this is node {node_id}"
    elif written_for != voters:
        problem = f"membership is fixed: it was made for the voters {written_for}"
    else:
        return
    raise ForeignJournal(disk.segment_name(segment), problem)


def _check_complete(disk: Disk, journal: RecoveredJournal) -> None:
    for group_id, group in journal.groups.items():
        state = group.state
        for index in range(state.base_index + 1, state.end_index + 1):
            if index not in group.entries:
                first = disk.segment_name(min(journal.segments))
                raise CorruptJournal(first, f"entry {index} of group {group_id} is missing")
