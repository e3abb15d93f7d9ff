"""Requests about offsets of consumer group members (KIP-848), and requests of classic groups."""

from collections.abc import Iterator
from typing import Any

from ..group_member import DELETE_GROUPS, LEAVE, OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from ..raw_peer import RawPeer
from ..transactional_owner import Owner
from .consumer_groups import PARTITIONS, TOPIC, ConsumerMembers

Scenario = Iterator[tuple[str, Any]]
ADD_OFFSETS, TXN_OFFSET_COMMIT = 25, 28


def _committing(group: ConsumerMembers, label: str, epoch: int, *indexes: int) -> dict[str, Any]:
    rows = [
        {
            "partition_index": index,
            "committed_offset": 5,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
            "commit_timestamp": -1,
        }
        for index in indexes
    ]
    return {
        "group_id": group.group_id,
        "generation_id_or_member_epoch": epoch,
        "generation_id": epoch,
        "member_id": group.member(label).member_id,
        "topics": [{"name": TOPIC, "topic_id": group.peer.topic_ids[TOPIC], "partitions": rows}],
    }


def _two_members(group: ConsumerMembers) -> None:
    """Join the members a and b, and wait until they share the partitions. Member a joins first."""
    group.joined("a")
    group.joined("b")
    group.settled("a", "b")


def consumer_commits(peer: RawPeer, version: int) -> Scenario:
    """Send OffsetCommit from members with current, older and wrong epochs (KIP-1251)."""
    with ConsumerMembers(peer, f"member-commits-{version}", 1) as group:
        _two_members(group)

        def commit(label: str, epoch: int, *indexes: int, **fields: Any) -> Any:
            values = _committing(group, label, epoch, *indexes) | fields
            return group.ask(OFFSET_COMMIT, version, values)

        epoch = group.epochs["a"]
        for index in range(PARTITIONS):
            yield f"partition {index}", commit("a", epoch, index)
            yield f"partition {index}, the epoch before", commit("a", epoch - 1, index)
        yield "all, two epochs before", commit("a", epoch - 2, *range(PARTITIONS))
        yield "a greater epoch", commit("a", epoch + 1, 0)
        yield "unknown member", commit("a", epoch, 0, member_id="somebody")
        yield "no member", commit("a", -1, 0, member_id="")
        yield "no epoch", commit("a", -1, 0)
        if version >= 7:
            yield "an instance of nobody", commit("a", epoch, 0, group_instance_id="i")


def consumer_fetches(peer: RawPeer, version: int) -> Scenario:
    """Send OffsetFetch from members with current and wrong epochs."""
    if version < 9:
        return
    with ConsumerMembers(peer, f"member-fetches-{version}", 1) as group:
        _two_members(group)
        topic = {"name": TOPIC, "topic_id": peer.topic_ids[TOPIC], "partition_indexes": [0, 1]}

        def fetch(member_id: str | None, epoch: int) -> Any:
            wanted = {"group_id": group.group_id, "member_id": member_id, "member_epoch": epoch}
            return group.ask(OFFSET_FETCH, version, {"groups": [wanted | {"topics": [topic]}]})

        own, epoch = group.member("a").member_id, group.epochs["a"]
        for case, member_id, claimed in (
            ("its epoch", own, epoch),
            ("the epoch before", own, epoch - 1),
            ("a greater epoch", own, epoch + 1),
            ("no epoch", own, -1),
            ("unknown member", "somebody", epoch),
            ("no member", None, -1),
            ("an epoch without member", None, epoch),
            ("empty member", "", epoch),
        ):
            yield case, fetch(member_id, claimed)


