"""Requests about the cluster, such as ApiVersions, Metadata, ACLs and producer ids."""

import struct
from collections.abc import Iterator
from functools import partial
from typing import Any

from oncelog.wire.messages.apis import APIS

from ..raw_peer import API_VERSIONS, METADATA, UNKNOWN_ID, RawPeer

Scenario = Iterator[tuple[str, Any]]
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
DESCRIBE_CLUSTER, LIST_CONFIG_RESOURCES, DESCRIBE_TOPIC_PARTITIONS = 60, 74, 75
NAMES = {
    "dots and dashes": "a.b-c_d",
    "empty": "",
    "a dot": ".",
    "two dots": "..",
    "a slash": "a/b",
    "a space": "a b",
    "an umlaut": "zufällig",
    "too long": "x" * 250,
    "as long as may be": "x" * 249,
}


def api_versions(peer: RawPeer, version: int) -> Scenario:
    def asked(name: str, software: str, **fields: Any) -> Any:
        values = {"client_software_name": name, "client_software_version": software}
        return peer.ask(API_VERSIONS, version, values | fields)

    yield "plain", asked("librdkafka", "2.15.0")
    wrong = (("", ""), ("a b", "1"), ("-a", "1"), ("a", "1-"), ("a", "ü"))
    for name, software in wrong if version >= 3 else ():
        yield f"software {name!r} {software!r}", asked(name, software)
    if version >= 5:
        own = peer.ask_raw(DESCRIBE_CLUSTER, 0, {}).cluster_id
        for case, cluster_id, node_id in (
            ("the cluster and the broker", own, 1),
            ("another cluster", "no-such-cluster", 1),
            ("another broker", own, 7),
            ("another cluster and broker", "no-such-cluster", 7),
            ("an empty cluster id", "", 1),
            ("a negative broker", own, -2),
            ("no broker", own, -1),
            ("no cluster", None, 1),
            ("neither", None, -1),
            ("an empty cluster id, no broker", "", -1),
        ):
            yield case, asked("a", "1", cluster_id=cluster_id, node_id=node_id)
        yield "wrong software, another cluster", asked("", "", cluster_id="x", node_id=1)
        yield "then", asked("a", "1")
    if version == 0:
        for unknown in (6, 99, -1, 32767):
            yield (
                f"version {unknown}",
                peer.comparable(peer.ask_body(API_VERSIONS, unknown, b"\1\1\0", reads_version=0)),
            )


def metadata(peer: RawPeer, version: int) -> Scenario:
    topic, other = f"metadata-{version}", f"metadata-other-{version}"
    peer.create_topic(topic, partitions=3)
    peer.create_topic(other)

    def asked(*topics: dict[str, Any], **fields: Any) -> Any:
        return peer.ask(METADATA, version, {"topics": list(topics)} | fields)

    everything = None if version else []
    answer = peer.ask(METADATA, version, {"topics": everything})
    answer["topics"] = [t for t in answer["topics"] if t["name"] in (topic, other)]
    yield "all topics", answer
    if version:
        yield "no topics", asked()
    yield "two", asked({"name": topic}, {"name": other})
    yield "one twice", asked({"name": topic}, {"name": topic})
    if version >= 4:
        no = {"allow_auto_topic_creation": False}
        yield "unknown, not to be created", asked({"name": "no-such-topic"}, **no)
        yield "known and unknown", asked({"name": topic}, {"name": "no-such-topic"}, **no)
        for label, name in NAMES.items():
            yield f"name {label}, not to be created", asked({"name": name}, **no)
    for label, name in NAMES.items():
        if label not in ("dots and dashes", "as long as may be"):
            yield f"name {label}", asked({"name": name})
    if version >= 8:
        operations = {
            "include_cluster_authorized_operations": True,
            "include_topic_authorized_operations": True,
        }
        yield "operations", asked({"name": topic}, **operations)
        yield (
            "operations of an unknown one",
            asked({"name": "no-such-topic"}, allow_auto_topic_creation=False, **operations),
        )
    if version >= 10:
        known = peer.topic_ids[topic]
        no = {"allow_auto_topic_creation": False}
        yield "by id", asked({"topic_id": known, "name": None})
        yield "by unknown id", asked({"topic_id": UNKNOWN_ID, "name": None})
        yield "by id and name", asked({"topic_id": known, "name": topic})
        yield "by id and another name", asked({"topic_id": known, "name": other})
        yield "one by id, one by name", asked({"topic_id": known, "name": None}, {"name": other})
        yield "neither", asked({"name": None})


def auto_creation(peer: RawPeer, version: int) -> Scenario:
    """Create a topic by a Metadata request, and compare the answer to a later Metadata request.

    The answer to the first request depends on time.
    """
    name = f"auto-{version}"
    peer.ask_raw(METADATA, version, {"topics": [{"name": name}]})
    peer.learn(name)
    yield "afterwards", peer.ask(METADATA, version, {"topics": [{"name": name}]})


def describe_cluster(peer: RawPeer, version: int) -> Scenario:
    for operations in (False, True):
        values = {"include_cluster_authorized_operations": operations}
        yield f"operations {operations}", peer.ask(DESCRIBE_CLUSTER, version, values)
    if version >= 1:
        for kind in (0, 1, 2, 3):
            yield f"endpoints {kind}", peer.ask(DESCRIBE_CLUSTER, version, {"endpoint_type": kind})
    if version >= 2:
        values = {"include_fenced_brokers": True}
        yield "with fenced", peer.ask(DESCRIBE_CLUSTER, version, values)


