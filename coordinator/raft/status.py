"""The status of a group on one of its nodes."""

from typing import NamedTuple

from .context import GroupContext
from .library import LEADER
from .progress import ProgressTracker


class VoterStatus(NamedTuple):
    """The status of one voter as the leader knows it. On a follower unknown values are -1."""

    node_id: int
    log_end: int  # index after the last entry that the voter has acknowledged
    last_contact_ms: float  # monotonic
    last_caught_up_ms: float  # monotonic


class RaftStatus(NamedTuple):
    """A snapshot of a group's status, for DescribeQuorum and for operators."""

    leader_id: int | None
    term: int
    commit_index: int
    applied_index: int
    log_start: int
    log_end: int
    is_voter: bool  # False for a node that has lost its promises, until it may vote again
    voters: list[VoterStatus]


def describe(
    context: GroupContext, tracker: ProgressTracker, applied_index: int, now_ms: float
) -> RaftStatus:
    """Return the status of a running group."""
    core, log = context.core, context.log
    voters = [VoterStatus(context.node_id, log.durable_index + 1, now_ms, now_ms)]
    for peer in context.others:
        progress = tracker.by_peer.get(peer) if core.state == LEADER else None
        if progress is None:
            voters.append(VoterStatus(peer, -1, -1, -1))
        else:
            times = progress.last_contact_ms, progress.last_caught_up_ms
            voters.append(VoterStatus(peer, progress.match_index + 1, *times))
    return RaftStatus(
        leader_id=core.leader_id,
        term=core.term,
        commit_index=core.commit_index,
        applied_index=applied_index,
        log_start=log.base_index + 1,
        log_end=log.last_index + 1,
        is_voter=log.is_voter,
        voters=voters,
    )
