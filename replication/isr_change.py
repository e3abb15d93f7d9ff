"""A proposed ISR change, and the reaction to its failure.

The change is a compare-and-set. The controller applies the change only at its leader epoch and
partition epoch, so a duplicate has no effect.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ..wire.errors import ErrorCode

UNKNOWN_BROKER_EPOCH = -1


class IsrMember(NamedTuple):
    """A proposed member. A broker_epoch of -1 is unknown to this leader and not checked (KIP-903).

    The epoch can be unknown only for a member that was in the ISR before this leader's term. It
    need not be checked, because a failure of the member's process in this term changes the
    partition epoch, and then the controller refuses the proposal.
    """

    node_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A proposed ISR. The controller applies it only at this leader epoch and partition epoch."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]

    @property
    def node_ids(self) -> frozenset[int]:
        return frozenset(member.node_id for member in self.isr)


class AfterFailure(Enum):
    """The actions of a leader after the failure of an ISR change."""

    RESTORE = "restore"
    """The change was not applied, and the partition epoch is right. Restore the confirmed ISR."""
    AWAIT_METADATA = "await metadata"
    """The leader has old metadata or no longer leads. Keep the proposed ISR until new metadata."""
    RETRY = "retry"
    """The outcome of the change is unknown. Send the same change again."""


_AFTER_FAILURE = {
    ErrorCode.OPERATION_NOT_ATTEMPTED: AfterFailure.RESTORE,
    ErrorCode.INELIGIBLE_REPLICA: AfterFailure.RESTORE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: AfterFailure.AWAIT_METADATA,
    ErrorCode.UNKNOWN_TOPIC_ID: AfterFailure.AWAIT_METADATA,
    ErrorCode.FENCED_LEADER_EPOCH: AfterFailure.AWAIT_METADATA,
    ErrorCode.INVALID_UPDATE_VERSION: AfterFailure.AWAIT_METADATA,
    ErrorCode.INVALID_REQUEST: AfterFailure.AWAIT_METADATA,
    ErrorCode.NEW_LEADER_ELECTED: AfterFailure.AWAIT_METADATA,
}


def after_failure(error: int) -> AfterFailure:
    """Return the leader's action after the failure of an ISR change with this error code.

    RETRY is the action for errors that are not listed.
    """
    return _AFTER_FAILURE.get(error, AfterFailure.RETRY)  # type: ignore[call-overload]
