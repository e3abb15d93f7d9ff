"""Calls of Java's Admin and commands of Kafka's tools that differ, and why (docs/protocol.md)."""

from fnmatch import fnmatchcase

SHARE = "share groups are not served"
STREAMS = "streams groups are not served"
NO_KRAFT = "decisions are kept by Raft groups whose voters never change; there is no KRaft"
ALL_ALIKE = "max.connection.creation.rate limits addresses, of all alike"
NO_SUCH_GROUPS = "share and streams groups are not served, and there is no KRaft"

CALLS = {
    "*ShareGroup*": SHARE,
    "describeStreamsGroups *": STREAMS,
    "describeFeatures": NO_SUCH_GROUPS,
    "updateFeatures kraft.version *": NO_KRAFT,
}
# Share groups are deleted by a request that is served, of which they are no part.
SAME_CALLS = ("deleteShareGroups",)

COMMANDS = {
    "topics too many replicas": "a broker has one log directory; Kafka says more of them",
    "configs topic all": "Kafka's cluster has its own min.insync.replicas for its ELR",
    "configs broker all": "defaults and keys are those of docs/configuration.md",
    "configs broker describe": "a key without a value of its own has no default",
    "configs broker default describe*": "Kafka's cluster has its own min.insync.replicas",
    "configs broker loggers": "Java's loggers are others than Python's",
    "configs quota ip alter": ALL_ALIKE,
    "configs quota ip delete": ALL_ALIKE,
    "console-share-consumer": SHARE,
    "share-groups describe": SHARE,
    "streams-groups describe": STREAMS,
    "formatter TransactionLog": "transactions are kept by Raft groups: oncelog txn log",
    "metadata-quorum status": NO_KRAFT,
    "metadata-quorum replication": NO_KRAFT,
    "features describe": NO_SUCH_GROUPS,
    "features upgrade dry": NO_SUCH_GROUPS,
    "features kraft.version": NO_KRAFT,
    "broker-api-versions": NO_SUCH_GROUPS,
}


def reason(name: str, meant: dict[str, str]) -> str | None:
    """Return why something of this name differs, or None where it must not differ."""
    return next((why for pattern, why in meant.items() if fnmatchcase(name, pattern)), None)
