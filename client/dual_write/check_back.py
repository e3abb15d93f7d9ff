"""The protocol of a check-back, which ends a dual write's transaction that has been open for long.

The file does no I/O. Kafka alone does not show whether such a transaction is prepared, nor whether
its writer is dead, suspended, or about to commit in the database. Therefore the check-back forces
an outcome. If the decision table has no row for the transaction, the check-back inserts `aborted`,
and a late commit of the writer fails at the key of that row. Then the transaction is ended under
its own producer id and epoch, which no later transaction has.
"""

from collections.abc import Generator
from typing import Any

from . import steps
from .steps import DecidedOutcome, TransactionKey


def check_back(key: TransactionKey) -> Generator[steps.Effect, Any, None]:
    """Yield the effects that end one transaction, and receive the event of each effect.

    The last effect is CheckedBack, or WaitAndAsk if the transaction must be checked back once more
    after a pause. Several check-backs may work on the same transaction.
    """
    read: steps.OutcomeRead = yield steps.ReadOrAbort(key)
    outcome = DecidedOutcome.ABORTED if read.is_session_over else read.outcome
    if outcome is None:
        yield steps.WaitAndAsk(key)
        return
    ended = yield steps.EndAsDecided(key, is_commit=outcome is DecidedOutcome.COMMITTED)
    if isinstance(ended, steps.EndUnanswered):
        yield steps.WaitAndAsk(key)
    else:  # refused: its writer, a successor or another check-back has ended it meanwhile
        is_ours = isinstance(ended, steps.EndedAsDecided)
        yield steps.CheckedBack(key, outcome, is_ours)
