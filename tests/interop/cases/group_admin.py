"""Requests of administrators about groups and their committed offsets."""

from collections.abc import Iterator
from typing import Any

from ..group_member import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    Group,
    subscription,
)
from ..raw_peer import UNKNOWN_ID, RawPeer

Scenario = Iterator[tuple[str, Any]]
TOPIC_IDS_FROM, GROUPS_FROM = 10, 8


def describe_groups(peer: RawPeer, version: int) -> Scenario:
    with Group(peer, f"described-{version}") as group:

        def describe(*names: str, **fields: Any) -> Any:
            return group.ask(DESCRIBE_GROUPS, version, {"groups": list(names)} | fields)

        name = group.group_id
        yield "unknown", describe(name)
        yield "no name", describe("")
        yield "nothing", describe()
        group.admitted("a", 7)
        yield "before the assignment", describe(name)
        group.sync("a", 3, {"a": b"for a"})
        yield "stable", describe(name)
        yield "one twice", describe(name, name)
        yield "known and unknown", describe(name, "no-such-group")
        if version >= 3:
            yield "operations", describe(name, include_authorized_operations=True)
            yield (
                "operations of an unknown one",
                describe("no-such-group", include_authorized_operations=True),
            )
        group.leave(4, "a")
        yield "empty", describe(name)
        with Group(peer, f"simple-{version}") as simple:
            _committed(simple, f"described-topic-{version}")
            yield (
                "offsets only",
                simple.ask(DESCRIBE_GROUPS, version, {"groups": [simple.group_id]}),
            )


def list_groups(peer: RawPeer, version: int) -> Scenario:
    mark = f"listed-{version}"
    with (
        Group(peer, f"{mark}-stable") as stable,
        Group(peer, f"{mark}-empty") as empty,
        Group(peer, f"{mark}-simple") as simple,
        Group(peer, f"{mark}-completing") as completing,
    ):
        stable.stable("a", version=7)
        empty.stable("a", version=7)
        empty.leave(4, "a")
        _committed(simple, f"{mark}-topic")
        completing.admitted("a", 7)

        def listed(**fields: Any) -> Any:
            answer = stable.ask(LIST_GROUPS, version, fields)
            if isinstance(answer, dict):  # those of other scenarios are there too
                rows = [row for row in answer["groups"] if row["group_id"].startswith(mark)]
                answer["groups"] = sorted(rows, key=lambda row: row["group_id"])
            return answer

        yield "all", listed()
        if version >= 4:
            for states in (
                "Stable", "stable", "Empty Stable", "Dead", "CompletingRebalance",
                "PreparingRebalance", "Nonsense", "",
            ):  # fmt: skip
                yield f"states {states}", listed(states_filter=states.split(" "))
        if version >= 5:
            for kinds in ("classic", "Classic", "consumer", "classic consumer", "Nonsense", ""):
                yield f"types {kinds}", listed(types_filter=kinds.split(" "))
            yield "type and state", listed(types_filter=["classic"], states_filter=["Empty"])


def delete_groups(peer: RawPeer, version: int) -> Scenario:
    with Group(peer, f"deleted-{version}") as group:

        def delete(*names: str) -> Any:
            return group.ask(DELETE_GROUPS, version, {"groups_names": list(names)})

        yield "unknown", delete("no-such-group")
        yield "no name", delete("")
        yield "nothing", delete()
        group.stable("a", version=7)
        yield "not empty", delete(group.group_id)
        group.leave(4, "a")
        yield "empty", delete(group.group_id)
        yield "again", delete(group.group_id)
        with Group(peer, f"deleted-simple-{version}") as simple:
            _committed(simple, f"deleted-topic-{version}")
            names = (simple.group_id, simple.group_id, "no-such-group")
            yield "offsets only, twice, and unknown", delete(*names)
            fetched = _fetched(simple, f"deleted-topic-{version}")
            yield "its offsets then", fetched


