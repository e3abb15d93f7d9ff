"""Partitions that several requests add to one transaction, as one change of its record.

With transaction.version 2 every leader of a partition adds its own partition (KIP-890), so the
requests arrive at the same time. The requests are decided one after the other, each on the record
that the previous request leaves. Each request therefore gets the same answer as if it were handled
separately, and only the last record is written.
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

# Returns the error of the limit that a change exceeds, from the old and new record, or NONE.
Limit = Callable[[TransactionRecord | None, TransactionRecord], ErrorCode]


@dataclass(frozen=True, slots=True)
class Addition:
    """A request to add partitions to a transaction (see `decisions.add_partitions`)."""

    identity: Identity
    partitions: Collection[TopicPartition]
    transaction_version: int = 0

    def judge(
        self, record: TransactionRecord | None, context: DecisionContext
    ) -> Refused | Granted | None:
        """Return the answer to this request if the record need not change, else None."""
        return judge_addition(record, self.identity, self.partitions, context)

    def decide(
        self, record: TransactionRecord | None, context: DecisionContext
    ) -> Refused | Granted | Change:
        """Return the decision about this request as if it were the only one."""
        return add_partitions(
            record,
            self.identity,
            self.partitions,
            context,
            transaction_version=self.transaction_version,
        )


class JointAddition(NamedTuple):
    """The result of several additions.

    record: the record to write, or None if nothing changes. answers: one for each addition, or None
    where the answer is the outcome of the write.
    """

    record: TransactionRecord | None
    answers: list[ErrorCode | None]


def add_jointly(
    record: TransactionRecord | None,
    additions: Sequence[Addition],
    context: DecisionContext,
    limit: Limit,
) -> JointAddition:
    """Decide all requests in their order. A refused request changes nothing.

    limit: returns the error if a new record would exceed a limit of the shard, else NONE.
    """
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
                pass  # its partitions are already part of the same write
            case Change(new):
                error = limit(reached, new)
                if error:
                    answer = error
                else:
                    reached = new
        answers.append(answer)
    return JointAddition(None if reached is record else reached, answers)
