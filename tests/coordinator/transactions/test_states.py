"""Test which transitions between transaction states and between records are allowed."""

from itertools import product

import pytest

from oncelog.coordinator.transactions.record import (
    EPOCH_LAST,
    EPOCH_MAX,
    TransactionRecord,
    check_transition,
)
from oncelog.coordinator.transactions.states import (
    ALLOWED_PREVIOUS,
    BY_NAME,
    MAY_EXPIRE,
    TransactionState,
)

S = TransactionState
# Rows: the state before; columns: the states that may follow, in the order of the numbers.
TABLE = """
EMPTY               1 1 0 1 0 0 1 0
ONGOING             0 1 1 1 0 0 0 1
PREPARE_COMMIT      0 0 0 0 1 0 0 0
PREPARE_ABORT       0 0 0 0 0 1 0 0
COMPLETE_COMMIT     1 1 0 1 0 0 1 0
COMPLETE_ABORT      1 1 0 1 0 0 1 0
DEAD                0 0 0 0 0 0 0 0
PREPARE_EPOCH_FENCE 0 0 0 1 0 0 0 0
"""
ALLOWED = {
    (S[row.split()[0]], S(column)): mark == "1"
    for row in TABLE.strip().splitlines()
    for column, mark in enumerate(row.split()[1:])
}
T = frozenset({("t", 0)})


@pytest.mark.parametrize(("old", "new"), list(product(S, S)))
def test_transaction_state_transition_of_each_pair_is_allowed_as_listed(
    old: TransactionState, new: TransactionState
) -> None:
    assert (old in ALLOWED_PREVIOUS[new]) is ALLOWED[old, new]


def test_transaction_state_names_and_numbers_equal_the_kafka_ones() -> None:
    assert [state.kafka_name for state in S] == [
        "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort",
        "Dead", "PrepareEpochFence",
    ]  # fmt: skip
    assert set(ALLOWED_PREVIOUS) == set(S) == set(BY_NAME.values())
    assert {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT} == MAY_EXPIRE


def record(state: TransactionState, **changes) -> TransactionRecord:
    has_partitions = state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
    base = TransactionRecord(
        producer_id=7,
        producer_epoch=3,
        timeout_ms=1000,
        state=state,
        last_update_ms=50,
        partitions=T if has_partitions else frozenset(),
        start_ms=-1 if state == S.EMPTY else 40,
    )
    return base._replace(**changes)


@pytest.mark.parametrize(("old", "new"), list(product(S, S)))
def test_transaction_record_is_replaced_only_along_allowed_state_transitions(old, new) -> None:
    if old in (S.DEAD, S.PREPARE_EPOCH_FENCE):
        return
    before, after = record(old), record(new)
    if new in (S.PREPARE_COMMIT, S.PREPARE_ABORT) and old != S.ONGOING:
        after = after._replace(partitions=frozenset())
    is_allowed = ALLOWED[old, new] and new not in (S.DEAD, S.PREPARE_EPOCH_FENCE)
    assert (check_transition(before, after) is None) is is_allowed


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        (None, S.ONGOING, {}),
        (None, S.EMPTY, {"producer_epoch": EPOCH_MAX}),
        (S.EMPTY, S.EMPTY, {"producer_epoch": 5}),
        (S.EMPTY, S.EMPTY, {"producer_id": 8, "producer_epoch": 1}),
        (S.EMPTY, S.EMPTY, {"start_ms": 4}),
        (S.EMPTY, S.EMPTY, {"partitions": T}),
        (S.EMPTY, S.EMPTY, {"timeout_ms": 0}),
        (S.EMPTY, S.EMPTY, {"producer_id": -1}),
        (S.ONGOING, S.ONGOING, {"partitions": frozenset()}),
        (S.ONGOING, S.ONGOING, {"start_ms": 41}),
        (S.ONGOING, S.ONGOING, {"producer_epoch": 4}),
        (S.ONGOING, S.ONGOING, {"timeout_ms": 5}),
        (S.ONGOING, S.PREPARE_COMMIT, {"producer_epoch": 4}),
        (S.ONGOING, S.PREPARE_COMMIT, {"client_transaction_version": 2}),
        (S.ONGOING, S.PREPARE_ABORT, {"partitions": frozenset()}),
        (S.ONGOING, S.PREPARE_ABORT, {"start_ms": 1}),
        (S.PREPARE_COMMIT, S.COMPLETE_COMMIT, {"partitions": T}),
        (S.PREPARE_COMMIT, S.COMPLETE_COMMIT, {"producer_epoch": 4}),
        (S.PREPARE_COMMIT, S.COMPLETE_COMMIT, {"start_ms": 3}),
    ],
)
def test_transaction_record_that_contradicts_its_predecessor_is_refused(old, new, changes) -> None:
    before = None if old is None else record(old)
    assert check_transition(before, record(new, **changes)) is not None


def test_transaction_end_at_the_last_epoch_requires_a_next_producer_id() -> None:
    before = record(S.ONGOING, producer_epoch=EPOCH_LAST)
    after = record(S.PREPARE_COMMIT, producer_epoch=EPOCH_MAX, client_transaction_version=2)
    assert check_transition(before, after) is not None
    after = after._replace(next_producer_id=9)
    assert check_transition(before, after) is None
    assert after.client == (9, 0)
    completed = after.completed(60)
    assert check_transition(after, completed) is None
    assert (completed.producer_id, completed.producer_epoch) == (9, 0)
