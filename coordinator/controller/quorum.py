"""The progress of the voters of the metadata group, as its leader reports it to other brokers.

Monotonic clocks of two nodes are not comparable, so times are sent as ages.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..raft.status import RaftStatus

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class QuorumVoter:
    """A voter of the metadata group.

    log_end: the index after the voter's last entry. contact_age_ms, caught_up_age_ms: the time
    since the voter last answered, and since it last had the leader's whole log, or UNKNOWN.
    """

    node_id: int
    log_end: int
    contact_age_ms: int
    caught_up_age_ms: int


@dataclass(frozen=True, slots=True)
class Quorum:
    """The state of the metadata group, as its leader knows it."""

    leader_id: int
    term: int
    commit_index: int
    voters: tuple[QuorumVoter, ...]


def quorum_of(status: "RaftStatus", now_ms: float) -> Quorum:
    """Return the state of the group, with ages at `now_ms` of the leader's monotonic clock."""

    def age_ms(moment_ms: float) -> int:
        return UNKNOWN if moment_ms < 0 else max(0, round(now_ms - moment_ms))

    return Quorum(
        leader_id=UNKNOWN if status.leader_id is None else status.leader_id,
        term=status.term,
        commit_index=status.commit_index,
        voters=tuple(
            QuorumVoter(
                voter.node_id,
                voter.log_end,
                age_ms(voter.last_contact_ms),
                age_ms(voter.last_caught_up_ms),
            )
            for voter in status.voters
        ),
    )
