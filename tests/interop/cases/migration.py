"""Requests of classic and consumer members in one group (`group.consumer.migration.policy`)."""

from collections.abc import Iterator
from typing import Any

from oncelog.wire.consumer_protocol import Subscription, encode_assignment, encode_subscription

from ..group_member import OFFSET_COMMIT, subscription
from ..raw_peer import RawPeer
from .consumer_groups import LIST_GROUPS, ConsumerMembers

Scenario = Iterator[tuple[str, Any]]
NEWEST = 9  # JoinGroup
TOPIC, PARTITIONS = "mixed-groups", 6
ALL = [*range(PARTITIONS)]
SAYS = [("range", subscription(TOPIC))]


class MixedMembers(ConsumerMembers):
    """A group with members of both protocols. Its epochs are compared unchanged."""

    def __enter__(self) -> "MixedMembers":
        super().__enter__()
        self.first_epochs[self.group_id] = 1
        self.peer.create_topic(TOPIC, PARTITIONS)
        return self

    def alone(self, label: str, data: bytes = b"", **fields: Any) -> None:
        """Create a classic group of one member that is assigned all partitions.

        `data` is the user data in the assignment.
        """
        self.admitted(label, 5, **({"protocols": SAYS} | fields))
        given = encode_assignment([(TOPIC, each) for each in ALL], user_data=data)
        instance = {name: fields[name] for name in fields if name == "group_instance_id"}
        assert self.sync(label, 3, {label: given}, **instance)["error_code"] == 0

    def goes_on(self, label: str) -> Any:
        """Send two heartbeats of a consumer that owns its assignment. Return the last answer."""
        self.beat(label, topic_partitions=self.given.get(label, []))
        return self.beat(label, topic_partitions=self.given.get(label, []))

    def listed(self) -> Any:
        """Return this group's row in the answer to ListGroups."""
        values = {"states_filter": [], "types_filter": []}
        groups = self.ask(LIST_GROUPS, 5, values)["groups"]
        return [each for each in groups if each["group_id"] == self.group_id]

    def committed(self, label: str, generation: int, index: int = 0) -> Any:
        """Send OffsetCommit version 8, which a member of the newer protocol may not send."""
        row = {
            "partition_index": index,
            "committed_offset": 5,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        values = {
            "group_id": self.group_id,
            "generation_id_or_member_epoch": generation,
            "generation_id": generation,
            "member_id": self.member(label).member_id,
            "group_instance_id": None,
            "topics": [{"name": TOPIC, "partitions": [row]}],
        }
        return self.ask(OFFSET_COMMIT, 8, values)

    def joins(self, label: str, *owned: int, **fields: Any) -> Any:
        """Send a JoinGroup that names these partitions as owned by the member."""
        has = tuple((TOPIC, each) for each in owned)
        said = encode_subscription(Subscription((TOPIC,), has))
        values: dict[str, Any] = {"protocols": [("range", said)]}
        return self.join(label, NEWEST, **(values | fields))

    def everything(self, *labels: str) -> Iterator[tuple[str, Any]]:
        """Describe the group, and send a heartbeat of each classic member."""
        yield "listed", self.listed()
        yield "described", self.stated()
        yield "described as a classic one", self.described(6)
        for label in labels:
            yield f"heartbeat of {label}", self.heartbeat(label)


def refused_upgrades(peer: RawPeer, version: int) -> Scenario:
    """Join a consumer to classic groups, some of which cannot be converted to consumer groups."""
    for name, fields in {
        "connect": {"protocol_type": "connect"},
        "malformed": {"protocols": [("range", b"\0\1\0\0\0\1\0\5t")]},
        "empty": {"protocols": [("range", b"")]},
        "data of the member": {"protocols": [("range", subscription(TOPIC)[:-4] + b"\0\0\0\1x")]},
        "data of the assignor": {"data": b"x"},
    }.items():
        with MixedMembers(peer, f"refused-{name}-{version}", version) as group:
            if name == "connect":
                group.admitted("c1", 5, protocols=SAYS, **fields)
                group.sync("c1", 3, {"c1": b"mine"})
            else:
                group.alone("c1", **fields)
            yield f"{name}: a consumer joins", group.joined("n1", TOPIC)
            yield from ((f"{name}: {case}", answer) for case, answer in group.everything("c1"))
    with MixedMembers(peer, f"refused-nonsense-{version}", version) as group:
        group.stable("c1", protocols=SAYS)
        yield "assigned nonsense: a consumer joins", group.joined("n1", TOPIC)
        yield from ((f"nonsense: {case}", answer) for case, answer in group.everything("c1"))


def mixed_groups(peer: RawPeer, version: int) -> Scenario:
    """Convert a group from classic to consumer and back, with wrong requests in between."""
    with MixedMembers(peer, f"mixed-{version}", version) as group:
        group.alone("c1")
        generation = group.member("c1").generation
        yield "consumer with an epoch", group.beat("n1", 1)
        yield "consumer joins", group.joined("n1", TOPIC)
        yield from group.everything("c1")
        yield "commit", group.committed("c1", generation)
        yield "commit of a generation to come", group.committed("c1", generation + 1)
        yield "sync before it has joined again", group.sync("c1", 5, {})
        yield "generation to come", group.heartbeat("c1", generation_id=generation + 1)
        yield "generation before", group.heartbeat("c1", generation_id=generation - 1)
        yield "heartbeat of nobody", group.heartbeat("c1", member_id="nobody")
        consumer = group.member("n1").member_id
        yield "heartbeat of a consumer", group.heartbeat("c1", member_id=consumer)
        yield "sync of a consumer", group.sync("c1", 5, {}, member_id=consumer)
        yield "owns all and joins", group.joins("c1", *ALL)
        yield "syncs", group.sync("c1", 5, {})
        yield from group.everything("c1")
        yield "gives up and joins", group.joins("c1", 0, 1, 2)
        yield "syncs again", group.sync("c1", 5, {})
        yield "consumer hears", group.beat("n1")
        yield "consumer settles", group.goes_on("n1")
        yield from group.everything("c1")
        yield "another protocol name", group.sync("c1", 5, {}, protocol_name="sticky")
        yield "another protocol type", group.sync("c1", 5, {}, protocol_type="connect")
        yield "another generation", group.sync("c1", 5, {}, generation_id=9)
        yield "commit now", group.committed("c1", group.member("c1").generation)
        yield "commit of the past", group.committed("c1", generation)
        yield "commit of another's partition of the past", group.committed("c1", generation, 5)
        yield "commit by a consumer", group.committed("n1", group.epochs["n1"])
        yield "joins without protocols", group.joins("x", protocols=[])
        yield "joins with another protocol", group.joins("x", protocols=[("no", SAYS[0][1])])
        yield "joins with another type", group.joins("x", protocol_type="connect")
        nonsense = {"protocols": [("range", b"\0")], "member_id": "y"}
        yield "joins with nonsense", group.joins("x", **nonsense)
        yield "nothing came of it", group.stated()
        yield "joins without an id", group.joins("c2")
        yield "joins with its id", group.joins("c2")
        yield "joins with its id and syncs", group.sync("c2", 5, {})
        yield from group.everything("c1", "c2")
        yield "c1 joins without anything", group.joins("c1")
        yield "c1 syncs", group.sync("c1", 5, {})
        yield "consumer hears of c2", group.goes_on("n1")
        yield "c2 hears", group.heartbeat("c2")
        yield "c2 joins", group.joins("c2")
        yield "c2 syncs", group.sync("c2", 5, {})
        yield from group.everything("c1", "c2")
        yield "joins with an id of its own", group.joins("z", member_id="mine")
        mine = {"member_id": "mine", "group_instance_id": None, "reason": None}
        yield "leaves with an id of its own", group.leave(5, members=[mine])
        yield "c2 leaves", group.leave(5, "c2")
        yield "c2 leaves again", group.leave(5, "c2")
        yield "consumer leaves", group.beat("n1", -1)
        yield "listed as a classic one", group.listed()
        yield "heartbeat of a classic member", group.heartbeat("c1")
        yield "c1 joins the classic group", group.joins("c1")
        yield "c1 syncs as its leader", group.sync("c1", 5, {"c1": b"all"})
        yield from group.everything("c1")


def downgraded_groups(peer: RawPeer, version: int) -> Scenario:
    """Convert groups of a consumer and a classic member to classic groups.

    The consumer leaves while the classic member is behind its target assignment, gives partitions
    up, or has its target.
    """
    for case, owned in {"behind": None, "gives up": ALL, "at its target": ALL[:3]}.items():
        with MixedMembers(peer, f"downgraded-{case.replace(' ', '-')}-{version}", version) as group:
            group.alone("c1")
            group.joined("n1", TOPIC)
            if owned is not None:
                group.joins("c1", *owned)
                group.sync("c1", 5, {})
            yield f"{case}: consumer leaves", group.beat("n1", -1)
            yield f"{case}: listed", group.listed()
            yield f"{case}: described", group.described(6)
            yield f"{case}: heartbeat", group.heartbeat("c1")


def mixed_instances(peer: RawPeer, version: int) -> Scenario:
    """Let static members change from one group protocol to the other."""
    with MixedMembers(peer, f"mixed-instances-{version}", version) as group:
        one: dict[str, Any] = {"group_instance_id": "one"}
        two: dict[str, Any] = {"group_instance_id": "two"}
        group.alone("c1", **one)
        yield "a consumer takes its place", group.joined("n1", TOPIC, instance_id="one")
        yield from group.everything("c1")
        yield "the classic one again", group.heartbeat("c1", **one)
        yield "settled", group.goes_on("n1")
        yield "joins", group.joins("c2", **two)
        yield "syncs", group.sync("c2", 5, {}, **two)
        yield "settled again", group.goes_on("n1")
        yield "joins again", group.joins("c2", **two)
        yield "syncs again", group.sync("c2", 5, {}, **two)
        yield from group.everything("c2")
        yield "heartbeat of another instance", group.heartbeat("c2", **one)
        yield "sync of another instance", group.sync("c2", 5, {}, **one)
        yield "sync of no instance", group.sync("c2", 5, {}, group_instance_id="three")
        yield "a consumer takes the place of one", group.joined("n2", TOPIC, instance_id="one")
        yield "a classic one takes the place of a consumer", group.joins("c3", **one)
        yield from group.everything("c2", "c3")
        yield "the classic one syncs", group.sync("c3", 5, {}, **one)
        yield "the consumer again", group.beat("n1", instance_id="one")
        yield from group.everything("c2", "c3")


def later_targets(peer: RawPeer, version: int) -> Scenario:
    """Send heartbeats of a classic member before and after a new target assignment.

    The answers ask the member to rejoin only after the new target, not when the group epoch rises.
    """
    with MixedMembers(peer, f"mixed-targets-{version}", version) as group:
        group.alone("c1")
        for label in ("n1", "n2"):
            group.joined(label, TOPIC)
        group.joins("c1", *ALL)
        yield "gives up", group.sync("c1", 5, {})
        yield "joins with the rest", group.joins("c1", 0, 1)
        yield "syncs", group.sync("c1", 5, {})
        yield "at rest", group.heartbeat("c1")
        yield "a consumer leaves", group.beat("n1", -1)
        yield "no target yet", group.stated()
        yield "nothing to hear", group.heartbeat("c1")
        yield "syncs meanwhile", group.sync("c1", 5, {})
        group.beat("n2")  # has a target made; the new owners depend on the order of member ids
        yield "a target was made", group.heartbeat("c1")
