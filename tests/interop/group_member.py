"""Members of one group that send raw requests, each on its own connection.

A member is identified by a label. In answers this label replaces the id that the broker assigns.
"""

import re
import struct
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from .raw_peer import RawPeer
from .transactional_owner import wait_for_coordinator

OFFSET_COMMIT, OFFSET_FETCH, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 11, 12, 13, 14
DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS, OFFSET_DELETE = 15, 16, 42, 47
MEMBER_ID_REQUIRED_FROM = 4
REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 27, 79
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Za-z0-9_-]{22}$")


def subscription(*topics: str) -> bytes:
    """Return the bytes of a consumer's subscription to these topics, in version 0."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


class Member:
    """The connection of one group member, and the ids in its last answers."""

    def __init__(self, peer: RawPeer, label: str) -> None:
        self.label, self.member_id, self.generation = label, "", -1
        self.peer = peer.another()
        self.peer.client_id = "a-client"


class Group:
    """A group and its members. As a context manager it closes the members' connections."""

    def __init__(self, peer: RawPeer, group_id: str) -> None:
        self.peer, self.group_id = peer, group_id
        self._members: dict[str, Member] = {}
        self._pool = ThreadPoolExecutor(8)

    def __enter__(self) -> "Group":
        wait_for_coordinator(self.peer, 0, self.group_id)
        return self

    def __exit__(self, *_: object) -> None:
        for member in self._members.values():
            member.peer.close()
        self._pool.shutdown()

    def member(self, label: str) -> Member:
        """Return the member with this label, which is created at the first call."""
        if label not in self._members:
            self._members[label] = Member(self.peer, label)
        return self._members[label]

    # --- requests

    def ask(self, api_key: int, version: int, values: Any, via: str | None = None) -> Any:
        """Send a request, and return its answer with labels in place of member ids.

        `via` is the member whose connection is used, or None for the group's own connection.
        """
        peer = self.peer if via is None else self.member(via).peer
        return self.worded(peer.ask(api_key, version, values))

    def join(
        self, label: str, version: int, *, beside: "Future[Any] | None" = None, **fields: Any
    ) -> Any:
        """Send one JoinGroup, and keep the member id and generation of its answer.

        `beside` is the pending answer of another member, whose id may be in this member's answer.
        The call waits for both answers, so that both ids can be replaced by labels.
        """
        member = self.member(label)
        values = {
            "group_id": self.group_id,
            "session_timeout": 30_000,
            "rebalance_timeout": 30_000,
            "member_id": member.member_id,
            "group_instance_id": None,
            "protocol_type": "consumer",
            "protocols": [("range", subscription("a"))],
        } | fields
        values["protocols"] = [{"name": n, "metadata": m} for n, m in values["protocols"]]
        answer = member.peer.ask_raw(JOIN, version, values)
        if not isinstance(answer, str):
            if answer.error_code in (0, MEMBER_ID_REQUIRED) and "member_id" not in fields:
                member.member_id = answer.member_id
            if answer.error_code == 0:
                member.generation = answer.generation_id
        if beside is not None:
            beside.result(30)
        return self.worded(member.peer.comparable(answer))

    def admitted(self, label: str, version: int, **fields: Any) -> Any:
        """Send JoinGroup, and repeat it with the assigned id after MEMBER_ID_REQUIRED."""
        answer = self.join(label, version, **fields)
        if isinstance(answer, dict) and answer["error_code"] == MEMBER_ID_REQUIRED:
            answer = self.join(label, version, **fields)
        return answer

    def apart(self, work: Any, *arguments: Any, **fields: Any) -> "Future[Any]":
        """Call `work` in another thread, since its answer waits for other members."""
        return self._pool.submit(work, *arguments, **fields)

    def sync(self, label: str, version: int, given: dict[str, bytes], **fields: Any) -> Any:
        """Send SyncGroup. Only the leader gives assignments, by the label of each member."""
        values = {
            **self._identity(label),
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [
                {"member_id": self.member(name).member_id, "assignment": data}
                for name, data in given.items()
            ],
        } | fields
        return self.ask(SYNC, version, values, label)

    def heartbeat(self, label: str, version: int = 4, **fields: Any) -> Any:
        return self.ask(HEARTBEAT, version, self._identity(label) | fields, label)

    def _identity(self, label: str) -> dict[str, Any]:
        member = self.member(label)
        return {
            "group_id": self.group_id,
            "generation_id": member.generation,
            "member_id": member.member_id,
            "group_instance_id": None,
        }

    def leave(self, version: int, *labels: str, **fields: Any) -> Any:
        """Send LeaveGroup for these members, which may be several from version 3 on."""
        rows = [
            {"member_id": self.member(label).member_id, "group_instance_id": None, "reason": None}
            for label in labels
        ]
        values = {"group_id": self.group_id, "members": rows}
        if version < 3:
            values = {"group_id": self.group_id, "member_id": rows[0]["member_id"]}
        return self.ask(LEAVE, version, values | fields)

    def described(self, version: int = 5) -> Any:
        return self.ask(DESCRIBE_GROUPS, version, {"groups": [self.group_id]})

    def stable(self, *labels: str, version: int = 5, **fields: Any) -> None:
        """Form a group of these members. The first is the leader, and each gets an assignment."""
        joins = [self.apart(self.admitted, labels[0], version, **fields)]
        joins[0].result(30)
        for label in labels[1:]:
            joined = self.apart(self.admitted, label, version, **fields)
            self.wait_for_rebalance(labels[0])
            before = labels[: labels.index(label)]
            again = [self.apart(self.join, name, version, **fields) for name in before]
            for answer in (joined, *again):
                answer.result(30)
        given = {label: label.encode() for label in labels}
        leader = self.sync(labels[0], 3, given)
        assert leader["error_code"] == 0, leader
        for label in labels[1:]:
            self.sync(label, 3, {})

    def wait_for_rebalance(self, label: str) -> None:
        """Send heartbeats until an answer asks the member to rejoin."""
        for _ in range(3000):
            if self.heartbeat(label)["error_code"] == REBALANCE_IN_PROGRESS:
                return
        raise AssertionError(f"{label} is not asked to join again")

    # --- normalised answers

    def worded(self, value: Any) -> Any:
        """Return the value with labels for member ids, and lists of members sorted by label."""
        if isinstance(value, dict):
            return {name: self.worded(item) for name, item in value.items()}
        if isinstance(value, list):
            items = [self.worded(item) for item in value]
            if items and isinstance(items[0], dict) and "member_id" in items[0]:
                items.sort(key=lambda item: str(item["member_id"]))
            return items
        if isinstance(value, str) and value:
            for member in self._members.values():
                if value == member.member_id:
                    return f"MEMBER {member.label}"
            return _UUID.sub("UUID", value)
        return value