def _committed(group: Group, topic: str, *offsets: int) -> None:
    """Commit offsets of partitions 0, 1, ... without being a member."""
    group.peer.create_topic(topic, partitions=2)
    rows = [
        {
            "partition_index": index,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        for index, offset in enumerate(offsets or (7,))
    ]
    values = {
        "group_id": group.group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": topic, "partitions": rows}],
    }
    answer = group.ask(OFFSET_COMMIT, 8, values)
    assert all(p["error_code"] == 0 for t in answer["topics"] for p in t["partitions"]), answer


def _fetched(group: Group, topic: str, version: int = 7) -> Any:
    wanted = [{"name": topic, "partition_indexes": [0, 1]}]
    return group.ask(OFFSET_FETCH, version, {"group_id": group.group_id, "topics": wanted})


def offset_commit(peer: RawPeer, version: int) -> Scenario:
    topic = f"committed-{version}"
    peer.create_topic(topic, partitions=2)
    with Group(peer, f"commits-{version}") as group:

        def commit(*parts: tuple[int, int, str | None], name: str = topic, **fields: Any) -> Any:
            rows = [
                {
                    "partition_index": index,
                    "committed_offset": offset,
                    "committed_leader_epoch": 0 if offset == 6 else -1,
                    "committed_metadata": metadata,
                    "commit_timestamp": -1,
                }
                for index, offset, metadata in parts
            ]
            one: dict[str, Any] = {"name": name, "partitions": rows}
            if version >= TOPIC_IDS_FROM:
                one["topic_id"] = peer.topic_ids.get(name, UNKNOWN_ID)
            values = {
                "group_id": group.group_id,
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [one] if rows else [],
            } | fields
            return group.ask(OFFSET_COMMIT, version, values)

        yield "one", commit((0, 5, "m"))
        yield "two", commit((0, 6, ""), (1, 7, None))
        yield "then", _fetched(group, topic)
        yield "backwards", commit((0, 3, "m"))
        yield "one twice", commit((0, 6, ""), (0, 8, ""))
        yield "nothing", commit()
        yield "unknown topic", commit((0, 5, "m"), name="no-such-topic")
        yield "unknown partition", commit((9, 5, "m"), (0, 6, "known"))
        yield "negative offset", commit((0, -5, "m"))
        yield "metadata as long as may be", commit((0, 6, "m" * 4096))
        yield "metadata too long", commit((0, 6, "m" * 4097), (1, 9, "m"))
        yield "then, afterwards", _fetched(group, topic)
        yield "empty group", commit((0, 5, "m"), group_id="")
        yield "unknown member", commit((0, 5, "m"), member_id="somebody")
        yield "generation without member", commit((0, 5, "m"), generation_id_or_member_epoch=3)
        nobody = {"generation_id_or_member_epoch": 3, "member_id": "somebody"}
        yield "member of no group", commit((0, 5, "m"), group_id="no-such-group", **nobody)
        group.stable("a", version=7)
        a = group.member("a")
        mine: dict[str, Any] = {
            "generation_id_or_member_epoch": a.generation,
            "member_id": a.member_id,
        }
        yield "member", commit((0, 15, "m"), **mine)
        for generation in (0, 2, -1):
            wrong: dict[str, Any] = mine | {"generation_id_or_member_epoch": generation}
            yield f"member, generation {generation}", commit((0, 16, "m"), **wrong)
        yield "not a member", commit((0, 17, "m"))
        yield "a stranger", commit((0, 17, "m"), **mine | {"member_id": "somebody"})
        if version >= 7:
            yield "unknown instance", commit((0, 18, "m"), **mine, group_instance_id="i")
        second = group.apart(group.admitted, "b", 7)
        group.wait_for_rebalance("a")
        yield "in a rebalance", commit((0, 19, "m"), **mine)
        group.join("a", 7)
        second.result(30)
        mine["generation_id_or_member_epoch"] = a.generation
        yield "before the assignment", commit((0, 20, "m"), **mine)
        yield "at the end", _fetched(group, topic)


def offset_fetch(peer: RawPeer, version: int) -> Scenario:
    topic, other = f"fetched-{version}", f"fetched-other-{version}"
    peer.create_topic(other, partitions=2)
    with Group(peer, f"fetches-{version}") as group:
        _committed(group, topic, 11, 12)
        name = group.group_id

        def one(name: str, *topics: tuple[str, list[int]], everything: bool = False) -> Any:
            rows: list[dict[str, Any]] | None = []
            for t, partitions in topics:
                row: dict[str, Any] = {"name": t, "partition_indexes": partitions}
                if version >= TOPIC_IDS_FROM:
                    row["topic_id"] = peer.topic_ids.get(t, UNKNOWN_ID)
                rows.append(row)
            return {"group_id": name, "topics": None if everything else rows}

        def fetch(first: dict[str, Any], *more: dict[str, Any], **fields: Any) -> Any:
            values = {"groups": [first, *more]} if version >= GROUPS_FROM else first
            return group.ask(OFFSET_FETCH, version, values | fields)

        yield "both", fetch(one(name, (topic, [0, 1])))
        yield "known and unknown partition", fetch(one(name, (topic, [1, 9, -1])))
        yield "unknown topic", fetch(one(name, ("no-such-topic", [0])))
        yield "not committed", fetch(one(name, (other, [0])))
        yield "no topics", fetch(one(name))
        yield "no partitions", fetch(one(name, (topic, [])))
        yield "one twice", fetch(one(name, (topic, [0, 0])))
        if version >= 2:
            yield "all", fetch(one(name, everything=True))
            yield "all of an unknown group", fetch(one("no-such-group", everything=True))
        yield "unknown group", fetch(one("no-such-group", (topic, [0])))
        yield "empty group", fetch(one("", (topic, [0])))
        if version >= 7:
            yield "stable only", fetch(one(name, (topic, [0, 1])), require_stable=True)
        if version >= GROUPS_FROM:
            yield "two groups", fetch(one(name, (topic, [0])), one("no-such-group", (topic, [0])))
            yield "a group twice", fetch(one(name, (topic, [0])), one(name, (topic, [1])))
            yield "no group", group.ask(OFFSET_FETCH, version, {"groups": []})
        if version >= 9:
            claimed = one(name, (topic, [0])) | {"member_id": "somebody", "member_epoch": 3}
            yield "a member there is not", fetch(claimed)
            yield "an epoch without member", fetch(claimed | {"member_id": None})
        group.stable("a", version=7)
        yield "of a group with members", fetch(one(name, (topic, [0])))
        if version >= 9:
            a = group.member("a")
            claimed = one(name, (topic, [0])) | {"member_id": a.member_id, "member_epoch": 1}
            yield "a member", fetch(claimed)
            yield "a member of another epoch", fetch(claimed | {"member_epoch": 7})


def offset_delete(peer: RawPeer, version: int) -> Scenario:
    topic, other = "offset-deleted", "offset-deleted-other"
    peer.create_topic(topic, partitions=2)
    peer.create_topic(other, partitions=2)
    with Group(peer, "offset-deletes") as group:

        def delete(*wanted: tuple[str, list[int]], **fields: Any) -> Any:
            rows = [
                {"name": name, "partitions": [{"partition_index": i} for i in indexes]}
                for name, indexes in wanted
            ]
            values = {"group_id": group.group_id, "topics": rows} | fields
            return group.ask(OFFSET_DELETE, version, values)

        yield "unknown group", delete((topic, [0]))
        yield "empty group", delete((topic, [0]), group_id="")
        _committed(group, topic, 5, 6)
        yield "one", delete((topic, [0]))
        yield "then", _fetched(group, topic)
        yield "again", delete((topic, [0]))
        yield "known and unknown partition", delete((topic, [1, 9]))
        yield "unknown topic", delete(("no-such-topic", [0]))
        yield "nothing", delete()
        yield "the group then", group.described()
        _committed(group, topic, 5, 6)
        _committed(group, other, 7)
        group.stable("a", version=7, protocols=_subscribed(topic))
        yield "subscribed", delete((topic, [0]))
        yield "not subscribed", delete((other, [0]))
        yield "both", delete((topic, [0]), (other, [0]))
        group.leave(4, "a")
        yield "nobody is there any more", delete((topic, [0]))
        yield "at the end", _fetched(group, topic)


def _subscribed(topic: str) -> list[tuple[str, bytes]]:
    return [("range", subscription(topic))]
