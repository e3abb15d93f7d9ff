"""Test that several requests to add partitions, written as one record, are answered separately."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelog.coordinator.transactions.additions import Addition, add_jointly
from oncelog.coordinator.transactions.decisions import (
    Change,
    DecisionContext,
    EndTransaction,
    Granted,
    Refused,
    end_transaction,
)
from oncelog.coordinator.transactions.record import TransactionRecord, check_transition
from oncelog.coordinator.transactions.states import TransactionState
from oncelog.wire.errors import ErrorCode

S, E = TransactionState, ErrorCode
PID, EPOCH, NOW_MS = 7, 5, 1_000
ME, ZOMBIE, STRANGER = (PID, EPOCH), (PID, EPOCH - 1), (PID + 1, 0)
T0, T1, T2, T3 = (("t", index) for index in range(4))
CONTEXT = DecisionContext(now_ms=NOW_MS)
PARTITIONS_MAX = 3


def limit(_old: TransactionRecord | None, new: TransactionRecord) -> ErrorCode:
    return E.POLICY_VIOLATION if len(new.partitions) > PARTITIONS_MAX else E.NONE


def record_of(state: TransactionState, *partitions: tuple[str, int]) -> TransactionRecord:
    """Return a record in this state, with the transaction's partitions."""
    ongoing = TransactionRecord(
        producer_id=PID, producer_epoch=EPOCH, timeout_ms=60_000, state=S.ONGOING,
        last_update_ms=10, start_ms=20, partitions=frozenset(partitions), version=3,
    )  # fmt: skip
    if state == S.EMPTY:
        return ongoing._replace(state=state, start_ms=-1, partitions=frozenset())
    if state == S.ONGOING:
        return ongoing
    request = EndTransaction(identity=ME, is_commit=True, bumps_epoch=False)
    prepared = end_transaction(ongoing, request, CONTEXT)
    assert isinstance(prepared, Change)
    return prepared.record if state == S.PREPARE_COMMIT else prepared.record.completed(NOW_MS)


def alone(
    record: TransactionRecord | None, additions: list[Addition]
) -> tuple[TransactionRecord | None, list[ErrorCode]]:
    """Return the record and the answers if the requests are decided and written one by one."""
    answers: list[ErrorCode] = []
    for addition in additions:
        match addition.decide(record, CONTEXT):
            case Refused(error):
                answers.append(error)
            case Granted():
                answers.append(E.NONE)
            case Change(new):
                error = limit(record, new)
                if not error:
                    assert record is not None and check_transition(record, new) is None
                    record = new._replace(version=3)
                answers.append(error)
    return record, answers


def test_partition_additions_of_three_leaders_are_written_in_one_record() -> None:
    joint = add_jointly(
        record_of(S.COMPLETE_COMMIT), [Addition(ME, [p], 2) for p in (T0, T1, T2)], CONTEXT, limit
    )
    assert joint.answers == [None, None, None]
    assert joint.record is not None
    assert joint.record.state == S.ONGOING
    assert joint.record.partitions == {T0, T1, T2}
    assert joint.record.start_ms == NOW_MS
    assert joint.record.client_transaction_version == 2


@pytest.mark.parametrize(
    ("state", "additions", "answers", "partitions"),
    [
        # A fenced, unknown or excessive request gets its own error.
        (S.EMPTY, [(ME, [T0]), (ZOMBIE, [T1]), (STRANGER, [T2]), (ME, [T3])],
         [None, E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING, None], {T0, T3}),
        (S.EMPTY, [(ME, [T0, T1]), (ME, [T2, T3]), (ME, [T2])],
         [None, E.POLICY_VIOLATION, None], {T0, T1, T2}),
        # Present partitions are granted at once, pending ones when they are durable.
        (S.ONGOING, [(ME, [T0]), (ME, [T1]), (ME, [T1])], [E.NONE, None, None], {T0, T1}),
        (S.ONGOING, [(ME, [T0])], [E.NONE], None),
        (S.ONGOING, [(ZOMBIE, [T1])], [E.PRODUCER_FENCED], None),
        (S.PREPARE_COMMIT, [(ME, [T1]), (ZOMBIE, [T1])],
         [E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED], None),
    ],
)  # fmt: skip
def test_partition_additions_written_jointly_have_separate_answers(
    state, additions, answers, partitions
) -> None:
    record = record_of(state, T0)
    joint = add_jointly(record, [Addition(who, what) for who, what in additions], CONTEXT, limit)
    assert joint.answers == answers
    assert (None if joint.record is None else joint.record.partitions) == partitions


def test_partition_additions_to_an_unknown_transactional_id_are_refused() -> None:
    joint = add_jointly(None, [Addition(ME, [T0])] * 2, CONTEXT, limit)
    assert joint == (None, [E.INVALID_PRODUCER_ID_MAPPING] * 2)


def test_partition_additions_during_another_write_get_concurrent_transactions() -> None:
    context = DecisionContext(now_ms=NOW_MS, is_pending=True)
    additions = [Addition(ME, [T1]), Addition(ZOMBIE, [T1])]
    joint = add_jointly(record_of(S.EMPTY), additions, context, limit)
    assert joint == (None, [E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED])


PARTITIONS = st.lists(st.sampled_from([T0, T1, T2, T3]), min_size=1, max_size=4)
ADDITIONS = st.builds(
    Addition, st.sampled_from([ME, ME, ME, ZOMBIE, STRANGER]), PARTITIONS, st.sampled_from([0, 2])
)
RECORDS = st.one_of(
    st.none(),
    st.builds(
        lambda state, partitions: record_of(state, *partitions),
        st.sampled_from([S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT]),
        st.lists(st.sampled_from([T0, T1, T2]), min_size=1, max_size=3),
    ),
)


@given(record=RECORDS, additions=st.lists(ADDITIONS, max_size=6))
def test_partition_additions_written_jointly_equal_successive_additions(record, additions) -> None:
    joint = add_jointly(record, additions, CONTEXT, limit)
    reached, answers = alone(record, additions)
    assert [answer or E.NONE for answer in joint.answers] == answers
    if joint.record is None:
        assert None not in joint.answers
        assert reached == record
    else:
        assert None in joint.answers
        assert joint.record == reached
        assert record is not None and check_transition(record, joint.record) is None
