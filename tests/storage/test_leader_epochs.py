"""Test leader epochs as in Kafka's LeaderEpochFileCache (KIP-101, KIP-279)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.storage.leader_epochs import LeaderEpochs


@pytest.fixture
def epochs() -> LeaderEpochs:
    return LeaderEpochs([(2, 0), (4, 10), (7, 25)])


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 0)),  # older than all: where the first known one begins
        (2, (2, 10)),
        (3, (2, 10)),  # unknown in between: the one below
        (4, (4, 25)),
        (6, (4, 25)),
        (7, (7, 40)),  # the latest ends at the log end
        (8, (-1, -1)),
    ],
)
def test_leader_epoch_end_offset_is_the_start_of_the_next_epoch(epochs, epoch, answer):
    assert epochs.end_offset_for(epoch, 40) == answer


def test_leader_epochs_without_an_entry_answer_undefined():
    epochs = LeaderEpochs()
    assert epochs.latest_epoch is None
    assert epochs.end_offset_for(0, 40) == (-1, -1)
    assert epochs.epoch_for(0) is None


@pytest.mark.parametrize(("offset", "epoch"), [(0, 2), (9, 2), (10, 4), (24, 4), (25, 7), (999, 7)])
def test_leader_epoch_of_an_offset_is_the_epoch_of_its_batch(epochs, offset, epoch):
    assert epochs.epoch_for(offset) == epoch


def test_leader_epoch_assigned_again_keeps_its_first_offset(epochs):
    assert not epochs.assign(7, 30)
    assert epochs.entries[-1] == (7, 25)


@pytest.mark.parametrize(
    ("entry", "left"),
    [
        ((8, 30), [(2, 0), (4, 10), (7, 25), (8, 30)]),
        ((8, 25), [(2, 0), (4, 10), (8, 25)]),  # nothing was written in epoch 7
        ((8, 12), [(2, 0), (4, 10), (8, 12)]),
        ((7, 20), [(2, 0), (4, 10), (7, 20)]),
        ((5, 30), [(2, 0), (4, 10), (5, 30)]),
        ((2, 30), [(2, 30)]),
    ],
)
def test_leader_epoch_assignment_drops_contradicting_entries(epochs, entry, left):
    assert epochs.assign(*entry)
    assert list(epochs.entries) == left


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_leader_epoch_or_start_offset_below_zero_is_refused(epochs, entry):
    with pytest.raises(ValueError):
        epochs.assign(*entry)


@pytest.mark.parametrize(
    ("end_offset", "left"), [(26, 3), (25, 2), (11, 2), (10, 1), (1, 1), (0, 0)]
)
def test_leader_epochs_truncated_from_the_end_lose_entries_at_and_above_the_offset(
    epochs, end_offset, left
):
    assert epochs.truncate_from_end(end_offset) == (left < 3)
    assert len(epochs.entries) == left


@pytest.mark.parametrize(
    ("start_offset", "left"),
    [
        (0, [(2, 0), (4, 10), (7, 25)]),
        (5, [(2, 5), (4, 10), (7, 25)]),
        (10, [(4, 10), (7, 25)]),
        (24, [(4, 24), (7, 25)]),
        (99, [(7, 99)]),
    ],
)
def test_leader_epochs_truncated_from_the_start_keep_the_epoch_of_the_start_offset(
    epochs, start_offset, left
):
    assert epochs.truncate_from_start(start_offset) == (start_offset > 0)
    assert list(epochs.entries) == left


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 60)), max_size=12),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_leader_epochs_after_any_truncations_have_rising_epochs_and_offsets(
    assigned, start_offset, end_offset
):
    epochs = LeaderEpochs(assigned)
    epochs.truncate_from_start(start_offset)
    epochs.truncate_from_end(end_offset)
    entries = epochs.entries
    for lower, higher in itertools.pairwise(entries):
        assert lower.epoch < higher.epoch
        assert lower.start_offset < higher.start_offset
    assert LeaderEpochs(entries).entries == entries
