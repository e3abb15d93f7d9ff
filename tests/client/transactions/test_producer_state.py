"""Test every pair of states of a producer, and every pair of a state and a call."""

import pytest

from oncelog.client.failures import IllegalProducerState, as_abortable, as_fatal
from oncelog.client.transactions.producer_state import (
    ALLOWED,
    CALLS,
    Call,
    ProducerIdentity,
    ProducerState,
)
from oncelog.wire.errors import ErrorCode, KafkaError, ProducerFenced, RequestTimedOut

S = ProducerState
# From the protocol's description, not from the code.
STEPS = {
    (S.UNINITIALIZED, S.INITIALIZING),
    (S.INITIALIZING, S.READY),
    (S.INITIALIZING, S.UNINITIALIZED),
    (S.INITIALIZING, S.ABORTABLE_ERROR),
    (S.READY, S.UNINITIALIZED),
    (S.READY, S.INITIALIZING),
    (S.READY, S.IN_TRANSACTION),
    (S.IN_TRANSACTION, S.COMMITTING_TRANSACTION),
    (S.IN_TRANSACTION, S.ABORTING_TRANSACTION),
    (S.IN_TRANSACTION, S.ABORTABLE_ERROR),
    (S.COMMITTING_TRANSACTION, S.READY),
    (S.COMMITTING_TRANSACTION, S.ABORTABLE_ERROR),
    (S.ABORTING_TRANSACTION, S.READY),
    (S.ABORTING_TRANSACTION, S.INITIALIZING),
    (S.ABORTABLE_ERROR, S.ABORTING_TRANSACTION),
    (S.ABORTABLE_ERROR, S.UNINITIALIZED),
    *((state, S.FATAL_ERROR) for state in S if state is not S.FATAL_ERROR),
}
FITTING = {
    Call.INIT: "UNINITIALIZED",
    Call.BEGIN: "READY",
    Call.SEND: "IN_TRANSACTION",
    Call.SEND_OFFSETS: "IN_TRANSACTION",
    Call.PREPARE: "IN_TRANSACTION",
    Call.COMMIT: "IN_TRANSACTION COMMITTING_TRANSACTION",
    Call.ABORT: "IN_TRANSACTION ABORTABLE_ERROR ABORTING_TRANSACTION",
}


@pytest.fixture
def identity() -> ProducerIdentity:
    return ProducerIdentity()


@pytest.mark.parametrize("before", list(S))
@pytest.mark.parametrize("after", list(S))
def test_producer_changes_state_only_along_allowed_transitions(
    identity: ProducerIdentity, before, after
):
    identity.state = before
    assert (after in ALLOWED[before]) == ((before, after) in STEPS)
    if (before, after) in STEPS:
        identity.move_to(after)
        assert identity.state is after
    else:
        with pytest.raises(AssertionError):
            identity.move_to(after)
        assert identity.state is before


@pytest.mark.parametrize("state", list(S))
@pytest.mark.parametrize("call", list(Call))
def test_producer_call_is_accepted_only_in_its_listed_states(
    identity: ProducerIdentity, call, state
):
    identity.state = state
    assert (state in CALLS[call]) == (state.name in FITTING[call].split())
    if state in CALLS[call]:
        identity.require(call)
    else:
        with pytest.raises(IllegalProducerState, match=f"{call.value}.*{state.name}"):
            identity.require(call)


@pytest.mark.parametrize("call", list(Call))
def test_producer_call_in_an_error_state_raises_the_original_error(
    identity: ProducerIdentity, call
):
    fatal, abortable = as_fatal(ProducerFenced()), as_abortable(RequestTimedOut("late"))
    identity.move_to(S.FATAL_ERROR, fatal)
    with pytest.raises(ProducerFenced) as caught:
        identity.require(call)
    assert caught.value is fatal and caught.value.fatal
    identity.state, identity.problem = S.ABORTABLE_ERROR, abortable
    if call is Call.ABORT:
        identity.require(call)
    else:
        with pytest.raises(RequestTimedOut) as caught:
            identity.require(call)
        assert caught.value.abortable


def test_producer_leaving_an_error_state_forgets_the_error(identity: ProducerIdentity):
    identity.move_to(S.INITIALIZING)
    identity.move_to(S.ABORTABLE_ERROR, as_abortable(RequestTimedOut()))
    identity.move_to(S.ABORTING_TRANSACTION)
    assert identity.problem is None


def test_producer_error_has_its_code_and_retriable_abortable_and_fatal_flags():
    error = ProducerFenced()
    assert (error.code, error.retriable) == (ErrorCode.PRODUCER_FENCED, False)
    assert (error.abortable, error.fatal) == (False, False)
    assert as_fatal(error).fatal and not KafkaError.fatal
    assert str(error).endswith(".")


def test_sequence_numbers_are_counted_by_partition_and_wrap(identity: ProducerIdentity):
    identity.move_to(S.INITIALIZING)
    identity.initialized(5, 0)
    assert identity.take_sequences("t", 0, 10) == 0
    assert identity.take_sequences("t", 0, 5) == 10
    assert identity.take_sequences("t", 1, 5) == 0
    identity.take_sequences("t", 0, 2**31 - 1 - 15)
    assert identity.take_sequences("t", 0, 3) == 2**31 - 1
    assert identity.take_sequences("t", 0, 1) == 2


def test_sequence_numbers_restart_at_zero_with_a_new_epoch_only(identity: ProducerIdentity):
    identity.move_to(S.INITIALIZING)
    identity.initialized(5, 0)
    identity.take_sequences("t", 0, 10)
    identity.renew(5, 0)
    assert identity.take_sequences("t", 0, 1) == 10
    identity.renew(5, 1)
    assert identity.take_sequences("t", 0, 1) == 0
