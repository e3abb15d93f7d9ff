"""Requests of group members, which are JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from collections.abc import Iterator
from typing import Any

from ..group_member import HEARTBEAT, LEAVE, Group, subscription
from ..raw_peer import RawPeer

Scenario = Iterator[tuple[str, Any]]
BOTH = [("range", subscription("a")), ("roundrobin", subscription("b"))]


def join_group(peer: RawPeer, version: int) -> Scenario:
    with Group(peer, f"join-{version}") as group:
        for timeout in (0, -1, 5_999, 1_800_001):
            yield f"session timeout {timeout}", group.join("x", version, session_timeout=timeout)
        yield "empty group", group.join("x", version, group_id="")
        yield "no protocol type", group.join("x", version, protocol_type="")
        yield "no protocols", group.join("x", version, protocols=[])
        yield "unknown member", group.join("x", version, member_id="somebody-else")
        yield "nothing came of it", group.described()
        yield "first, without an id", group.join("a", version, protocols=BOTH)
        if version >= 4:
            yield "first, with its id", group.join("a", version, protocols=BOTH)
        yield "again before the assignment", group.join("a", version, protocols=BOTH)
        yield "another protocol type", group.join("x", version, protocol_type="connect")
        yield "no common protocol", group.join("x", version, protocols=[("sticky", b"")])
        yield "unknown member of a group", group.join("x", version, member_id="somebody-else")
        yield "assignment", group.sync("a", min(version, 5), {"a": b"1"})
        yield "the leader again", group.join("a", version, protocols=BOTH)
        yield "assignment, once more", group.sync("a", min(version, 5), {"a": b"2"})
        second = group.apart(group.admitted, "b", version, protocols=BOTH[1:])
        group.wait_for_rebalance("a")
        yield "during the rebalance", group.described()
        yield "the leader comes back", group.join("a", version, beside=second, protocols=BOTH)
        yield "the second has waited", second.result(30)
        yield "then", group.described()
        yield "a follower again", group.join("b", version, protocols=BOTH[1:])
        group.sync("a", 3, {"a": b"a", "b": b"b"})
        yield "a follower again, when stable", group.join("b", version, protocols=BOTH[1:])
        yield "with other metadata", _rejoined(group, version)
        yield "at the end", group.described()


def _rejoined(group: Group, version: int) -> Any:
    """Start a rebalance by a follower with another subscription. Return both JoinGroup answers."""
    other = [("roundrobin", subscription("c"))]
    follower = group.apart(group.join, "b", version, protocols=other)
    group.wait_for_rebalance("a")
    leader = group.join("a", version, protocols=BOTH)
    return {"leader": leader, "follower": follower.result(30)}


def join_with_instances(peer: RawPeer, version: int) -> Scenario:
    """Join static members (KIP-345, KIP-814)."""
    if version < 5:
        return
    with Group(peer, f"static-{version}") as group:
        mine: dict[str, Any] = {"group_instance_id": "one"}
        yield "empty instance", group.join("x", version, group_instance_id="")
        # This is a static member too, and must not block the others.
        leaving = [{"member_id": "", "group_instance_id": "", "reason": None}]
        yield "empty instance leaves", group.leave(5, members=leaving)
        yield "first", group.join("a", version, **mine)
        yield "assignment", group.sync("a", 5, {"a": b"1"}, **mine)
        yield "described", group.described()
        yield "the same again", group.join("a", version, **mine)
        group.sync("a", 5, {"a": b"1"}, **mine)
        yield "restarted", group.join("b", version, **mine)
        yield "restarted, assignment", group.sync("b", 5, {"b": b"2"}, **mine)
        yield "the old one joins", group.join("a", version, **mine)
        yield "the old one beats", group.heartbeat("a", 4, **mine)
        yield "the old one syncs", group.sync("a", 5, {}, **mine)
        yield "the new one beats", group.heartbeat("b", 4, **mine)
        yield "beats without its instance", group.heartbeat("b", 4)
        yield "unknown instance", group.heartbeat("b", 4, group_instance_id="two")
        yield "unknown instance with an id", group.join("x", version, member_id="somebody", **mine)
        changed = [("range", subscription("z"))]
        yield "restarted, other metadata", group.join("c", version, protocols=changed, **mine)
        yield "then", group.described()


def sync_group(peer: RawPeer, version: int) -> Scenario:
    with Group(peer, f"sync-{version}") as group:
        nobody = {"generation_id": 1, "member_id": "somebody"}
        yield "unknown group", group.sync("x", version, {}, **nobody)
        yield "empty group", group.sync("x", version, {}, group_id="", **nobody)
        group.admitted("a", 7)
        yield "unknown member", group.sync("a", version, {}, member_id="somebody")
        for generation in (0, 2, -1):
            case = f"generation {generation}"
            yield case, group.sync("a", version, {}, generation_id=generation)
        if version >= 5:
            yield "another type", group.sync("a", version, {}, protocol_type="connect")
            yield "another protocol", group.sync("a", version, {}, protocol_name="sticky")
            yield "no type", group.sync("a", version, {}, protocol_type=None)
            yield "no protocol", group.sync("a", version, {}, protocol_name=None)
        yield "the leader, with nothing", group.sync("a", version, {})
        yield "again, with something", group.sync("a", version, {"a": b"late"})
        yield "then", group.described()
        second = group.apart(group.admitted, "b", 7)
        group.wait_for_rebalance("a")
        yield "in a rebalance", group.sync("a", version, {})
        group.join("a", 7)
        second.result(30)
        waiting = group.apart(group.sync, "b", version, {})
        given = {"a": b"for a", "b": b"for b"}
        yield "the leader", group.sync("a", version, given)
        yield "the follower has waited", waiting.result(30)
        yield "the follower again", group.sync("b", version, {})
        yield "for a stranger", group.sync("a", version, given | {"x": b"?"})
        if version >= 3:
            yield "instance of nobody", group.sync("a", version, {}, group_instance_id="i")
        yield "at the end", group.described()


def heartbeat(peer: RawPeer, version: int) -> Scenario:
    with Group(peer, f"beat-{version}") as group:
        values = {"group_id": group.group_id, "generation_id": 1, "member_id": "somebody"}
        yield "unknown group", group.ask(HEARTBEAT, version, values)
        yield "empty group", group.ask(HEARTBEAT, version, values | {"group_id": ""})
        group.admitted("a", 7)
        yield "before the assignment", group.heartbeat("a", version)
        group.sync("a", 3, {"a": b"1"})
        yield "stable", group.heartbeat("a", version)
        for generation in (0, 2, -1):
            yield (
                f"generation {generation}",
                group.heartbeat("a", version, generation_id=generation),
            )
        yield "unknown member", group.heartbeat("a", version, member_id="somebody")
        yield "no member", group.heartbeat("a", version, member_id="")
        if version >= 3:
            yield "unknown instance", group.heartbeat("a", version, group_instance_id="i")
        second = group.apart(group.admitted, "b", 7)
        group.wait_for_rebalance("a")
        yield "in a rebalance", group.heartbeat("a", version)
        yield "in a rebalance, old generation", group.heartbeat("a", version, generation_id=0)
        group.join("a", 7)
        second.result(30)
        yield "before the second assignment", group.heartbeat("b", version)
        group.leave(4, "a")
        group.leave(4, "b")
        yield "after the end", group.heartbeat("a", version)


def leave_group(peer: RawPeer, version: int) -> Scenario:
    with Group(peer, f"leave-{version}") as group:
        one = {"member_id": "somebody", "group_instance_id": None, "reason": None}
        values: dict[str, Any] = {"group_id": group.group_id, "member_id": "somebody"}
        if version >= 3:
            values = {"group_id": group.group_id, "members": [one]}
        yield "unknown group", group.ask(LEAVE, version, values)
        yield "empty group", group.ask(LEAVE, version, values | {"group_id": ""})
        group.stable("a", "b", version=7)
        yield "unknown member", group.ask(LEAVE, version, values)
        yield "one", group.leave(version, "a")
        yield "again", group.leave(version, "a")
        yield "then", group.heartbeat("b")
        if version >= 3:
            yield "no members", group.ask(LEAVE, version, values | {"members": []})
            instance = one | {"member_id": "", "group_instance_id": "nobody"}
            yield "unknown instance", group.ask(LEAVE, version, values | {"members": [instance]})
            both = [one, one | {"member_id": group.member("b").member_id}]
            yield "known and unknown", group.ask(LEAVE, version, values | {"members": both})
        else:
            yield "the last", group.leave(version, "b")
        yield "at the end", group.described()
    if version >= 3:
        yield from _instances_leave(peer, version)


def _instances_leave(peer: RawPeer, version: int) -> Scenario:
    with Group(peer, f"leave-static-{version}") as group:
        for label in "ab":
            answer = group.apart(group.admitted, label, 7, group_instance_id=f"i-{label}")
            if label == "b":
                group.wait_for_rebalance("a")
                group.join("a", 7, group_instance_id="i-a")
            answer.result(30)
        group.sync("a", 3, {"a": b"1", "b": b"2"}, group_instance_id="i-a")

        def leave(*rows: tuple[str, str | None]) -> Any:
            members = [
                {"member_id": member_id, "group_instance_id": instance, "reason": "done"}
                for member_id, instance in rows
            ]
            return group.ask(LEAVE, version, {"group_id": group.group_id, "members": members})

        a, b = (group.member(label).member_id for label in "ab")
        yield "instance with another's id", leave((b, "i-a"))
        yield "instance with an unknown id", leave(("somebody", "i-a"))
        yield "instance by its name", leave(("", "i-a"))
        yield "instance by its name, again", leave(("", "i-a"))
        yield "instance by its id", leave((b, None))
        yield "unknown ones", leave((a, "i-a"), ("", "i-b"))
        yield "static, at the end", group.described()