def consumer_transactions(peer: RawPeer, version: int) -> Scenario:
    """Send TxnOffsetCommit from members with current, older and wrong epochs."""
    if version < 3:
        return
    with ConsumerMembers(peer, f"member-transactions-{version}", 1) as group:
        _two_members(group)
        owner = Owner(peer, f"member-transactions-{version}")
        if version < 5:
            fields = owner.fields | {"group_id": group.group_id}
            assert peer.ask(ADD_OFFSETS, 3, fields)["error_code"] == 0

        def commit(epoch: int, *indexes: int, **fields: Any) -> Any:
            values = owner.fields | _committing(group, "a", epoch, *indexes) | fields
            return group.ask(TXN_OFFSET_COMMIT, version, values)

        epoch = group.epochs["a"]
        for index in range(PARTITIONS):
            yield f"partition {index}", commit(epoch, index)
            yield f"partition {index}, the epoch before", commit(epoch - 1, index)
        yield "a greater epoch", commit(epoch + 1, 0)
        yield "unknown member", commit(epoch, 0, member_id="somebody")
        yield "no member", commit(-1, 0, member_id="")
        yield "no epoch", commit(-1, 0)
        yield "an instance of nobody", commit(epoch, 0, group_instance_id="i")


def expelled(peer: RawPeer, version: int) -> Scenario:
    """Send LeaveGroup, as administrators do, for members of a consumer group."""
    with ConsumerMembers(peer, f"expelled-{version}", 1) as group:
        group.joined("a")
        for label, instance in (("b", "one"), ("c", "two"), ("d", None)):
            group.joined(label, instance_id=instance)
        ids = {label: group.member(label).member_id for label in "abcd"}

        def leave(*members: tuple[str, str | None]) -> Any:
            rows = [
                {"member_id": ids.get(name, name), "group_instance_id": instance, "reason": None}
                for name, instance in members
            ]
            single = ids.get(members[0][0], members[0][0])
            values = {"group_id": group.group_id, "members": rows, "member_id": single}
            return group.ask(LEAVE, version, values)

        def left() -> Any:
            (found,) = group.stated()["groups"]
            names = sorted(each["member_id"] for each in found["members"])
            return {"members": names, "state": found["group_state"], "epoch": found["group_epoch"]}

        yield "a stranger", leave(("nobody", None))
        if version >= 3:
            yield "no id", leave(("", None))
            yield "an instance of nobody", leave(("", "none"))
            yield "an instance by another id", leave(("wrong", "one"))
            yield "an instance by another member", leave(("a", "one"))
            yield "by its instance", leave(("", "one"))
            yield "that is gone", leave(("", "one"))
            several = ("c", "two"), ("a", None), ("x", None), ("a", None)
            yield "several, one twice", leave(*several)
            yield "who is left", left()
        yield "by its id", leave(("d", None))
        yield "again", leave(("d", None))
        yield "it beats", group.beat("d")
        yield "then", left()


def classic_requests(peer: RawPeer, version: int) -> Scenario:
    """Send requests of classic members and of administrators to a consumer group."""
    if not version:
        return
    with ConsumerMembers(peer, "asked-as-classic", 1) as group:
        group.joined("a")
        yield "joins a consumer group", group.join("x", 9)
        yield "joins as another type", group.join("x", 9, protocol_type="connect")
        member = group.member("a")
        member.generation = group.epochs["a"]
        yield "syncs", group.sync("a", 5, {})
        yield "beats", group.heartbeat("a")
        yield "leaves", group.leave(5, "a")
        yield "a stranger syncs", group.sync("y", 5, {}, member_id="somebody")
        yield "a stranger beats", group.heartbeat("y", member_id="somebody")
        leaving = [{"member_id": "", "group_instance_id": "one", "reason": None}]
        yield "an instance leaves", group.leave(5, members=leaving)
        group.joined("a")
        wanted = [{"name": TOPIC, "partitions": [{"partition_index": 0}]}]
        values = {"group_id": group.group_id, "topics": wanted}
        yield "deletes offsets", group.ask(OFFSET_DELETE, 0, values)
        yield "deletes it", group.ask(DELETE_GROUPS, 2, {"groups_names": [group.group_id]})
        group.beat("a", -1)
        yield "deletes offsets of the empty one", group.ask(OFFSET_DELETE, 0, values)
        yield (
            "deletes the empty one",
            group.ask(DELETE_GROUPS, 2, {"groups_names": [group.group_id]}),
        )
        yield "then", group.stated()
        group.joined("a")
        group.beat("a", -1)
        yield "joins the empty one", group.admitted("z", 9)
        yield "that is now", group.described()
        yield "and not", group.stated()
