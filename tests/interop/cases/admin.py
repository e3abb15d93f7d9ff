"""Requests that change or describe topics, configs and replicas."""

import time
from collections.abc import Iterator
from typing import Any

from ..raw_peer import CREATE_TOPICS, UNKNOWN_ID, RawPeer
from .cluster import NAMES
from .log import batch

APPLIED_WITHIN_S = 30.0

Scenario = Iterator[tuple[str, Any]]
DELETE_TOPICS, DESCRIBE_CONFIGS, ALTER_CONFIGS = 20, 32, 33
DESCRIBE_LOG_DIRS, CREATE_PARTITIONS, ELECT_LEADERS, INCREMENTAL = 35, 37, 43, 44
ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS, DESCRIBE_QUORUM = 45, 46, 55
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
CONFIGS: dict[str, tuple[str, str | None]] = {
    "good": ("retention.ms", "1000"),
    "null": ("retention.ms", None),
    "empty": ("retention.ms", ""),
    "not a number": ("retention.ms", "soon"),
    "out of bounds": ("retention.ms", "-2"),
    "unknown": ("no.such.config", "1"),
    "empty name": ("", "1"),
    "not in the list": ("cleanup.policy", "shred"),
    "a list": ("cleanup.policy", "compact,delete"),
    "an empty list": ("cleanup.policy", ""),
    "a list with doubles": ("cleanup.policy", "delete,delete"),
    "not a boolean": ("unclean.leader.election.enable", "yes"),
    "boolean in capitals": ("unclean.leader.election.enable", "TRUE"),
    "segment too small": ("segment.bytes", "1"),
    "ratio too large": ("min.cleanable.dirty.ratio", "1.5"),
    "min in sync 0": ("min.insync.replicas", "0"),
    "min in sync 5": ("min.insync.replicas", "5"),
    "spaces around": ("retention.ms", " 1000 "),
    "compression": ("compression.type", "zstd"),
    "unknown compression": ("compression.type", "rar"),
    "timestamp type": ("message.timestamp.type", "LogAppendTime"),
    "unknown timestamp type": ("message.timestamp.type", "Never"),
    "old format": ("message.format.version", "2.0"),
    "tiered": ("remote.storage.enable", "true"),
    "throttled": ("leader.replication.throttled.replicas", "0:1"),
    "badly throttled": ("leader.replication.throttled.replicas", "x"),
}


def create_topics(peer: RawPeer, version: int) -> Scenario:
    def create(*topics: dict[str, Any], validate: bool = False, timeout: int = 10000) -> Any:
        values = {"topics": list(topics), "timeout": timeout, "validate_only": validate}
        return peer.ask(CREATE_TOPICS, version, values)

    def topic(name: str, count: int = 1, factor: int = 1, **fields: Any) -> dict[str, Any]:
        head = {"name": name, "num_partitions": count, "replication_factor": factor}
        return head | fields

    def placed(name: str, *replicas: tuple[int, list[int]], count: int = -1) -> dict[str, Any]:
        rows = [{"partition_index": index, "broker_ids": nodes} for index, nodes in replicas]
        return topic(name, count, count, assignments=rows)

    mark = f"made-{version}"
    yield "one", create(topic(mark, 3))
    yield "the same again", create(topic(mark))
    yield "only validated", create(topic(f"{mark}-v", 2), validate=True)
    yield "validated afterwards", create(topic(f"{mark}-v", 2))
    yield "twice in one request", create(topic(f"{mark}-t"), topic(f"{mark}-t"))
    yield "twice and another", create(topic(f"{mark}-t"), topic(f"{mark}-t"), topic(f"{mark}-u"))
    yield "nothing", create()
    for count in (0, -1, -2):
        yield f"{count} partitions", create(topic(f"{mark}-n{count}", count))
    for factor in (0, -1, -2, 2):
        yield f"factor {factor}", create(topic(f"{mark}-f{factor}", 1, factor))
    for label, name in NAMES.items():
        validate = label in ("dots and dashes", "as long as may be")
        yield f"name {label}", create(topic(name), validate=validate)
    yield "internal name", create(topic("__consumer_offsets", 0))
    yield "colliding name", create(topic(f"{mark}.x"))
    yield "collision", create(topic(f"{mark}_x"))
    yield "placed", create(placed(f"{mark}-p", (0, [1]), (1, [1])))
    yield "placed, one missing", create(placed(f"{mark}-p2", (0, [1]), (2, [1])))
    yield "placed, from 1", create(placed(f"{mark}-p3", (1, [1])))
    yield "placed twice", create(placed(f"{mark}-p4", (0, [1]), (0, [1])))
    yield "placed nowhere", create(placed(f"{mark}-p5", (0, [])))
    yield "placed on a stranger", create(placed(f"{mark}-p6", (0, [77])))
    yield "placed on one node twice", create(placed(f"{mark}-p7", (0, [1, 1])))
    yield "placed and counted", create(placed(f"{mark}-p8", (0, [1]), count=1))
    yield "placed with unlike counts", create(placed(f"{mark}-p9", (0, [1]), (1, [1, 2])))
    for label, (key, value) in CONFIGS.items():
        row = topic(f"{mark}-c-{label.replace(' ', '-')}", configs=[{"name": key, "value": value}])
        yield f"config {label}", create(row, validate=True)
    twice = [{"name": "retention.ms", "value": "1"}, {"name": "retention.ms", "value": "2"}]
    yield "a config twice", create(topic(f"{mark}-c2", configs=twice), validate=True)
    yield "a good one and a bad one", create(topic(f"{mark}-g"), topic("a/b"))


