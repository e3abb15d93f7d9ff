"""Requests about consumer groups (KIP-848), heartbeats and descriptions."""

import time
from collections.abc import Iterator
from typing import Any

from ...waiting import until
from ..group_member import OFFSET_COMMIT, Group, subscription
from ..raw_peer import UNKNOWN_ID, RawPeer
from ..transactional_owner import wait_for_coordinator

Scenario = Iterator[tuple[str, Any]]
HEARTBEAT, DESCRIBE, LIST_GROUPS = 68, 69, 16
INCREMENTAL_ALTER_CONFIGS, OF_GROUP = 44, 32
TOPIC, OTHER, PARTITIONS = "consumer-groups", "consumer-groups-too", 4

RARE_HEARTBEATS_MS = "9000"
EPOCHS = ("member_epoch", "group_epoch", "assignment_epoch")


class ConsumerMembers(Group):
    """A consumer group and its members, which choose their own member ids.

    Epochs in answers are counted from the group's first epoch, since Kafka's first epoch is 2.
    """

    def __init__(self, peer: RawPeer, group_id: str, version: int) -> None:
        super().__init__(peer, group_id)
        self.version = version
        self.epochs: dict[str, int] = {}
        self.given: dict[str, list[Any]] = {}
        self.first_epochs: dict[str, int] = {}  # of each group

    def __enter__(self) -> "ConsumerMembers":
        super().__enter__()
        self.peer.create_topic(TOPIC, PARTITIONS)
        self.peer.create_topic(OTHER, 1)
        return self

    def beat(self, label: str, epoch: int | None = None, **fields: Any) -> Any:
        """Send a heartbeat with only the given fields, and keep the epoch in its answer.

        Answers show a member's label in place of its id.
        """
        member = self.member(label)
        member.member_id = f"id-of-{label}-in-{self.group_id}"
        values = {
            "group_id": self.group_id,
            "member_id": member.member_id,
            "member_epoch": self.epochs.get(label, 0) if epoch is None else epoch,
            "instance_id": None,
            "rack_id": None,
            "rebalance_timeout": -1,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": None,
            "server_assignor": None,
            "topic_partitions": None,
        } | fields
        if self.version < 1:
            del values["subscribed_topic_regex"]
        answer = member.peer.ask_raw(HEARTBEAT, self.version, values)
        if not isinstance(answer, str) and not answer.error_code:
            self.epochs[label] = answer.member_epoch
            self.first_epochs.setdefault(values["group_id"], answer.member_epoch)
            if answer.assignment is not None:
                self.given[label] = [
                    {"topic_id": row.topic_id, "partitions": list(row.partitions)}
                    for row in answer.assignment.topic_partitions
                ]
        return self.shown(self.peer.comparable(answer), values["group_id"])

    def joined(self, label: str, *topics: str, **fields: Any) -> Any:
        """Send a heartbeat with all fields of a joining member."""
        said: dict[str, Any] = {
            "rebalance_timeout": 60_000,
            "subscribed_topic_names": list(topics or (TOPIC,)),
            "topic_partitions": [],
        }
        return self.beat(label, 0, **(said | fields))

    def owning(self, label: str, *partitions: int, **fields: Any) -> Any:
        """Send a heartbeat that reports these partitions as owned by the member."""
        rows = [{"topic_id": self.peer.topic_ids[TOPIC], "partitions": list(partitions)}]
        return self.beat(label, topic_partitions=rows if partitions else [], **fields)

    def settled(self, *labels: str) -> Any:
        """Send heartbeats until each member owns its assignment, and the group is stable.

        Return the answer to a further heartbeat of each member.
        """
        for _ in range(100):
            before = dict(self.given)
            for label in labels:
                self.beat(label, topic_partitions=self.given.get(label, []))
            has_all = before == self.given and all(self.given.get(label) for label in labels)
            if has_all and self.stated()["groups"][0]["group_state"] == "Stable":
                return [self.beat(label) for label in labels]
            time.sleep(0.02)
        raise AssertionError(f"{self.peer.name}: the group does not settle: {self.stated()}")

    def heard(self, label: str, heartbeat_ms: str) -> None:
        """Send heartbeats until an answer has this interval, since Kafka applies a change late."""
        what = f"{self.peer.name}: {heartbeat_ms} ms are never applied"
        until(lambda: self.beat(label)["heartbeat_interval"] == int(heartbeat_ms), what)

    def stated(self, *group_ids: str, operations: bool = False) -> Any:
        """Send ConsumerGroupDescribe for these groups, and return the answer.

        Without `group_ids` only this object's group is described.
        """
        wanted = list(group_ids or (self.group_id,))
        values = {"group_ids": wanted, "include_authorized_operations": operations}
        answer = self.peer.ask(DESCRIBE, self.version, values)
        answer["groups"] = [self.shown(group, group["group_id"]) for group in answer["groups"]]
        return answer

    def shown(self, value: Any, group_id: str) -> Any:
        """Return a value with labels for member ids, and epochs counted from 1."""
        return self._counted(self.worded(value), self.first_epochs.get(group_id, 1) - 1)

    def _counted(self, value: Any, before: int) -> Any:
        if isinstance(value, list):
            return [self._counted(item, before) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            name: item - before if name in EPOCHS and item > 0 else self._counted(item, before)
            for name, item in value.items()
        }


