"""The states of a classic group, and which may follow which.

Empty -> PreparingRebalance     the first member joins
PreparingRebalance              members (re)join; their JoinGroup waits
  -> CompletingRebalance        all are there, or the rebalance timeout is over; the leader is
                                given the members and assigns
  -> Empty                      nobody is left
CompletingRebalance -> Stable   the leader's assignment is in the log; SyncGroup is answered
Stable, CompletingRebalance -> PreparingRebalance    somebody joins, leaves, changes or dies
any -> Dead                     the group is deleted, or this broker coordinates it no longer
"""

from collections.abc import Mapping
from enum import Enum


class GroupState(Enum):
    """A state, by the name that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


ALLOWED: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset({GroupState.DEAD}),
}
MAY_REBALANCE = frozenset(
    state for state, following in ALLOWED.items() if GroupState.PREPARING_REBALANCE in following
)
