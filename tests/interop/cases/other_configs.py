"""Requests about configs of a broker, of loggers, and of client metrics subscriptions."""

import time
from collections.abc import Iterator
from typing import Any

from ..raw_peer import RawPeer

Scenario = Iterator[tuple[str, Any]]
DESCRIBE_CONFIGS, INCREMENTAL, LIST_RESOURCES = 32, 44, 74
BROKER, LOGGER, CLIENT_METRICS = 4, 8, 16
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
DEFAULT_SOURCE = 5
APPLIED_WITHIN_S = 30.0
RATE = "leader.replication.throttled.rate"


class Resource:
    """A config resource with a type and a name, which sends requests about itself."""

    def __init__(self, peer: RawPeer, version: int, kind: int, name: str) -> None:
        self._peer, self._version, self._kind, self._name = peer, version, kind, name

    def alter(self, *changes: tuple[str, int, str | None], validate: bool = False) -> Any:
        rows = [
            {"name": key, "config_operation": operation, "value": value}
            for key, operation, value in changes
        ]
        one = {"resource_type": self._kind, "resource_name": self._name, "configs": rows}
        values = {"resources": [one], "validate_only": validate}
        return self._peer.ask(INCREMENTAL, self._version, values)

    def described(self, key: str, *, is_set: bool = True) -> Any:
        """Return the description of a config key when it is set, or is not set, as expected."""
        row = {
            "resource_type": self._kind,
            "resource_name": self._name,
            "configuration_keys": [key],
        }
        values = {"resources": [row], "include_synonyms": True}
        deadline = time.monotonic() + APPLIED_WITHIN_S
        while True:
            answer = self._peer.ask(DESCRIBE_CONFIGS, 4, values)
            configs = [c for r in answer["results"] for c in r["configs"]]
            set_here = [c for c in configs if c["config_source"] != DEFAULT_SOURCE]
            # Kafka's broker shows a value's source a moment before the new value.
            is_old = any(
                c["synonyms"] and c["synonyms"][0]["value"] != c["value"] for c in set_here
            )
            if (bool(set_here) == is_set and not is_old) or time.monotonic() > deadline:
                return answer
            time.sleep(0.02)


def one_broker(peer: RawPeer, version: int) -> Scenario:
    broker = Resource(peer, version, BROKER, "1")
    yield "set", broker.alter(("log.segment.bytes", SET, "2000000"))
    yield "shown", broker.described("log.segment.bytes")
    yield "a bad value", broker.alter(("log.retention.ms", SET, "soon"))
    yield "fixed", broker.alter(("node.id", SET, "5"))
    yield "tuning", broker.alter(("num.io.threads", SET, "4"), validate=True)
    yield "min in sync", broker.alter(("min.insync.replicas", SET, "1"))
    yield "throttled", broker.alter((RATE, SET, "1000"))
    yield "a bad rate", broker.alter((RATE, SET, "x"))
    yield "below zero", broker.alter((RATE, SET, "-1"))
    keys = "log.segment.bytes", RATE, "no.such.key"
    yield "back", broker.alter(*((key, DELETE, None) for key in keys))
    yield "back again", broker.alter(*((key, DELETE, None) for key in keys))
    for name in ("9", "x", "-1"):
        other = Resource(peer, version, BROKER, name)
        yield f"broker {name}", other.alter(("log.retention.ms", SET, "1"))


def loggers(peer: RawPeer, version: int) -> Scenario:
    broker = Resource(peer, version, LOGGER, "1")
    for level in ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL", "OFF", "warn", "x", "", None):
        yield f"root {level}", broker.alter(("root", SET, level), validate=True)
    yield "unknown", broker.alter(("no.such.logger", SET, "INFO"))
    yield "unknown, deleted", broker.alter(("no.such.logger", DELETE, None))
    yield "root, deleted", broker.alter(("root", DELETE, None))
    for operation in (APPEND, SUBTRACT, 9):
        yield f"operation {operation}", broker.alter(("root", operation, "INFO"))
    yield "nothing", broker.alter()
    twice = ("root", SET, "INFO"), ("root", SET, "WARN")
    yield "twice", broker.alter(*twice, validate=True)
    for name in ("", "9", "x"):
        other = Resource(peer, version, LOGGER, name)
        yield f"broker {name!r}", other.alter(("root", SET, "INFO"))
        yield f"broker {name!r}, described", other.described("root", is_set=False)
    yield "set", broker.alter(("root", SET, "ERROR"))
    yield "shown", broker.described("root")
    yield "back", broker.alter(("root", SET, "WARN"))


def client_metrics(peer: RawPeer, version: int) -> Scenario:
    name = f"subscription-{version}"
    one = Resource(peer, version, CLIENT_METRICS, name)
    for key, value in (
        ("interval.ms", "100"),
        ("interval.ms", "99"),
        ("interval.ms", "3600001"),
        ("interval.ms", "x"),
        ("interval.ms", None),
        ("metrics", ""),
        ("metrics", "*"),
        ("metrics", "a.b,c"),
        ("match", ""),
        ("match", "client_id=a.*"),
        ("match", "client_id=a,client_software_name=b"),
        ("match", "client_id"),
        ("match", "client=a"),
        ("match", "client_id=("),
        ("no.such.key", "1"),
    ):
        yield f"{key} {value}", one.alter((key, SET, value), validate=True)
    yield "set", one.alter(("interval.ms", SET, "5000"))
    yield "shown", one.described("interval.ms")
    yield "the others", one.described("metrics", is_set=False)
    yield "append", one.alter(("metrics", APPEND, "a,b"))
    yield "subtract", one.alter(("metrics", SUBTRACT, "a"))
    yield "appended", one.described("metrics")
    yield "append to a number", one.alter(("interval.ms", APPEND, "1"))
    listed = peer.ask(LIST_RESOURCES, version, {"resource_types": [CLIENT_METRICS]})
    yield "listed", [r for r in listed["config_resources"] if r["resource_name"] == name]
    gone = (("metrics", DELETE, None), ("interval.ms", DELETE, None))
    yield "deleted", one.alter(*gone)
    yield "shown then", one.described("interval.ms", is_set=False)
    yield "deleted again", one.alter(*gone)
    nameless = Resource(peer, version, CLIENT_METRICS, "")
    yield "without a name", nameless.alter(("interval.ms", SET, "5000"))
    yield "without a name, described", nameless.described("interval.ms", is_set=False)