def consumer_heartbeat(peer: RawPeer, version: int) -> Scenario:
    """Send heartbeats of one member with right and wrong fields."""
    with ConsumerMembers(peer, f"consumers-{version}", version) as group:
        yield "unknown group", group.beat("a", 1)
        yield "leaves an unknown group", group.beat("a", -1)
        yield "empty group", group.joined("a", group_id="")
        yield "blank group", group.joined("a", group_id=" ")
        yield "empty instance", group.joined("a", instance_id="")
        yield "empty rack", group.joined("a", rack_id="")
        yield "epoch -3", group.joined("a", member_epoch=-3)
        yield "leaves for now without an instance", group.beat("a", -2)
        yield "no topics named", group.joined("a", subscribed_topic_names=None)
        yield "no rebalance timeout", group.joined("a", rebalance_timeout=-1)
        yield "says nothing of what it owns", group.joined("a", topic_partitions=None)
        owned = [{"topic_id": UNKNOWN_ID, "partitions": [0]}]
        yield "owns something at once", group.joined("a", topic_partitions=owned)
        yield "unknown assignor", group.joined("a", server_assignor="sticky")
        yield "empty assignor", group.joined("a", server_assignor="")
        odd = {"member_id": ["", " ", "m" * 37], "rebalance_timeout": [0, -2]}
        for name, values in odd.items():
            for value in values:
                group_id = f"{group.group_id}-{value}"
                case = f"{name} {value!r}"
                yield case, group.joined("a", group_id=group_id, **{name: value})
                yield f"{case}, described", group.stated(group_id)
        if version:
            yield (
                "bad pattern",
                group.joined("a", subscribed_topic_names=None, subscribed_topic_regex="("),
            )
        yield "nothing came of it", group.stated()
        yield "joins", group.joined("a")
        yield "described", group.stated()
        yield "unchanged", group.beat("a")
        yield (
            "says all again",
            group.beat(
                "a", rebalance_timeout=60_000, subscribed_topic_names=[TOPIC], topic_partitions=[]
            ),
        )
        yield "owns it", group.owning("a", 0, 1, 2, 3)
        yield "owns what it was not given", group.owning("a", 0, 7)
        yield "unknown member", group.beat("b", 1)
        yield "unknown member leaves", group.beat("b", -1)
        yield "a greater epoch", group.beat("a", 7)
        yield "the joining epoch again", group.joined("a")
        yield "topics in full", group.beat("a", subscribed_topic_names=[TOPIC])
        yield "unknown assignor, later", group.beat("a", server_assignor="sticky")
        yield "range", group.beat("a", server_assignor="range")
        yield "an instance of nobody", group.beat("a", instance_id="one")
        yield "another topic", group.beat("a", subscribed_topic_names=[TOPIC, OTHER])
        yield "then", group.settled("a")
        yield "a topic that is not there", group.beat("a", subscribed_topic_names=["nowhere"])
        yield "in the end", group.stated()
        yield "no topic", group.beat("a", subscribed_topic_names=[])
        yield "leaves", group.beat("a", -1)
        yield "leaves again", group.beat("a", -1)
        yield "after it left", group.beat("a", 1)
        yield "empty", group.stated()


