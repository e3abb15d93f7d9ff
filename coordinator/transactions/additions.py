"""Partitions that several requests add to one transaction, as one change of its record.

With transaction.version 2 every leader of a partition adds its own (KIP-890), and their requests
come at the same moment. They are judged one after the other, each by the record that the one before
it leaves: so each has the answer, and all together the record, that they would have alone. Only the
last of these records is written.
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

# What a change would exceed, given the record before and the one after it; NONE for nothing.
Limit = Callable[[TransactionRecord | None, TransactionRecord], ErrorCode]


@dataclass(frozen=True, slots=True)
class Addition:
    """A request. transaction_version: see decisions.add_partitions."""

    identity: Identity
    partitions: Collection[TopicPartition]
    transaction_version: int = 0

    def judge(
        self, record: TransactionRecord | None, context: DecisionContext
    ) -> Refused | Granted | None:
        """The answer, if there is one without a change of the record."""
        return judge_addition(record, self.identity, self.partitions, context)

    def decide(
        self, record: TransactionRecord | None, context: DecisionContext
    ) -> Refused | Granted | Change:
        """What becomes of it alone."""
        return add_partitions(
            record,
            self.identity,
            self.partitions,
            context,
            transaction_version=self.transaction_version,
        )


class JointAddition(NamedTuple):
    """record: to be written, None if there is nothing to write. answers: what is known without
    that for each addition; None where the answer is what becomes of the write."""

    record: TransactionRecord | None
    answers: list[ErrorCode | None]


def add_jointly(
    record: TransactionRecord | None,
    additions: Sequence[Addition],
    context: DecisionContext,
    limit: Limit,
) -> JointAddition:
    """All of them, in the order in which they came. One that is refused changes nothing."""
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
                pass  # what it asks for is on its way, in the same write
            case Change(new):
                error = limit(reached, new)
                if error:
                    answer = error
                else:
                    reached = new
        answers.append(answer)
    return JointAddition(None if reached is record else reached, answers)
