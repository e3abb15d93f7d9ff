"""A proposed change of an in-sync replica set, and what its failure means.

The change is a compare-and-set: the controller applies it at the leader epoch and partition
epoch that it names, or not at all, so a copy of it does no harm.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from ..wire.errors import ErrorCode

UNKNOWN_BROKER_EPOCH = -1


class IsrMember(NamedTuple):
    """A proposed member; broker_epoch -1 = not known to this leader, do not check (KIP-903).

    The epoch can be unknown only for a member that has been in the ISR since before this leader's
    term: had its process died since, the controller would have changed the partition epoch.
    """

    node_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class IsrChange:
    """A compare-and-set for the controller: valid at these two epochs only."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[IsrMember, ...]

    @property
    def node_ids(self) -> frozenset[int]:
        return frozenset(member.node_id for member in self.isr)


class AfterFailure(Enum):
    """The action of a leader after a change that failed."""

    RESTORE = "restore"
    """The controller did not apply it and our partition epoch is right: the confirmed ISR holds."""
    AWAIT_METADATA = "await metadata"
    """We are behind, or in charge no longer: it stays in force, the careful side."""
    RETRY = "retry"
    """Nobody knows whether it was applied: send it again."""


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
    """Return the action for this Kafka error code; an unlisted error is retried."""
    return _AFTER_FAILURE.get(error, AfterFailure.RETRY)  # type: ignore[call-overload]
