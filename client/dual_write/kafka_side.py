"""The Kafka side of a dual write, which turns effects into calls, and their results into events.

A session's own producer begins, prepares, commits and aborts. `perform` handles transactions of
other sessions, with a view of the cluster.
"""

from typing import Any

from ...wire.errors import ErrorCode, KafkaError
from ..cluster_view import ClusterView
from ..producer import Producer
from ..transaction_admin import TransactionAdmin
from ..transactions.prepared import PreparedTransaction, complete
from ..transactions.producer_state import ProducerState
from . import steps, stop_words
from .steps import TransactionKey

OWN_CALLS: dict[type, str] = {
    steps.Initialize: "init_transactions",
    steps.BeginBoth: "begin_transaction",
    steps.Prepare: "prepare",
    steps.EndAsDecided: "commit_transaction",
    steps.AbortOwn: "abort_transaction",
}
REFUSALS = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)


def own_call(effect: steps.Effect, transactional_id: str) -> str | None:
    """Return the method of the session's own producer for an effect.

    Returns None for an effect that `perform` executes.
    """
    is_of_others = (
        isinstance(effect, steps.EndAsDecided) and effect.key.transactional_id != transactional_id
    )
    return None if is_of_others else OWN_CALLS.get(type(effect))


def known_event(effect: steps.Effect, state: ProducerState) -> steps.Event | None:
    """Return the event of an effect that the producer has executed already, or None.

    An abort is done if the transaction had not begun. A commit or an abort is done if it was
    interrupted after its answer.
    """
    if state is not ProducerState.READY:
        return None
    match effect:
        case steps.AbortOwn():
            return steps.Aborted()
        case steps.EndAsDecided():
            return steps.EndedAsDecided()
        case _:
            return None


def event_after(effect: steps.Effect, result: Any, *, lost_answers: int) -> steps.Event:
    """Return the event of a successful call of the session's own producer."""
    match effect:
        case steps.Initialize():
            return steps.Initialized(is_certain=not lost_answers)
        case steps.BeginBoth():
            return steps.BothBegun()
        case steps.Prepare():
            return _prepared(result)
        case steps.EndAsDecided():
            return steps.EndedAsDecided()
        case _:
            return steps.Aborted()


def _prepared(token: PreparedTransaction) -> steps.Event:
    if token.is_empty:
        return steps.Prepared(None)
    key = TransactionKey(token.transactional_id, token.producer_id, token.producer_epoch)
    if not token.is_v2:
        return steps.BlockFailed(stop_words.transactions_v1(key))
    return steps.Prepared(key)


def event_after_error(effect: steps.Effect, problem: KafkaError) -> steps.Event:
    """Return the event of a failed call of the session's own producer.

    An error of InitProducerId is raised.
    """
    match effect:
        case steps.BeginBoth() | steps.Prepare():
            return steps.BlockFailed(problem)
        case steps.EndAsDecided():
            return _not_ended(problem, is_commit=effect.is_commit)
        case steps.AbortOwn():
            return _not_ended(problem, is_commit=False)
        case _:
            raise problem


def _not_ended(problem: KafkaError, *, is_commit: bool) -> steps.Event:
    if problem.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING and is_commit:
        # a prepared transaction does not expire, so it was committed
        return steps.EndedAsDecided()
    if problem.code is ErrorCode.INVALID_TXN_STATE:
        return steps.EndRefused(problem, is_overruled=is_commit)
    if problem.code in REFUSALS or problem.fatal or problem.abortable:
        return steps.EndRefused(problem)
    return steps.EndUnanswered(problem)


async def perform(effect: steps.Effect, producer: Producer) -> steps.Event:
    """Execute an effect on a transaction of another session, or raise KafkaError."""
    view, timeout_ms = producer.view, producer.settings.max_block_ms
    match effect:
        case steps.FenceSession(transactional_id):
            await TransactionAdmin(view, timeout_ms=timeout_ms).end(transactional_id)
            return steps.SessionFenced()
        case steps.EndAsDecided(key, is_commit):
            return await end(view, key, is_commit=is_commit, timeout_ms=timeout_ms)
        case _:
            raise AssertionError(effect)


async def end(
    view: ClusterView, key: TransactionKey, *, is_commit: bool, timeout_ms: int
) -> steps.Event:
    """Commit or abort a transaction by its key. Repeated and late calls are harmless."""
    token = PreparedTransaction(
        key.transactional_id, key.producer_id, key.producer_epoch, is_v2=True
    )
    try:
        await complete(view, token, is_commit, timeout_ms=timeout_ms)
    except KafkaError as problem:
        if problem.code not in REFUSALS and not problem.retriable:
            raise  # perhaps an ACL is missing: nothing is known about the transaction
        return _not_ended(problem, is_commit=is_commit)
    return steps.EndedAsDecided()