def consumer_rebalance(peer: RawPeer, version: int) -> Scenario:
    """Let two members share the partitions, and then let one of them leave."""
    with ConsumerMembers(peer, f"sharing-{version}", version) as group:
        yield "first", group.joined("a")
        group.owning("a", 0, 1, 2, 3)
        yield "second", group.joined("b")
        yield "second waits", group.beat("b")
        yield "one gives up", group.beat("a")
        yield "while it gives up", group.stated()
        yield "the old epoch, and what it owned", group.owning("a", 0, 1, 2, 3)
        yield "has not given up", group.beat("a")
        yield "second still waits", group.beat("b")
        group.settled("a", "b")
        yield "shared", group.stated()
        yield "the epoch before", group.beat("a", group.epochs["a"] - 1)
        before = group.epochs["a"] - 1
        yield "the epoch before, owning nothing", group.beat("a", before, topic_partitions=[])
        yield (
            "the epoch before, owning too much",
            group.owning("a", 0, 1, 2, 3, member_epoch=before),
        )
        yield "second joins again", group.joined("b")
        yield "second leaves", group.beat("b", -1)
        yield "one is alone", group.stated()
        yield "takes all", group.beat("a")
        yield "at the end", group.stated()


def consumer_assigning(peer: RawPeer, version: int) -> Scenario:
    """Join two members to a group that computes a target assignment once in 10 minutes."""
    with ConsumerMembers(peer, f"assigning-{version}", version) as group:
        yield "first", group.joined("a")
        group.owning("a", 0, 1, 2, 3)
        yield "its configs", _set_configs(group, "600000", RARE_HEARTBEATS_MS)
        group.heard("a", RARE_HEARTBEATS_MS)
        yield "second", group.joined("b")
        yield "assigning", group.stated()
        yield "first beats", group.beat("a")
        yield "second beats", group.beat("b")
        yield "second, all of it", group.beat("b", subscribed_topic_names=[TOPIC])
        yield "second joins again", group.joined("b")
        yield "a greater epoch", group.beat("b", group.epochs["b"] + 1)
        yield "a stranger", group.beat("c", 1)
        filters = {"states_filter": ["assigning"], "types_filter": ["consumer"]}
        listed = peer.ask(LIST_GROUPS, 5, filters)
        listed["groups"] = [row for row in listed["groups"] if row["group_id"] == group.group_id]
        yield "listed", listed
        yield "second leaves", group.beat("b", -1)
        yield "still assigning", group.stated()
        yield "first leaves", group.beat("a", -1)
        yield "empty", group.stated()
        yield "its configs no more", _set_configs(group, None, None)


def _set_configs(group: ConsumerMembers, interval_ms: str | None, heartbeat_ms: str | None) -> Any:
    """Set a group's intervals between target assignments and between heartbeats.

    None restores a default.
    """
    wanted = {
        "consumer.assignment.interval.ms": interval_ms,
        "consumer.heartbeat.interval.ms": heartbeat_ms,
    }
    resource = {
        "resource_type": OF_GROUP,
        "resource_name": group.group_id,
        "configs": [
            {"name": name, "config_operation": int(value is None), "value": value}
            for name, value in wanted.items()
        ],
    }
    return group.peer.ask(
        INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}
    )


def consumer_kinds(peer: RawPeer, version: int) -> Scenario:
    """Send heartbeats to groups of other types, to one with offsets only, and to an empty one."""
    with ConsumerMembers(peer, f"kinds-{version}", version) as group:
        with Group(peer, f"connect-{version}") as connect:
            protocols = [("default", b"")]
            connect.admitted("a", 7, protocol_type="connect", protocols=protocols)
            for case, answer in _asked_of(group, connect.group_id):
                yield f"of another type, {case}", answer
        simple = f"alone-{version}"
        wait_for_coordinator(peer, 0, simple)
        yield "offsets alone", peer.ask(OFFSET_COMMIT, 8, _offset(simple))
        for case, answer in _asked_of(group, simple):
            yield f"with offsets alone, {case}", answer
        yield "that is now", group.stated(simple)
        with Group(peer, f"left-{version}") as left:
            left.admitted("a", 7, protocols=[("range", subscription(TOPIC))])
            left.leave(4, "a")
            for case, answer in _asked_of(group, left.group_id):
                yield f"empty, {case}", answer
            yield "empty no more", group.stated(left.group_id)