def delete_topics(peer: RawPeer, version: int) -> Scenario:
    names = [f"gone-{version}-{letter}" for letter in "abcd"]
    for name in names:
        peer.create_topic(name)

    def delete(*wanted: Any) -> Any:
        values: dict[str, Any] = {"timeout": 10000}
        if version >= 6:
            values["topics"] = [
                {"name": w, "topic_id": bytes(16)} if isinstance(w, str) else
                {"name": w[0], "topic_id": w[1]} for w in wanted
            ]  # fmt: skip
        else:
            values["topic_names"] = list(wanted)
        return peer.ask(DELETE_TOPICS, version, values)

    yield "one", delete(names[0])
    yield "again", delete(names[0])
    yield "unknown", delete("no-such-topic")
    yield "invalid", delete("a/b")
    yield "empty name", delete("")
    yield "nothing", delete()
    yield "twice in one request", delete(names[1], names[1])
    yield "known and unknown", delete(names[2], "no-such-topic")
    if version >= 6:
        known = peer.topic_ids[names[3]]
        yield "unknown id", delete((None, UNKNOWN_ID))
        yield "id and name", delete((names[3], known))
        yield "neither", delete((None, bytes(16)))
        yield "id twice", delete((None, known), (None, known))
        yield "id and its name", delete((None, known), names[3])
        yield "by id", delete((None, known))
        yield "by id again", delete((None, known))


def create_partitions(peer: RawPeer, version: int) -> Scenario:
    topic = f"more-{version}"
    peer.create_topic(topic, partitions=2)

    def more(*rows: tuple[str, int, list[list[int]] | None], validate: bool = False) -> Any:
        topics = [
            {
                "name": name,
                "count": count,
                "assignments": None
                if places is None
                else [{"broker_ids": nodes} for nodes in places],
            }
            for name, count, places in rows
        ]
        values = {"topics": topics, "timeout": 10000, "validate_only": validate}
        return peer.ask(CREATE_PARTITIONS, version, values)

    yield "only validated", more((topic, 3, None), validate=True)
    for count in (2, 1, 0, -1):
        yield f"to {count}", more((topic, count, None))
    yield "to 3", more((topic, 3, None))
    yield "placed", more((topic, 4, [[1]]))
    yield "too few places", more((topic, 6, [[1]]))
    yield "too many places", more((topic, 5, [[1], [1]]))
    yield "no places", more((topic, 5, []))
    yield "placed on a stranger", more((topic, 5, [[9]]))
    yield "placed nowhere", more((topic, 5, [[]]))
    yield "placed twice on one", more((topic, 5, [[1, 1]]))
    yield "unknown", more(("no-such-topic", 3, None))
    yield "invalid", more(("a/b", 3, None))
    yield "twice", more((topic, 7, None), (topic, 8, None))
    yield "nothing", more()


