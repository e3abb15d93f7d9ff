"""Partitions that several requests add to one transaction, as one change of its record.

With transaction.version 2 every leader of a partition adds its own (KIP-890), and their requests
come at the same moment. They are judged one after the other, each by the record that the one before
it leaves: each gets the answer, and all together give the record, that they would have alone. Only
the last of these records is written.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...wire.errors import ErrorCode
from ...wire.identifiers import Identity, TopicPartition
from .decisions import (
    Change,
    DecisionContext,
    Granted,
    Refused,
    add_partitions,
    judge_addition,
)
from .record import TransactionRecord

# The limit that a change would exceed, given the record before and after it; NONE if none.
Limit = Callable[[TransactionRecord | None, TransactionRecord], ErrorCode]


@dataclass(frozen=True, slots=True)
class Addition:
    """A request to add partitions; for transaction_version see decisions.add_partitions."""

    identity: Identity
    partitions: Collection[TopicPartition]
    transaction_version: int = 0

    def judge(
        self, record: TransactionRecord | None, context: DecisionContext
    ) -> Refused | Granted | None:
        """Return the answer if the record need not change, else None."""
        return judge_addition(record, self.identity, self.partitions, context)

    def decide(
        self, record: TransactionRecord | None, context: DecisionContext
    ) -> Refused | Granted | Change:
        """Decide about this request alone."""
        return add_partitions(
            record,
            self.identity,
            self.partitions,
            context,
            transaction_version=self.transaction_version,
        )


class JointAddition(NamedTuple):
    """The outcome of several additions.

    record: to be written, None if nothing changes. answers: one for each addition; None if its
    answer is the outcome of the write.
    """

    record: TransactionRecord | None
    answers: list[ErrorCode | None]


def add_jointly(
    record: TransactionRecord | None,
    additions: Sequence[Addition],
    context: DecisionContext,
    limit: Limit,
) -> JointAddition:
    """Decide about all additions, in their order. A refused one changes nothing."""
    answers: list[ErrorCode | None] = []
    reached = record
    for addition in additions:
        answer: ErrorCode | None = None
        match addition.decide(reached, context):
            case Refused(error):
                answer = error
            case Granted() if reached is record:
                answer = ErrorCode.NONE
            case Granted():
                pass  # its partitions are in the same write already
            case Change(new):
                error = limit(reached, new)
                if error:
                    answer = error
                else:
                    reached = new
        answers.append(answer)
    return JointAddition(None if reached is record else reached, answers)