def _asked_of(group: ConsumerMembers, group_id: str) -> Scenario:
    """Send heartbeats with each special epoch to a group of which the sender is no member."""
    yield "described", group.stated(group_id)
    yield "beats", group.beat("x", 1, group_id=group_id)
    yield "leaves", group.beat("x", -1, group_id=group_id)
    yield "leaves for now", group.beat("x", -2, group_id=group_id, instance_id="i")
    yield "joins", group.joined("x", group_id=group_id)


def _offset(group_id: str) -> dict[str, Any]:
    """Return the fields of an OffsetCommit by a client that is not a member."""
    one = {
        "partition_index": 0,
        "committed_offset": 5,
        "committed_leader_epoch": -1,
        "committed_metadata": "",
    }
    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [{"name": TOPIC, "partitions": [one]}],
    }


def consumer_instances(peer: RawPeer, version: int) -> Scenario:
    """Let a static member leave temporarily and rejoin as another member."""
    mine: dict[str, Any] = {"instance_id": "one"}
    with ConsumerMembers(peer, f"instances-{version}", version) as group:
        yield "first", group.joined("a", **mine)
        yield "unchanged", group.beat("a", **mine)
        yield "without its instance", group.beat("a")
        yield "a second of the name", group.joined("b", **mine)
        yield "of another's id", group.beat("b", 1, **mine)
        yield "unknown instance", group.beat("a", instance_id="two")
        yield "another leaves in its name", group.beat("b", -1, **mine)
        yield "leaves for now", group.beat("a", -2, **mine)
        yield "while away", group.stated()
        yield "beats while away", group.beat("a", 1, **mine)
        yield "comes back", group.joined("b", **mine)
        yield "then", group.stated()
        yield "the old one beats", group.beat("a", 1, **mine)
        yield "the new one beats", group.beat("b", **mine)
        yield "leaves for now again", group.beat("b", -2, **mine)
        yield "comes back with its id", group.joined("b", **mine)
        yield "leaves for good", group.beat("b", -1, **mine)
        yield "at the end", group.stated()


def consumer_patterns(peer: RawPeer, version: int) -> Scenario:
    """Subscribe to a regular expression, which the broker matches with topic names."""
    if not version:
        return
    pattern: dict[str, Any] = {
        "subscribed_topic_names": None,
        "subscribed_topic_regex": f"^{TOPIC}$",
    }
    with ConsumerMembers(peer, f"patterns-{version}", version) as group:
        yield "joins", _without_assignment(group.joined("a", **pattern))
        yield "finds", group.settled("a")
        yield "described", group.stated()
        yield "bad pattern", group.beat("a", subscribed_topic_regex="[")
        yield (
            "names and a pattern",
            _without_assignment(
                group.joined(
                    "b", subscribed_topic_names=[OTHER], subscribed_topic_regex=f"^{TOPIC}$"
                )
            ),
        )
        yield "no pattern", _without_assignment(group.beat("a", subscribed_topic_regex=""))


def _without_assignment(answer: dict[str, Any]) -> dict[str, Any]:
    """Remove the fields that depend on when the broker resolves a regular expression."""
    return {
        name: value for name, value in answer.items() if name not in ("assignment", "member_epoch")
    }


def consumer_describe(peer: RawPeer, version: int) -> Scenario:
    """Describe groups of each type, and groups that do not exist."""
    with ConsumerMembers(peer, f"described-{version}", version) as group:
        yield "unknown group", group.stated("nobody's")
        yield "empty name", group.stated("")
        yield (
            "no groups",
            group.ask(DESCRIBE, version, {"group_ids": [], "include_authorized_operations": False}),
        )
        with Group(peer, f"described-classic-{version}") as classic:
            classic.admitted("a", 7, protocols=[("range", subscription("a"))])
            yield "classic group", group.stated(classic.group_id)
            yield "joins a classic group", group.joined("x", group_id=classic.group_id)
        yield "first", group.joined("a", rack_id="here", server_assignor="range")
        yield "one and unknown", group.stated(group.group_id, "nobody's")
        yield "twice", group.stated(group.group_id, group.group_id)
        yield "operations", group.stated(operations=True)
        yield "by the classic request", group.described()
        yield "by the classic request, old", group.described(0)
        filters = {"states_filter": ["stable"], "types_filter": ["Consumer"]}
        listed = peer.ask(LIST_GROUPS, 5, filters)
        listed["groups"] = [row for row in listed["groups"] if row["group_id"] == group.group_id]
        yield "listed", listed
        group.beat("a", -1)
        yield "empty", group.stated()
        yield "the same id joins", group.joined("a")