def describe_configs(peer: RawPeer, version: int) -> Scenario:
    topic = f"configs-{version}"
    peer.create_topic(topic, retention_ms="5000", cleanup_policy="compact")

    def describe(*resources: tuple[int, str, list[str] | None], **fields: Any) -> Any:
        rows = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
            for kind, name, keys in resources
        ]
        answer = peer.ask(DESCRIBE_CONFIGS, version, {"resources": rows} | fields)
        if isinstance(answer, str):
            return answer
        for result in answer["results"]:
            for config in result["configs"]:
                if config.get("documentation"):
                    config["documentation"] = "A SENTENCE"
        return answer

    keys = ["retention.ms", "cleanup.policy", "segment.bytes"]
    yield "topic", describe((TOPIC, topic, None))
    yield "with synonyms", describe((TOPIC, topic, None), include_synonyms=True)
    yield "with documentation", describe((TOPIC, topic, keys), include_documentation=True)
    yield "some keys", describe((TOPIC, topic, keys))
    yield "no keys", describe((TOPIC, topic, []))
    yield "unknown keys", describe((TOPIC, topic, ["no.such.key", "retention.ms"]))
    yield "unknown topic", describe((TOPIC, "no-such-topic", None))
    yield "invalid topic", describe((TOPIC, "a/b", None))
    yield "empty topic", describe((TOPIC, "", None))
    some = ["log.retention.ms", "num.partitions", "node.id", "log.cleanup.policy"]
    yield "broker", describe((BROKER, "1", some))
    yield "broker, with synonyms", describe((BROKER, "1", some), include_synonyms=True)
    yield "the whole cluster", describe((BROKER, "", None))
    yield "another broker", describe((BROKER, "9", None))
    yield "no broker", describe((BROKER, "x", None))
    for kind in (0, 1, 3, LOGGER, CLIENT_METRICS, GROUP, 77):
        yield f"kind {kind}", describe((kind, "1", None))
    yield "twice", describe((TOPIC, topic, keys), (TOPIC, topic, keys))
    yield "two", describe((TOPIC, topic, keys), (TOPIC, "no-such-topic", keys))
    yield "nothing", describe()


def alter_configs(peer: RawPeer, version: int) -> Scenario:
    topic = f"altered-{version}"
    peer.create_topic(topic, retention_ms="5000")

    def alter(
        *configs: tuple[str, str | None], kind: int = TOPIC, name: str = topic,
        validate: bool = True, times: int = 1,
    ) -> Any:  # fmt: skip
        rows = [{"name": key, "value": value} for key, value in configs]
        one = {"resource_type": kind, "resource_name": name, "configs": rows}
        values = {"resources": [one], "validate_only": validate}
        return peer.ask(ALTER_CONFIGS, version, values)

    for label, config in CONFIGS.items():
        yield label, alter(config)
    yield "for good", alter(("segment.bytes", "2000000"), validate=False)
    own = _own_configs(peer, topic, {"segment.bytes": "2000000"})
    yield "what there is then", own
    yield "nothing", alter(validate=False)
    yield "unknown topic", alter(name="no-such-topic")
    yield "invalid topic", alter(name="a/b")
    yield "a key twice", alter(("segment.bytes", "2000000"), ("segment.bytes", "3000000"))
    for kind, name in ((BROKER, "9"), (BROKER, "x"), (0, "1"), (1, "1"), (77, "1")):
        yield f"kind {kind} {name}", alter(("log.retention.ms", "1"), kind=kind, name=name)
    yield "broker, fixed key", alter(("node.id", "5"), kind=BROKER, name="")


def _own_configs(peer: RawPeer, topic: str, expected: dict[str, str]) -> list[Any]:
    """Return the topic's configs as soon as they equal `expected`, or at the deadline.

    Kafka's controller answers an alteration before the broker that is asked has applied it.
    """
    row = {"resource_type": TOPIC, "resource_name": topic, "configuration_keys": None}
    deadline = time.monotonic() + APPLIED_WITHIN_S
    while True:
        answer = peer.ask(DESCRIBE_CONFIGS, 4, {"resources": [row]})
        own = [c for r in answer["results"] for c in r["configs"] if c["config_source"] == 1]
        if {c["name"]: c["value"] for c in own} == expected or time.monotonic() > deadline:
            return own
        time.sleep(0.02)