def describe_topic_partitions(peer: RawPeer, version: int) -> Scenario:
    names = [f"described-{version}-{letter}" for letter in "abc"]
    for name in names:
        peer.create_topic(name, partitions=3)

    def asked(*topics: str, cursor: tuple[str, int] | None = None, limit: int = 2000) -> Any:
        values: dict[str, Any] = {
            "topics": [{"name": name} for name in topics],
            "response_partition_limit": limit,
            "cursor": None,
        }
        if cursor is not None:
            values["cursor"] = {"topic_name": cursor[0], "partition_index": cursor[1]}
        return peer.ask(DESCRIBE_TOPIC_PARTITIONS, version, values)

    yield "three", asked(*names)
    yield "in another order", asked(*reversed(names))
    yield "one twice", asked(names[0], names[0])
    for limit in (1, 3, 4, 0, -1):
        yield f"limit {limit}", asked(*names, limit=limit)
    for start in ((names[1], 1), (names[1], 3), (names[1], 9), (names[1], -1), ("zzz", 0)):
        yield f"from {start[0][-3:]} {start[1]}", asked(*names, cursor=start)
    yield "from, with limit", asked(*names, cursor=(names[0], 2), limit=2)
    yield "unknown", asked("no-such-topic")
    yield "invalid", asked("a/b")
    yield "empty name", asked("")


def acls(peer: RawPeer, version: int) -> Scenario:
    """Send DescribeAcls, CreateAcls and DeleteAcls, whose versions are numbered alike."""
    one = {
        "resource_type_filter": 2,
        "resource_name_filter": None,
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    yield "describe", peer.ask(DESCRIBE_ACLS, version, one)
    yield "delete", peer.ask(DELETE_ACLS, version, {"filters": [one, one]})
    yield "delete nothing", peer.ask(DELETE_ACLS, version, {"filters": []})
    made = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    yield "create", peer.ask(CREATE_ACLS, version, {"creations": [made, made]})
    yield "create nothing", peer.ask(CREATE_ACLS, version, {"creations": []})


def list_config_resources(peer: RawPeer, version: int) -> Scenario:
    for kinds in ((), (2,), (4,), (8,), (16,), (32,), (2, 4), (1,), (0,), (77,)):
        values = {"resource_types": list(kinds)}
        answer = peer.ask(LIST_CONFIG_RESOURCES, version, values)
        # Topics of other scenarios may be present.
        answer["config_resources"] = [
            r for r in answer["config_resources"] if r["resource_type"] != 2
        ]
        yield f"kinds {kinds}", answer


def init_producer_id(peer: RawPeer, version: int) -> Scenario:
    peer.new_producer_id()  # the first one may have to wait for a block

    asked = partial(peer.init_producer_id, version)

    yield "idempotent", asked(None)
    yield "idempotent, timeout 0", asked(None, timeout=0)
    yield "idempotent, timeout -1", asked(None, timeout=-1)
    yield "empty transactional id", asked("")
    if version >= 3:
        yield "with id and epoch", asked(None, 5, 3)
        yield "with id only", asked(None, 5)
        yield "with epoch only", asked(None, -1, 3)


def frames(peer: RawPeer, version: int) -> Scenario:
    """Send bytes that are no valid request, and at the end one valid request."""
    header = struct.Struct(">hhih")
    good = header.pack(API_VERSIONS, 0, 7, 1) + b"x"
    cases = {
        "length 0": b"\0\0\0\0",
        "length negative": b"\xff\xff\xff\xff",
        "length beyond the bound": b"\x7f\xff\xff\xff",
        "an HTTP request": b"GET / HTTP/1.1\r\n\r\n",
        "a byte": b"\0\0\0\1\0",
        "key only": b"\0\0\0\4" + good[:4],
        "client id beyond the frame": b"\0\0\0\x0a" + header.pack(18, 0, 7, 500),
        "client id of length -2": b"\0\0\0\x0a" + header.pack(18, 0, 7, -2),
        "client id not UTF-8": b"\0\0\0\x0b" + header.pack(18, 0, 7, 1) + b"\xff",
        "no tags after a flexible header": b"\0\0\0\x0b" + header.pack(18, 3, 7, 1) + b"x",
    }
    for key in (-1, 4, 58, 93, 999, 32767):
        cases[f"API {key}"] = b"\0\0\0\x0b" + header.pack(key, 0, 7, 1) + b"x"
    for label, data in cases.items():
        yield label, _first_bytes(peer.send_bytes(data))
    for key, api in sorted(APIS.items()):
        if key != API_VERSIONS and 0 <= key <= 75:
            for wrong in (api.newest + 1, -1, 32767):
                data = header.pack(key, wrong, 7, 1) + b"x" + b"\0" * 40
                yield f"{api.name} of version {wrong}", _first_bytes(peer.send_frame(data))
    yield "a good one", _first_bytes(peer.send_frame(good))


def _first_bytes(answer: bytes | str) -> str:
    return answer if isinstance(answer, str) else f"answered {answer[:6].hex()}"
