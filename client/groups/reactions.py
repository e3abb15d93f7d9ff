"""The reactions of a group member to error codes, by request (KIP-62, 345, 394, 848).

The file has only tables, as `client/transactions/reactions.py` has for a producer.
"""

from collections.abc import Mapping
from enum import Enum, auto

from ...wire.errors import ErrorCode, error_for

_E = ErrorCode


class GroupRequest(Enum):
    """The requests of a group member for which errors have reactions."""

    COMMIT = 8
    FETCH_OFFSETS = 9
    JOIN = 11
    HEARTBEAT = 12
    SYNC = 14


class GroupReaction(Enum):
    DONE = auto()
    RETRY = auto()
    FIND_COORDINATOR = auto()
    TAKE_MEMBER_ID = auto()  # join again with the member id of the answer
    REJOIN = auto()  # the group rebalances; the member stays a member
    RESET = auto()  # the group has removed the member: join as a new one
    FAIL = auto()


_R = GroupReaction
_MOVED: dict[int, GroupReaction] = {
    _E.NONE: _R.DONE,
    _E.NOT_COORDINATOR: _R.FIND_COORDINATOR,
    _E.COORDINATOR_NOT_AVAILABLE: _R.FIND_COORDINATOR,
    _E.NETWORK_EXCEPTION: _R.FIND_COORDINATOR,
    _E.REQUEST_TIMED_OUT: _R.FIND_COORDINATOR,
}
_MEMBER = _MOVED | {
    _E.REBALANCE_IN_PROGRESS: _R.REJOIN,
    _E.UNKNOWN_MEMBER_ID: _R.RESET,
    _E.ILLEGAL_GENERATION: _R.RESET,
}
GROUP_REACTIONS: Mapping[GroupRequest, Mapping[int, GroupReaction]] = {
    GroupRequest.JOIN: _MEMBER | {_E.MEMBER_ID_REQUIRED: _R.TAKE_MEMBER_ID},
    GroupRequest.SYNC: _MEMBER,
    GroupRequest.HEARTBEAT: _MEMBER,
    GroupRequest.COMMIT: _MEMBER
    | {
        _E.STALE_MEMBER_EPOCH: _R.RETRY,
        _E.FENCED_MEMBER_EPOCH: _R.RESET,
        _E.GROUP_ID_NOT_FOUND: _R.RESET,
    },
    # Only members of consumer groups are named there: their next heartbeat tells them more.
    GroupRequest.FETCH_OFFSETS: _MOVED
    | {
        _E.STALE_MEMBER_EPOCH: _R.RETRY,
        _E.UNKNOWN_MEMBER_ID: _R.RETRY,
        _E.GROUP_ID_NOT_FOUND: _R.RETRY,
    },
}


def group_reaction_to(request: GroupRequest, code: int) -> GroupReaction:
    """Return the reaction of a member to an error code. The code 0 means success."""
    unnamed = _R.RETRY if error_for(code).retriable else _R.FAIL
    return GROUP_REACTIONS[request].get(code, unnamed)
