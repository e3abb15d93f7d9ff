"""Test the answer and next state of a classic group for each request, member and state.

The expected answers were read off the code of Apache Kafka's coordinator.
"""

from collections.abc import Callable

import pytest

from oncelog.coordinator.groups.group_states import ALLOWED, GroupState
from oncelog.coordinator.groups.rebalance import release
from oncelog.wire.errors import ErrorCode

from .group_driver import GROUP, PLAIN, SESSION_MS, Groups, Ticket

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
CHANGED = (("range", b"changed"), ("sticky", b"changed"))
OTHER = (("other", b""),)
WAITS = "waits"
OK, UNKNOWN, ILLEGAL, FENCED, REBALANCE, INCONSISTENT, GONE, ID_FIRST = (
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.MEMBER_ID_REQUIRED,
)


class Stage:
    """A classic group in a given state.

    It has a leader, a follower, a static member `i` and a pending member. The empty group has only
    the pending one. In PreparingRebalance the leader has rejoined.
    """

    def __init__(self, state: GroupState) -> None:
        self.groups = groups = Groups()
        self.pending = groups.join().answer.member_id
        self.leader = self.follower = self.static = "nobody"
        if state is not EMPTY:
            groups.leave((self.pending, None))
            self.leader, _ = groups.new_member()
            self.follower, _ = groups.new_member()
            groups.join(instance="i")
            self.static = groups.group.static_members["i"]
            groups.pass_time(0)
            if state is not COMPLETING:
                groups.sync_all([self.leader, self.follower, self.static])
            self.pending = groups.join().answer.member_id
        if state is PREPARING:
            groups.join(self.leader)
        if state is DEAD:
            group, turn = groups.group, groups.turn()
            release(group, turn, ErrorCode.NOT_COORDINATOR)
            groups.execute(turn)
        self.group = groups.group
        assert self.group.state is state

    def id_of(self, kind: str) -> tuple[str, str | None]:
        return {
            "leader": (self.leader, None),
            "follower": (self.follower, None),
            "static": (self.static, "i"),
            "pending": (self.pending, None),
            "stranger": ("stranger", None),
            "impostor": ("impostor", "i"),
        }[kind]


def _join(**options) -> Callable[[Stage, str], Ticket]:
    def ask(stage: Stage, kind: str) -> Ticket:
        if kind == "new":
            return stage.groups.join(**options)
        if kind == "old new":
            return stage.groups.join(version=3, **options)
        if kind == "new static":
            return stage.groups.join(instance="j", **options)
        if kind == "restarted":
            return stage.groups.join(instance="i", **options)
        member_id, instance = stage.id_of(kind)
        return stage.groups.join(member_id, instance=instance, **options)

    return ask


def _sync(**options) -> Callable[[Stage, str], Ticket]:
    def ask(stage: Stage, kind: str) -> Ticket:
        member_id, instance = stage.id_of(kind)
        return stage.groups.sync(member_id, instance=instance, **options)

    return ask


def _heartbeat(**options) -> Callable[[Stage, str], int]:
    def ask(stage: Stage, kind: str) -> int:
        member_id, instance = stage.id_of(kind)
        return stage.groups.heartbeat(member_id, instance=instance, **options)

    return ask


def _leave(stage: Stage, kind: str) -> int:
    who = ("", "i") if kind == "static by instance" else stage.id_of(kind)
    return stage.groups.leave(who)[0]


def _expire(stage: Stage, kind: str) -> int:
    member_id, _ = stage.id_of(kind)
    for each in (*stage.group.members, *stage.group.pending_join):
        if each != member_id and ("heartbeat", GROUP, each) in stage.groups.table.deadlines:
            stage.groups.table.deadlines.set(
                ("heartbeat", GROUP, each), stage.groups.now_ms + 2 * SESSION_MS
            )
    stage.groups.pass_time(SESSION_MS)
    is_here = member_id in stage.group.members or member_id in stage.group.pending_join
    return OK if is_here else UNKNOWN


REQUESTS: dict[str, Callable[[Stage, str], Ticket | int]] = {
    "join": _join(protocols=PLAIN),
    "join changed": _join(protocols=CHANGED),
    "join other": _join(protocols=OTHER),
    "join nothing": _join(protocols=()),
    "join as connect": _join(protocol_type="connect"),
    "sync": _sync(),
    "sync late": _sync(generation=0),
    "sync other": _sync(protocol_name="other"),
    "sync as connect": _sync(protocol_type="connect"),
    "heartbeat": _heartbeat(),
    "heartbeat late": _heartbeat(generation=0),
    "leave": _leave,
    "expire": _expire,
}

# Per request and member: the answers in Empty, PreparingRebalance, CompletingRebalance, Stable and
# Dead; "->" names the state afterwards if it changes.
TABLE: dict[tuple[str, str], list[tuple[object, GroupState]]] = {}


