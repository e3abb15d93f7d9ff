"""The check-back's protocol for one dual-write transaction that has been open for long.

Pure, as protocol.py. Kafka alone does not show whether such a transaction is prepared, nor whether
its writer is dead, asleep, or about to decide. So the check-back forces a decision: where the
table has none, it inserts `aborted`, and a writer that returns finds its key taken. Then the
transaction is ended under its own producer id and epoch, which no later transaction has.
"""

from collections.abc import Generator
from typing import Any

from . import steps
from .steps import DecidedOutcome, TransactionKey


def check_back(key: TransactionKey) -> Generator[steps.Effect, Any, None]:
    """Yield the effects on one transaction, and get their events.

    The last one is CheckedBack, or WaitAndAsk: then the check-back begins anew after a wait.
    Several check-backs may work on the same transaction.
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