def incremental_alter_configs(peer: RawPeer, version: int) -> Scenario:
    topic = f"stepwise-{version}"
    peer.create_topic(topic, retention_ms="5000", cleanup_policy="delete")

    def alter(
        *changes: tuple[str, int, str | None], kind: int = TOPIC, name: str = topic,
        validate: bool = False, times: int = 1,
    ) -> Any:  # fmt: skip
        rows = [
            {"name": key, "config_operation": operation, "value": value}
            for key, operation, value in changes
        ]
        one = {"resource_type": kind, "resource_name": name, "configs": rows}
        values = {"resources": [one] * times, "validate_only": validate}
        return peer.ask(INCREMENTAL, version, values)

    for label, (key, value) in CONFIGS.items():
        yield label, alter((key, SET, value), validate=True)
    yield "set", alter(("retention.ms", SET, "7000"))
    yield "append", alter(("cleanup.policy", APPEND, "compact"))
    own = {"retention.ms": "7000", "cleanup.policy": "delete,compact"}
    yield "appended", _own_configs(peer, topic, own)
    yield "append what is there", alter(("cleanup.policy", APPEND, "compact"))
    yield "subtract", alter(("cleanup.policy", SUBTRACT, "delete"))
    yield "subtract what is not there", alter(("cleanup.policy", SUBTRACT, "delete"))
    own["cleanup.policy"] = "compact"
    yield "subtracted", _own_configs(peer, topic, own)
    yield "append to a number", alter(("retention.ms", APPEND, "1"))
    yield "subtract from a number", alter(("retention.ms", SUBTRACT, "1"))
    yield "delete", alter(("retention.ms", DELETE, None))
    yield "delete with a value", alter(("retention.ms", DELETE, "1"))
    yield "delete again", alter(("retention.ms", DELETE, None))
    yield "delete unknown", alter(("no.such.config", DELETE, None))
    del own["retention.ms"]
    yield "deleted", _own_configs(peer, topic, own)
    if version == 0:  # these three cost Kafka's controller an election
        yield "operation 9", alter(("retention.ms", 9, "1"))
        yield "operation -1", alter(("retention.ms", -1, "1"))
        yield "a key twice", alter(("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    yield "append nothing", alter(("cleanup.policy", APPEND, None))
    yield "nothing", alter()
    yield "twice", alter(("retention.ms", SET, "1"), times=2)
    yield "unknown topic", alter(("retention.ms", SET, "1"), name="no-such-topic")
    yield "invalid topic", alter(("retention.ms", SET, "1"), name="a/b")
    yield "good and bad", alter(("retention.ms", SET, "1"), ("no.such.config", SET, "1"))
    yield "after good and bad", _own_configs(peer, topic, own)
    for kind, name in ((BROKER, "9"), (BROKER, "x"), (0, "1"), (1, "1"), (77, "1")):
        yield f"kind {kind} {name}", alter(("log.retention.ms", SET, "1"), kind=kind, name=name)
    yield "cluster", alter(("log.retention.ms", SET, "86400000"), kind=BROKER, name="")
    yield "cluster, back", alter(("log.retention.ms", DELETE, None), kind=BROKER, name="")
    yield "broker, fixed key", alter(("node.id", SET, "5"), kind=BROKER, name="")
    session = "consumer.session.timeout.ms"
    for key, operation, value in (
        (session, SET, "50000"), (session, SET, "44999"), (session, SET, "60001"),
        (session, SET, "x"), (session, SET, "0"), (session, SET, None), (session, APPEND, "1"),
        (session, DELETE, None), ("no.such.config", SET, "1"), ("no.such.config", DELETE, None),
        ("consumer.heartbeat.interval.ms", SET, "4999"),
        ("consumer.heartbeat.interval.ms", SET, "15001"),
        ("consumer.assignment.interval.ms", SET, "15001"),
    ):  # fmt: skip
        change = alter((key, operation, value), kind=GROUP, name=topic, validate=True)
        yield f"group, {key} {operation} {value}", change
    yield "group without a name", alter((session, SET, "50000"), kind=GROUP, name="")


def elect_leaders(peer: RawPeer, version: int) -> Scenario:
    topic = f"elected-{version}"
    peer.create_topic(topic, partitions=2)

    def elect(kind: int, *wanted: tuple[str, list[int]], everything: bool = False) -> Any:
        rows = None if everything else [{"topic": t, "partitions": p} for t, p in wanted]
        values = {"election_type": kind, "topic_partitions": rows, "timeout": 5000}
        return peer.ask(ELECT_LEADERS, version, values)

    for kind in (0, 1, 2, -1):
        yield f"kind {kind}", elect(kind, (topic, [0, 1]))
        yield f"kind {kind}, unknown", elect(kind, ("no-such-topic", [0]), (topic, [9]))
        yield f"kind {kind}, nothing", elect(kind)
    answer = elect(0, everything=True)
    results = answer["replica_election_results"]  # Kafka names all topics, also the quiet ones
    answer["replica_election_results"] = [r for r in results if r["partition_result"]]
    yield "everything", answer
    yield "one twice", elect(0, (topic, [0, 0]))


def reassignments(peer: RawPeer, version: int) -> Scenario:
    topic = f"moved-{version}"
    peer.create_topic(topic, partitions=2)

    def move(name: str, index: int, replicas: list[int] | None, **fields: Any) -> Any:
        part = {"partition_index": index, "replicas": replicas}
        values = {"timeout": 5000, "topics": [{"name": name, "partitions": [part]}]} | fields
        return peer.ask(ALTER_REASSIGNMENTS, version, values)

    yield "to where it is", move(topic, 0, [1])
    yield "cancel what is not there", move(topic, 0, None)
    yield "to nowhere", move(topic, 0, [])
    yield "to a stranger", move(topic, 0, [9])
    yield "to one node twice", move(topic, 0, [1, 1])
    yield "to a negative node", move(topic, 0, [-1])
    yield "unknown partition", move(topic, 7, [1])
    yield "unknown topic", move("no-such-topic", 0, [1])
    yield "cancel of an unknown topic", move("no-such-topic", 0, None)
    yield "nothing", move(topic, 0, [1], topics=[])
    if version >= 1:
        yield "factor kept", move(topic, 0, [1], allow_replication_factor_change=False)
    for label, topics in {
        "all": None,
        "one": [{"name": topic, "partition_indexes": [0, 1, 9]}],
        "unknown": [{"name": "no-such-topic", "partition_indexes": [0]}],
        "none": [],
    }.items():
        values = {"timeout": 5000, "topics": topics}
        yield f"list {label}", peer.ask(LIST_REASSIGNMENTS, 0, values)


def describe_log_dirs(peer: RawPeer, version: int) -> Scenario:
    topic = f"sized-{version}"
    peer.create_topic(topic, partitions=2)
    peer.produce(9, topic, batch(10))

    def describe(*wanted: tuple[str, list[int]]) -> Any:
        rows = [{"topic": name, "partitions": indexes} for name, indexes in wanted]
        return peer.ask(DESCRIBE_LOG_DIRS, version, {"topics": rows})

    yield "both", describe((topic, [0, 1]))
    yield "one", describe((topic, [0]))
    yield "unknown", describe(("no-such-topic", [0]), (topic, [9]))
    yield "nothing", describe()
    answer = peer.ask(DESCRIBE_LOG_DIRS, version, {"topics": None})
    for result in answer["results"]:
        result["topics"] = [t for t in result["topics"] if t["name"] == topic]
    yield "all", answer


def describe_quorum(peer: RawPeer, version: int) -> Scenario:
    def describe(topic: str, index: int) -> Any:
        part = {"partition_index": index}
        values = {"topics": [{"topic_name": topic, "partitions": [part]}]}
        answer = peer.ask(DESCRIBE_QUORUM, version, values)
        if isinstance(answer, str):
            return answer
        for row in (p for t in answer["topics"] for p in t["partitions"]):
            for name in ("high_watermark", "leader_epoch"):
                row[name] = "A NUMBER" if row[name] > 0 else row[name]
            for voter in row["current_voters"]:
                voter["log_end_offset"] = "A NUMBER" if voter["log_end_offset"] > 0 else -1
        return answer

    yield "the metadata", describe("__cluster_metadata", 0)
    yield "another partition", describe("__cluster_metadata", 1)
    yield "another topic", describe("no-such-topic", 0)
    yield "nothing", peer.ask(DESCRIBE_QUORUM, version, {"topics": []})