def row(request: str, kind: str, *answers: object) -> None:
    """Add the expected answers to a request in the five states.

    An answer may be a pair with the next state of the group.
    """
    assert len(answers) == 5
    TABLE[request, kind] = [
        answer if isinstance(answer, tuple) else (answer, state)
        for state, answer in zip(GroupState, answers, strict=True)
    ]


BEGINS = (WAITS, PREPARING)
row("join", "new", ID_FIRST, ID_FIRST, ID_FIRST, ID_FIRST, GONE)
row("join", "old new", BEGINS, WAITS, BEGINS, BEGINS, GONE)
row("join", "new static", BEGINS, WAITS, BEGINS, BEGINS, GONE)
row("join", "restarted", BEGINS, WAITS, BEGINS, OK, GONE)
row("join", "pending", BEGINS, WAITS, BEGINS, BEGINS, GONE)
row("join", "leader", UNKNOWN, WAITS, OK, BEGINS, GONE)
row("join", "follower", UNKNOWN, WAITS, OK, OK, GONE)
row("join", "static", UNKNOWN, WAITS, OK, OK, GONE)
row("join", "stranger", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)
row("join", "impostor", UNKNOWN, FENCED, FENCED, FENCED, GONE)
row("join changed", "new", ID_FIRST, ID_FIRST, ID_FIRST, ID_FIRST, GONE)
row("join changed", "restarted", BEGINS, WAITS, BEGINS, OK, GONE)
for kind in ("leader", "follower", "static"):
    row("join changed", kind, UNKNOWN, WAITS, BEGINS, BEGINS, GONE)
for kind in ("new", "new static", "restarted", "leader", "follower", "static", "stranger"):
    row("join nothing", kind, INCONSISTENT, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)
for kind in ("leader", "follower", "static", "stranger", "impostor"):
    row("join other", kind, UNKNOWN, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)
    row("join as connect", kind, UNKNOWN, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)
row("join other", "new", ID_FIRST, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)
row("join other", "pending", BEGINS, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)

row("sync", "leader", UNKNOWN, REBALANCE, (OK, STABLE), OK, GONE)
row("sync", "follower", UNKNOWN, REBALANCE, WAITS, OK, GONE)
row("sync", "static", UNKNOWN, REBALANCE, WAITS, OK, GONE)
for kind in ("leader", "follower", "static"):
    row("sync late", kind, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL, GONE)
    row("sync other", kind, UNKNOWN, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)
    row("sync as connect", kind, UNKNOWN, INCONSISTENT, INCONSISTENT, INCONSISTENT, GONE)
    row("heartbeat", kind, UNKNOWN, REBALANCE, OK, OK, GONE)
    row("heartbeat late", kind, UNKNOWN, ILLEGAL, ILLEGAL, ILLEGAL, GONE)
for request in ("sync", "sync late", "heartbeat", "heartbeat late", "leave"):
    row(request, "stranger", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)
    row(request, "impostor", UNKNOWN, FENCED, FENCED, FENCED, GONE)
    if request != "leave":
        row(request, "pending", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, GONE)

LEFT = (OK, PREPARING)
for kind in ("leader", "follower", "static", "static by instance"):
    row("leave", kind, UNKNOWN, OK, LEFT, LEFT, GONE)
row("leave", "pending", OK, OK, LEFT, LEFT, GONE)
EXPIRED = (UNKNOWN, PREPARING)
row("expire", "pending", UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN)
row("expire", "leader", UNKNOWN, OK, EXPIRED, EXPIRED, OK)
for kind in ("follower", "static"):
    row("expire", kind, UNKNOWN, UNKNOWN, EXPIRED, EXPIRED, OK)

CASES = [
    pytest.param(request, kind, state, *expected, id=f"{request}, {kind}, {state.value}")
    for (request, kind), answers in TABLE.items()
    for state, expected in zip(GroupState, answers, strict=True)
]


@pytest.mark.parametrize(("request_name", "kind", "state", "expected", "after"), CASES)
def test_group_request_in_each_state_gets_the_listed_error_code(
    request_name, kind, state, expected, after
) -> None:
    stage = Stage(state)
    outcome = REQUESTS[request_name](stage, kind)
    if isinstance(outcome, Ticket):
        outcome = WAITS if outcome.is_waiting else outcome.error
    assert (outcome, stage.group.state) == (expected, after)


@pytest.mark.parametrize("before", GroupState)
@pytest.mark.parametrize("after", GroupState)
def test_group_changes_state_only_along_allowed_transitions(before, after) -> None:
    group = Stage(before).group
    if after in ALLOWED[before]:
        group.move_to(after, 5)
        assert (group.state, group.previous_state, group.state_since_ms) == (after, before, 5)
    else:
        with pytest.raises(AssertionError):
            group.move_to(after, 5)
