"""The protocol of the check-back for one dual-write transaction that has been open for long.

Pure, as protocol.py. Kafka alone does not show whether such a transaction is prepared. Nor does
Kafka show whether the writer is dead, suspended, or about to decide. Therefore the check-back
forces a decision. If the decision table has no row, the check-back inserts `aborted`, and a late
decision of the writer fails at the key of that row. Then the transaction is ended under its own
producer id and epoch, which no later transaction has.
"""

from collections.abc import Generator
from typing import Any

from . import steps
from .steps import DecidedOutcome, TransactionKey


def check_back(key: TransactionKey) -> Generator[steps.Effect, Any, None]:
    """Yield the effects on one transaction, and receive their events.

    The last effect is CheckedBack, or WaitAndAsk, after which the check-back begins anew. Several
    check-backs may work on the same transaction.
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
