"""Test the decisions of the transaction coordinator by state, request, epoch and version.

The file test_recorded_transactions.py compares our answers with those of Apache Kafka.
"""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from oncelog.coordinator.transactions.decisions import (
    Change,
    DecisionContext,
    EndTransaction,
    FenceProducer,
    Granted,
    InitProducerId,
    ProducerIdNeeded,
    Refused,
    abort_transaction,
    add_partitions,
    end_transaction,
    init_producer_id,
    verify_partitions,
)
from oncelog.coordinator.transactions.record import (
    TWO_PHASE_TIMEOUT_MS,
    TransactionRecord,
    check_transition,
)
from oncelog.coordinator.transactions.states import TransactionState
from oncelog.wire.errors import ErrorCode

S, E = TransactionState, ErrorCode
PID, FRESH, NOW = 7, 99, 1_000
T0, T1 = ("t", 0), ("t", 1)
EPOCHS = (0, 1, 32764, 32765, 32766)
DURABLE = (
    S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT,
)  # fmt: skip


def opened(epoch: int = 5, state: TransactionState = S.EMPTY, **changes) -> TransactionRecord:
    record = TransactionRecord(
        producer_id=PID, producer_epoch=epoch, timeout_ms=60_000, state=state, last_update_ms=10,
        partitions=frozenset({T0}) if state == S.ONGOING else frozenset(),
        start_ms=20 if state == S.ONGOING else -1, version=3,
    )  # fmt: skip
    return record._replace(**changes)


def reached(state: TransactionState, epoch: int = 5, *, v2: bool = False) -> TransactionRecord:
    """Return the record in this state of a transaction that began with `epoch`.

    After a V2 end the client's epoch is one higher, or the client has a new producer id.
    """
    if state == S.EMPTY or state == S.ONGOING:
        return opened(epoch, state)
    is_commit = state in (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)
    request = EndTransaction(identity=(PID, epoch), is_commit=is_commit, bumps_epoch=v2)
    ongoing = opened(epoch, S.ONGOING)
    decision = changed(decide_end(ongoing, request))
    assert check_transition(ongoing, decision) is None
    if state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
        return decision
    completed = decision.completed(NOW)
    assert check_transition(decision, completed) is None
    return completed


def context(*, is_pending: bool = False, fresh: int | None = FRESH) -> DecisionContext:
    return DecisionContext(is_pending=is_pending, now_ms=NOW, fresh_producer_id=fresh)


def decide_end(record, request, **given: Any):
    return end_transaction(record, request, context(**given))


def changed(decision: Any) -> TransactionRecord:
    assert isinstance(decision, Change), decision
    return decision.record


def outcome(decision) -> str:
    match decision:
        case Refused(error):
            return error.name
        case Granted():
            return "NONE"
        case Change(record) | FenceProducer(record):
            return record.state.kafka_name
    return type(decision).__name__


