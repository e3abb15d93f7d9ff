"""Test the journal of Raft against a simple model, with crashes at any point."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.coordinator.raft import CorruptJournal, ForeignJournal
from oncelog.coordinator.raft.wal.disk import DirectoryDisk
from oncelog.coordinator.raft.wal.journal import Journal
from oncelog.coordinator.raft.wal.records import RaftGroupState, encode_record
from oncelog.coordinator.raft.wal.recovery import recover

from ....simulation.virtual_world import VirtualDisk

GROUPS = (0, 1)
SEGMENT_BYTES = 4_096


class Model:
    """The expected term, vote and entries of one group."""

    def __init__(self) -> None:
        self.term, self.voted_for, self.is_voter = 0, -1, False
        self.base: tuple[int, int] = (0, 0)
        self.entries: dict[int, tuple[bytes, int]] = {}
        self.end = 0

    def copy(self) -> "Model":
        other = Model()
        other.__dict__ |= self.__dict__ | {"entries": dict(self.entries)}
        return other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and self.__dict__ == other.__dict__


def open_journal(disk) -> tuple[Journal, dict[int, Model]]:
    recovered = recover(disk, node_id=1, voters=(1, 2, 3))
    journal = Journal(disk, recovered, node_id=1, voters=(1, 2, 3), segment_bytes=SEGMENT_BYTES)
    models = {}
    for g in GROUPS:
        journal.add_group(g)
        model = models[g] = Model()
        if (group := recovered.groups.get(g)) is not None:
            state = group.state
            model.term, model.voted_for, model.is_voter = (
                state.term,
                state.voted_for,
                state.is_voter,
            )
            model.base, model.end = (state.base_index, state.base_term), state.end_index
            model.entries = {index: (command, term) for command, index, term in group.log()}
    return journal, models


def commit(journal: Journal) -> None:
    batch = journal.take()
    assert batch is not None
    journal.write(batch)
    journal.finish(batch)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DirectoryDisk]:
    disk = DirectoryDisk(tmp_path)
    disk.open()
    yield disk
    disk.close()


def change(journal: Journal, g: int, model: Model, rng: random.Random) -> None:
    """Make one random change of a group in both the journal and the model."""
    choice = rng.random()
    if choice < 0.6:
        model.end += 1
        entry = rng.randbytes(rng.choice([1, 30, 700])), model.term
        model.entries[model.end] = entry
        journal.append_entry(g, model.end, entry[1], entry[0])
    elif choice < 0.7:
        model.term += 1
        model.voted_for = rng.choice([-1, 1, 2])
        journal.append_term(g, model.term, model.voted_for)
    elif choice < 0.8 and model.end > model.base[0]:
        first = rng.randrange(model.base[0] + 1, model.end + 1)
        for index in range(first, model.end + 1):
            del model.entries[index]
        model.end = first - 1
        journal.append_truncate(g, first)
    elif choice < 0.9 and model.end > model.base[0]:
        index = rng.randrange(model.base[0] + 1, model.end + 1)
        model.base = index, model.entries[index][1]
        model.entries = {i: e for i, e in model.entries.items() if i > index}
        journal.append_base(g, *model.base)
    elif choice < 0.95:
        index = model.end + rng.randrange(1, 5)
        model.base, model.end, model.entries = (index, model.term), index, {}
        journal.append_reset(g, *model.base)
    elif choice < 0.97:
        model.is_voter = True
        journal.append_voter(g)
    else:
        journal.seal()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), power=st.booleans())
def test_raft_journal_recovery_after_any_crash_has_the_last_synced_state_or_a_later_one(
    seed: int, power: bool
) -> None:
    """The recovered state is that of the last sync, or that after a later change."""
    rng = random.Random(seed)
    disk = VirtualDisk(rng)
    journal, models = open_journal(disk)
    for _ in range(4):
        possible = [{g: models[g].copy() for g in GROUPS}]
        for _ in range(rng.randrange(1, 12)):
            for _ in range(rng.randrange(1, 12)):
                g = rng.choice(GROUPS)
                change(journal, g, models[g], rng)
            batch = journal.take()
            if batch is None:  # the random choice gave no change
                continue
            journal.write(batch)
            journal.finish(batch)
            possible = [{g: models[g].copy() for g in GROUPS}]
            journal.delete(journal.deletable())
        for _ in range(rng.randrange(8)):  # appended records that the crash follows
            g = rng.choice(GROUPS)
            change(journal, g, models[g], rng)
            possible.append({g: models[g].copy() for g in GROUPS})
        if (batch := journal.take()) is not None:
            for frame in batch.frames:
                if frame.position == 0:
                    disk.ensure_segment(frame.segment, SEGMENT_BYTES)
            last = batch.frames[-1]
            journal.write(batch._replace(frames=batch.frames[:-1])) if batch.frames[1:] else None
            disk.write(last.segment, last.position, b"".join(last.records)[: rng.randrange(99)])
        disk.crash(power=power)
        journal, models = open_journal(disk)
        assert models in possible
        journal2, again = open_journal(disk)
        assert again == models, "a second recovery finds the same"
        journal = journal2


def test_raft_journal_segments_below_all_snapshots_are_deleted(disk: DirectoryDisk) -> None:
    """The oldest segments are deleted first. The journal can still be read afterwards."""
    journal, _ = open_journal(disk)
    for index in range(1, 200):
        journal.append_entry(0, index, 1, b"x" * 100)
        commit(journal)
    many = len(disk.segments())
    assert many > 4
    assert journal.deletable() == []
    journal.append_base(0, 190, 1)
    commit(journal)
    numbers = journal.deletable()
    assert numbers == disk.segments()[: len(numbers)]
    assert len(numbers) > 2
    journal.delete(numbers)
    _, models = open_journal(disk)
    assert sorted(models[0].entries) == list(range(191, 200))


def test_raft_journal_with_a_missing_segment_is_refused(
    tmp_path: Path, disk: DirectoryDisk
) -> None:
    """A segment may be missing in the middle or at the beginning of the journal."""
    journal, _ = open_journal(disk)
    for index in range(1, 200):
        journal.append_entry(0, index, 1, b"x" * 100)
    commit(journal)
    for number in (disk.segments()[1], disk.segments()[0]):
        Path(disk.segment_name(number)).rename(tmp_path / "aside")
        with pytest.raises(CorruptJournal, match="missing"):
            open_journal(disk)
        (tmp_path / "aside").rename(disk.segment_name(number))
    open_journal(disk)


def test_raft_journal_seal_proves_that_the_last_frame_was_synced(disk: DirectoryDisk) -> None:
    """A damaged last frame looks like a torn tail, unless a seal after it proves its sync."""
    journal, _ = open_journal(disk)
    journal.append_entry(0, 1, 1, b"x" * 100)
    for seal in (False, True):
        if seal:
            journal.seal()
        commit(journal)
    path = Path(disk.segment_name(1))
    damaged = bytearray(path.read_bytes())
    damaged[damaged.index(b"xxxx")] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptJournal):
        open_journal(disk)


def test_raft_journal_of_another_node_or_other_voters_is_refused(disk: DirectoryDisk) -> None:
    """The journal contains its node id and voters."""
    journal, _ = open_journal(disk)
    journal.append_voter(0)
    commit(journal)
    with pytest.raises(ForeignJournal, match="belongs to node 1, and this is node 2"):
        recover(disk, node_id=2, voters=(1, 2, 3))
    with pytest.raises(ForeignJournal, match="membership is fixed"):
        recover(disk, node_id=1, voters=(1, 2, 3, 4))


def test_raft_journal_directory_in_use_is_refused_to_a_second_process(tmp_path: Path) -> None:
    """The directory can be opened after the first process has released it."""
    first, second = DirectoryDisk(tmp_path), DirectoryDisk(tmp_path)
    first.open()
    with pytest.raises(BlockingIOError, match="in use by another process"):
        second.open()
    first.close()
    second.open()
    second.close()


def test_raft_journal_record_of_a_newer_version_is_refused() -> None:
    """If the node skipped the record, it would lose a part of its state."""
    disk = VirtualDisk(random.Random(1))
    journal, _ = open_journal(disk)
    journal.append_voter(0)
    journal._put(encode_record(77, 0, 0, 0))
    commit(journal)
    with pytest.raises(CorruptJournal, match="newer version"):
        open_journal(disk)


def test_raft_journal_segment_repeats_the_state_of_every_group_at_its_start() -> None:
    """The vote of an idle group must survive the deletion of old segments."""
    disk = VirtualDisk(random.Random(1))
    journal, _ = open_journal(disk)
    journal.append_term(1, 7, 3)
    journal.append_voter(1)
    for index in range(1, 300):
        journal.append_entry(0, index, 1, b"x" * 100)
    journal.append_base(0, 299, 1)
    commit(journal)
    journal.delete(journal.deletable())
    assert len(disk.segments()) == 1
    recovered = recover(disk, node_id=1, voters=(1, 2, 3))
    assert recovered.groups[1].state == RaftGroupState(7, 3, 0, 0, 0, True)
