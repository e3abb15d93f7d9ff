"""The check-back's protocol for one dual-write transaction that has been open for long.

Pure, as protocol.py. Kafka alone does not show whether such a transaction is prepared, nor whether
its writer is dead, asleep, or about to decide. So the check-back forces a decision: where the
table has none, it inserts `aborted`, and a writer that returns finds its key taken. Then the
transaction is ended under its own producer id and epoch, which no later transaction has.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, ClassVar

from . import steps
from .steps import DecidedOutcome, TransactionKey


class CheckPhase(Enum):
    NEW = auto()
    ASKING = auto()
    WAITING = auto()
    ENDING = auto()
    DONE = auto()


class CheckBackProtocol:
    """One transaction; several check-backs may work on the same one."""

    def __init__(self, key: TransactionKey) -> None:
        self.key, self.phase = key, CheckPhase.NEW
        self.outcome = DecidedOutcome.ABORTED

    def begin(self) -> steps.Effect:
        """Return the first effect, or the next one after a wait."""
        assert self.phase in (CheckPhase.NEW, CheckPhase.WAITING)
        self.phase = CheckPhase.ASKING
        return steps.ReadOrAbort(self.key)

    def step(self, event: steps.Event) -> steps.Effect:
        """Take an event and return the next effect."""
        rule = self.RULES.get((self.phase, type(event)))
        assert rule is not None, f"{type(event).__name__} does not fit {self.phase.name}"
        return rule(self, event)

    def _answered(self, event: steps.OutcomeRead) -> steps.Effect:
        outcome = DecidedOutcome.ABORTED if event.is_session_over else event.outcome
        if outcome is None:
            self.phase = CheckPhase.WAITING
            return steps.WaitAndAsk(self.key)
        self.outcome, self.phase = outcome, CheckPhase.ENDING
        return steps.EndAsDecided(self.key, is_commit=self.outcome is DecidedOutcome.COMMITTED)

    def _ended(self, _: steps.EndedAsDecided) -> steps.Effect:
        self.phase = CheckPhase.DONE
        return steps.CheckedBack(self.key, self.outcome, is_ours=True)

    def _refused(self, _: steps.EndRefused) -> steps.Effect:
        """Finish: its writer, a successor or another check-back has ended it meanwhile."""
        self.phase = CheckPhase.DONE
        return steps.CheckedBack(self.key, self.outcome, is_ours=False)

    def _unanswered(self, _: steps.EndUnanswered) -> steps.Effect:
        self.phase = CheckPhase.WAITING
        return steps.WaitAndAsk(self.key)

    RULES: ClassVar[Mapping[tuple[CheckPhase, type], Callable[[Any, Any], steps.Effect]]] = {
        (CheckPhase.ASKING, steps.OutcomeRead): _answered,
        (CheckPhase.ENDING, steps.EndedAsDecided): _ended,
        (CheckPhase.ENDING, steps.EndRefused): _refused,
        (CheckPhase.ENDING, steps.EndUnanswered): _unanswered,
    }