CONCURRENT, WRONG, FENCED = "CONCURRENT_TRANSACTIONS", "INVALID_TXN_STATE", "PRODUCER_FENCED"
V1_TABLE = {  # state: (commit, abort), the epoch is the current one
    S.ONGOING: ("PrepareCommit", "PrepareAbort"),
    S.PREPARE_COMMIT: (CONCURRENT, CONCURRENT),
    S.PREPARE_ABORT: (CONCURRENT, CONCURRENT),
    S.COMPLETE_COMMIT: ("NONE", WRONG),
    S.COMPLETE_ABORT: (WRONG, "NONE"),
    S.EMPTY: (WRONG, WRONG),
}
V2_TABLE = {  # state: (commit, abort) at the current epoch, (commit, abort) of the retry
    S.ONGOING: ("PrepareCommit", "PrepareAbort", FENCED, FENCED),
    S.PREPARE_COMMIT: (CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    S.PREPARE_ABORT: (CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
    S.COMPLETE_COMMIT: (WRONG, "PrepareAbort", "NONE", WRONG),
    S.COMPLETE_ABORT: (WRONG, "PrepareAbort", WRONG, "NONE"),
    S.EMPTY: (WRONG, "PrepareAbort", FENCED, FENCED),
}


@pytest.mark.parametrize("epoch", EPOCHS)
@pytest.mark.parametrize("ended_by_v2", [False, True])
@pytest.mark.parametrize("state", DURABLE)
def test_end_txn_v1_in_each_state_has_the_expected_outcome(state, ended_by_v2, epoch) -> None:
    record = reached(state, epoch, v2=ended_by_v2)
    producer_id, current = record.client
    for is_commit, expected in zip((True, False), V1_TABLE[state], strict=True):
        request = EndTransaction(
            identity=(producer_id, current), is_commit=is_commit, bumps_epoch=False
        )
        decision = decide_end(record, request)
        assert outcome(decision) == expected
        if isinstance(decision, Change):  # the epoch does not change, so neither does the client
            assert decision.record.client == (producer_id, current)
            assert check_transition(record, decision.record) is None
        for other in (current - 1, current + 1):
            late = replace(request, identity=(producer_id, other))
            assert outcome(decide_end(record, late)) == FENCED
        stranger = replace(request, identity=(12345, current))
        assert outcome(decide_end(record, stranger)) == "INVALID_PRODUCER_ID_MAPPING"


@pytest.mark.parametrize("epoch", EPOCHS)
@pytest.mark.parametrize("state", DURABLE)
def test_end_txn_v2_in_each_state_has_the_expected_outcome(state, epoch) -> None:
    record = reached(state, epoch, v2=True)
    current = record.client
    is_ended = state not in (S.EMPTY, S.ONGOING)
    retry = (PID, epoch) if is_ended else (PID, epoch - 1)
    cases = product((current, retry), (True, False))
    for (identity, is_commit), expected in zip(cases, V2_TABLE[state], strict=True):
        request = EndTransaction(identity=identity, is_commit=is_commit, bumps_epoch=True)
        decision = decide_end(record, request)
        assert outcome(decision) == expected
        if isinstance(decision, Granted):
            assert decision.identity == current
        if isinstance(decision, Change):
            check_raised(record, decision.record)


def check_raised(before: TransactionRecord, decided: TransactionRecord) -> None:
    """Check that the epoch was raised by one, or is 0 with a new producer id (KIP-890)."""
    assert check_transition(before, decided) is None
    producer_id, epoch = before.client
    assert decided.producer_epoch == before.producer_epoch + 1
    assert decided.client == ((FRESH, 0) if epoch >= 32766 else (producer_id, epoch + 1))
    assert decided.is_ended_by(before.client)
    completed = decided.completed(NOW)
    assert check_transition(decided, completed) is None
    assert completed.client == decided.client
    assert completed.producer_epoch <= 32766


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("state", DURABLE)
def test_end_txn_v2_with_an_epoch_above_the_current_is_fenced(state, is_commit) -> None:
    record = reached(state, v2=True)
    producer_id, epoch = record.client
    request = EndTransaction(
        identity=(producer_id, epoch + 1), is_commit=is_commit, bumps_epoch=True
    )
    assert outcome(decide_end(record, request)) == FENCED


@pytest.mark.parametrize("state", [S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_end_txn_v2_with_a_lower_epoch_after_a_v1_end_is_fenced(state) -> None:
    record = reached(state, v2=False)
    request = EndTransaction(
        identity=(PID, 4), is_commit=state == S.COMPLETE_COMMIT, bumps_epoch=True
    )
    assert outcome(decide_end(record, request)) == FENCED


@pytest.mark.parametrize("bumps_epoch", [False, True])
def test_end_txn_of_an_unknown_transactional_id_is_refused(bumps_epoch) -> None:
    request = EndTransaction(identity=(PID, 0), is_commit=True, bumps_epoch=bumps_epoch)
    assert outcome(decide_end(None, request)) == "INVALID_PRODUCER_ID_MAPPING"


@pytest.mark.parametrize("bumps_epoch", [False, True])
@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_end_txn_during_a_pending_write_answers_concurrent_transactions_or_fenced(
    state, bumps_epoch
) -> None:
    record = reached(state)
    request = EndTransaction(identity=(PID, 5), is_commit=False, bumps_epoch=bumps_epoch)
    assert outcome(decide_end(record, request, is_pending=True)) == CONCURRENT
    zombie = replace(request, identity=(PID, 4))
    assert outcome(decide_end(record, zombie, is_pending=True)) == FENCED


@pytest.mark.parametrize("is_commit", [True, False])
def test_end_txn_at_the_last_epoch_requests_a_producer_id_first(is_commit) -> None:
    record = opened(32766, S.ONGOING)
    request = EndTransaction(identity=(PID, 32766), is_commit=is_commit, bumps_epoch=True)
    assert decide_end(record, request, fresh=None) == ProducerIdNeeded()
    ended = changed(decide_end(record, request))
    assert ended.client == (FRESH, 0)  # KAFKA-18660: not the old one
    completed = ended.completed(NOW)
    again = decide_end(completed, request)
    assert again == Granted((FRESH, 0))  # KIP-890: the retry over the overflow


# -- InitProducerId


def init(
    record,
    *,
    expected=None,
    is_pending=False,
    fresh: int | None = FRESH,
    timeout_ms=30_000,
    **flags,
) -> Any:
    request = InitProducerId(timeout_ms=timeout_ms, expected=expected, **flags)
    return init_producer_id(record, request, context(is_pending=is_pending, fresh=fresh))


def test_init_producer_id_of_a_new_transactional_id_gets_epoch_zero() -> None:
    assert init(None, fresh=None) == ProducerIdNeeded()
    for expected in (None, (3, 3)):
        decision = changed(init(None, expected=expected))
        assert (decision.client, decision.timeout_ms) == ((FRESH, 0), 30_000)
        assert check_transition(None, decision) is None


@pytest.mark.parametrize("epoch", EPOCHS)
@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_init_producer_id_of_a_known_transactional_id_raises_the_epoch(state, epoch) -> None:
    record = opened(epoch, state, start_ms=-1 if state == S.EMPTY else 20)
    expected = (FRESH, 0) if epoch == 32766 else (PID, epoch + 1)
    for mine in (None, (PID, epoch)):
        decision = changed(init(record, expected=mine))
        assert decision.client == expected
        assert decision.last_producer_epoch == (-1 if mine is None else epoch)
        assert check_transition(record, decision) is None
        again = changed(init(decision, expected=mine))  # its answer was lost (KIP-360)
        if mine is None:
            assert again.client != expected
        else:
            assert again.client == expected
            assert check_transition(decision, again) is None


@pytest.mark.parametrize("state", DURABLE)
def test_init_producer_id_of_a_replaced_session_is_fenced(state) -> None:
    record = opened(5, state, last_producer_epoch=-1)
    for expected in ((8, 5), (8, 32766)):
        assert outcome(init(record, expected=expected)) == FENCED
    if state not in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
        for epoch in (3, 4, 6):
            assert outcome(init(record, expected=(PID, epoch))) == FENCED


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
@pytest.mark.parametrize("v2", [False, True])
def test_init_producer_id_in_prepare_commit_or_abort_gets_concurrent_transactions(
    state, v2
) -> None:
    record = reached(state, v2=v2)
    assert outcome(init(record)) == CONCURRENT
    assert outcome(init(record, expected=record.client)) == CONCURRENT


@pytest.mark.parametrize("state", DURABLE)
def test_init_producer_id_during_a_pending_write_gets_concurrent_transactions(state) -> None:
    assert outcome(init(reached(state), is_pending=True)) == CONCURRENT
    assert outcome(init(None, is_pending=True)) == CONCURRENT


@pytest.mark.parametrize("epoch", EPOCHS)
def test_init_producer_id_during_an_open_transaction_fences_the_old_producer(epoch) -> None:
    record = opened(epoch, S.ONGOING)
    decision = init(record)
    assert isinstance(decision, FenceProducer)
    check_raised(record, decision.record)
    completed = decision.record.completed(NOW)
    assert completed.state == S.COMPLETE_ABORT
    after = changed(init(completed))
    # the epoch of the fence is given to no other client
    fenced_producer_id, fenced_epoch = completed.client
    assert after.client in ((fenced_producer_id, fenced_epoch + 1), (FRESH, 0))
    # the fenced producer itself may recover, as long as no other session has begun (KIP-588)
    mine = init(completed, expected=(PID, epoch))
    assert isinstance(mine, Change) and mine.record.client == completed.client
    assert outcome(init(after, expected=(PID, epoch))) == FENCED


def test_init_producer_id_with_an_unwritten_fence_raises_the_epoch_only_once() -> None:
    """The second InitProducerId finds the record unchanged (KAFKA-9666)."""
    record = opened(32764, S.ONGOING)
    decisions = {init(record).record.producer_epoch for _ in range(5)}
    assert decisions == {32765}


# -- two-phase commit (KIP-939)


def test_two_phase_commit_transaction_has_no_timeout() -> None:
    decision = init(None, enables_two_phase_commit=True, timeout_ms=5)
    assert decision.record.is_two_phase
    ongoing = changed(add_partitions(decision.record, decision.record.client, [T0], context()))
    assert not ongoing.is_timed_out(2**62)
    assert opened(5, S.ONGOING).is_timed_out(20 + 60_001)
    assert not opened(5, S.ONGOING).is_timed_out(20 + 60_000)


@pytest.mark.parametrize("bumps_epoch", [False, True])
@pytest.mark.parametrize("epoch", EPOCHS)
def test_init_producer_id_with_keep_prepared_keeps_the_open_transaction(epoch, bumps_epoch) -> None:
    record = opened(epoch, S.ONGOING, timeout_ms=TWO_PHASE_TIMEOUT_MS)
    kept = init(record, keeps_prepared=True)
    assert isinstance(kept, Change)
    assert kept.ongoing == (PID, epoch)
    assert check_transition(record, kept.record) is None
    mine = kept.record.client
    assert mine == ((FRESH, 0) if epoch == 32766 else (PID, epoch + 1))
    # the former owner is fenced
    old = EndTransaction(identity=(PID, epoch), is_commit=True, bumps_epoch=bumps_epoch)
    assert outcome(decide_end(kept.record, old)) in (FENCED, "INVALID_PRODUCER_ID_MAPPING")
    add = add_partitions(kept.record, mine, [T1], context())
    assert outcome(add) == WRONG
    found = verify_partitions(kept.record, mine, [T0])
    assert found == [E.TRANSACTION_ABORTABLE]
    # the present owner ends the transaction, and continues
    request = EndTransaction(identity=mine, is_commit=True, bumps_epoch=bumps_epoch)
    ended = changed(decide_end(kept.record, request, fresh=FRESH + 1))
    assert check_transition(kept.record, ended) is None
    assert (ended.producer_id, ended.producer_epoch) == (PID, epoch + bumps_epoch)
    completed = ended.completed(NOW)
    assert check_transition(ended, completed) is None
    if not bumps_epoch:
        assert completed.client == mine
    elif mine[1] == 32766:
        assert completed.client == (FRESH + 1, 0)
    else:
        assert completed.client == (mine[0], mine[1] + 1)
    again = decide_end(completed, request)
    assert again == Granted(completed.client)


def test_init_producer_id_with_keep_prepared_and_no_transaction_begins_a_session() -> None:
    decision = init(opened(5), keeps_prepared=True)
    assert isinstance(decision, Change)
    assert decision.ongoing is None
    assert decision.record.client == (PID, 6)


# -- partitions


@pytest.mark.parametrize("state", DURABLE)
@pytest.mark.parametrize("v2", [False, True])
def test_add_partitions_in_each_state_has_the_expected_outcome(state, v2) -> None:
    record = reached(state, v2=v2)
    identity = record.client

    def add(*partitions, identity=identity, is_pending=False):
        return add_partitions(record, identity, partitions, context(is_pending=is_pending))

    producer_id, epoch = identity
    assert outcome(add(T1, identity=(producer_id + 1, epoch))) == "INVALID_PRODUCER_ID_MAPPING"
    for other in (epoch - 1, epoch + 1):
        assert outcome(add(T1, identity=(producer_id, other), is_pending=True)) == FENCED
    assert outcome(add(T1, is_pending=True)) == CONCURRENT
    decision = add(T0, T1)
    if state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
        assert outcome(decision) == CONCURRENT
        return
    assert isinstance(decision, Change)
    assert check_transition(record, decision.record) is None
    assert decision.record.partitions == {T0, T1}
    # the timeout counts from the first partition
    assert decision.record.start_ms == (20 if state == S.ONGOING else NOW)
    if state == S.ONGOING:
        assert add(T0) == Granted(identity)


def test_add_partitions_to_an_unknown_transactional_id_is_refused() -> None:
    decision = add_partitions(None, (PID, 0), [T0], context())
    assert outcome(decision) == "INVALID_PRODUCER_ID_MAPPING"
    assert outcome(verify_partitions(None, (PID, 0), [T0])) == "INVALID_PRODUCER_ID_MAPPING"


@pytest.mark.parametrize("state", DURABLE)
def test_verify_partitions_in_each_state_has_the_expected_outcome(state) -> None:
    record = reached(state)
    found = verify_partitions(record, record.client, [T0, T1])
    if state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
        assert found == Refused(E.CONCURRENT_TRANSACTIONS)
    elif state == S.ONGOING:
        assert found == [E.NONE, E.TRANSACTION_ABORTABLE]
    else:
        assert found == [E.TRANSACTION_ABORTABLE] * 2
    assert outcome(verify_partitions(record, (PID, 4), [T0])) == FENCED
    assert outcome(verify_partitions(record, (8, 5), [T0])) == "INVALID_PRODUCER_ID_MAPPING"


# -- the coordinator's own abort


@pytest.mark.parametrize("epoch", EPOCHS)
def test_transaction_timeout_fences_the_producer_and_aborts(epoch) -> None:
    record = opened(epoch, S.ONGOING)
    decision = abort_transaction(record, context())
    assert isinstance(decision, FenceProducer)
    check_raised(record, decision.record)
    assert decision.record.state == S.PREPARE_ABORT
    if epoch == 32766:
        assert abort_transaction(record, context(fresh=None)) == ProducerIdNeeded()


@pytest.mark.parametrize("state", [None, *DURABLE])
def test_abort_of_a_transaction_not_open_or_with_a_pending_write_is_refused(state) -> None:
    record = None if state is None else reached(state)
    assert outcome(abort_transaction(record, context(is_pending=True))) == CONCURRENT
    if state != S.ONGOING:
        assert outcome(abort_transaction(record, context(fresh=None))) == WRONG
