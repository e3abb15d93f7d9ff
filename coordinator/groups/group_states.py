"""The states of a classic group, and their transitions.

    from                  to                    when
    Empty                 PreparingRebalance    the first member joins
    PreparingRebalance    CompletingRebalance   all members have joined again, or the rebalance
                                                timeout has expired; the leader gets the members
    PreparingRebalance    Empty                 no member is left
    CompletingRebalance   Stable                the leader's assignment is in the log
    Stable, Completing... PreparingRebalance    a member joins, leaves, changes or expires
    any                   Dead                  the group is deleted, or its coordinator moves

JoinGroup requests wait in PreparingRebalance. SyncGroup requests are answered in Stable.
"""

from collections.abc import Mapping
from enum import Enum


class GroupState(Enum):
    """The state of a group, with its name in DescribeGroups and ListGroups."""

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
