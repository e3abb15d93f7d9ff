"""Administration of topics, configurations, the cluster itself, offsets and log directories.

Results are small frozen dataclasses. An error code in an answer is raised as the matching class of
`wire.errors`, with the broker's own message. A call is repeated after retriable errors (for
example, after a leader or a controller has moved) until `timeout_ms`. Only `elect_leaders` and
`describe_log_dirs` send each request once. A create request is sent again after a lost answer, so
it may raise TopicAlreadyExists for a topic that its own first attempt has created.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from ..wire.errors import (
    KafkaError,
    LeaderNotAvailable,
    RequestTimedOut,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ..wire.framing import API_VERSIONS
from ..wire.identifiers import TopicPartition
from .by_topic import entries_by_topic
from .cluster_view import DESCRIBE_QUORUM, PartitionInfo, topic_error
from .connection import CLIENT_SOFTWARE
from .coordinator_lookup import GROUP, find_coordinator, raise_error_of
from .failures import UNREACHABLE
from .fetch.offset_queries import EARLIEST, LATEST, MAX_TIMESTAMP, list_offsets
from .group_admin import GroupAdmin
from .security.acl_admin import AclAdmin
from .transaction_admin import TransactionAdmin
from .view_source import Source, view_of

CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 19, 20, 21
DESCRIBE_CONFIGS, DESCRIBE_LOG_DIRS, CREATE_PARTITIONS, ELECT_LEADERS = 32, 35, 37, 43
INCREMENTAL_ALTER_CONFIGS, UPDATE_FEATURES, DESCRIBE_CLUSTER = 44, 57, 60
UPGRADE, SAFE_DOWNGRADE = 1, 2
TOPIC_RESOURCE, BROKER_RESOURCE = 2, 4
__all__ = ["EARLIEST", "LATEST", "MAX_TIMESTAMP", "Admin"]
SET, DELETE, APPEND = 0, 1, 2
CONFIG_SOURCES = {
    1: "topic",
    2: "broker (dynamic)",
    3: "cluster (dynamic)",
    4: "broker (static)",
    5: "default",
}


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A registered broker. A fenced broker is registered but does not serve clients."""

    node_id: int
    host: str
    port: int
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A description of the cluster as one broker knows it.

    The controller is the leader of the Raft quorum, if known.
    """

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerState, ...]


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """One configuration value and its source."""

    name: str
    value: str | None
    source: str
    is_read_only: bool
    is_sensitive: bool


@dataclass(frozen=True, slots=True)
class LogDirEntry:
    """The size of one replica in bytes, on one broker."""

    node_id: int
    directory: str
    topic: str
    partition: int
    size_bytes: int
    offset_lag: int


class Admin:
    """An administration client.

    `groups`, `transactions` and `acls` are clients for these subjects.
    """

    def __init__(self, source: Source, *, timeout_ms: int = 15_000) -> None:
        """Create a client from a view, a bootstrap list or settings.

        The caller closes a given view.
        """
        self.timeout_ms = timeout_ms
        self.view = view = view_of(source)
        self._owns_view = view is not source
        self.groups = GroupAdmin(view, timeout_ms=timeout_ms)
        self.transactions = TransactionAdmin(view, timeout_ms=timeout_ms)
        self.acls = AclAdmin(view, timeout_ms=timeout_ms)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the view if this client has opened the view."""
        if self._owns_view:
            await self.view.close()

    def _drop(self) -> None:
        """Close the connections immediately, unless the caller has given the view."""
        if self._owns_view:
            self.view.drop()

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Create one topic.

        For `partitions` and `replication_factor`, -1 stands for the broker's default.
        """
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "assignments": [],
            "configs": [{"name": k, "value": v} for k, v in (configs or {}).items()],
        }
        request = {"topics": [topic], "timeout": self.timeout_ms, "validate_only": validate_only}
        await self._call(CREATE_TOPICS, request, lambda answer: answer.topics, "Create")

    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics by name. Try all topics, then raise the first error."""
        for problem in (await self.delete_topics_each(names)).values():
            if problem is not None:
                raise problem

    async def delete_topics_each(self, names: Iterable[str]) -> dict[str, KafkaError | None]:
        """Delete topics by name. Return the error of each, or None for a deleted topic.

        A topic that the controller does not know is not requested again. If an earlier request for
        that topic was not answered or has timed out, the topic counts as deleted. Raises the last
        error if no topic has an outcome at the deadline.
        """
        outcomes: dict[str, KafkaError | None] = {}
        doubtful: set[str] = set()
        wanted = list(dict.fromkeys(names))

        async def attempt() -> None:
            left = [name for name in wanted if name not in outcomes]
            may_be_gone = doubtful.copy()
            connection = await self.view.any_broker()
            doubtful.update(left)
            request = {"topic_names": left, "timeout": self.timeout_ms}
            answer = await connection.call(DELETE_TOPICS, request)
            passing: KafkaError | None = None
            for result in answer.responses:
                name = str(result.name)
                try:
                    raise_error_of(result, name, "Delete")
                    outcomes[name] = None
                except UnknownTopicOrPartition as problem:
                    outcomes[name] = None if name in may_be_gone else problem
                except RequestTimedOut as problem:  # the controller may still delete it
                    passing = problem
                except KafkaError as problem:
                    if name not in may_be_gone:
                        doubtful.discard(name)
                    if problem.retriable:
                        passing = problem
                    else:
                        outcomes[name] = problem
            if passing is not None:
                raise passing

        try:
            await self.view.retrying(attempt, timeout_ms=self.timeout_ms)
        except KafkaError as problem:
            if not outcomes:
                raise
            outcomes |= {name: problem for name in wanted if name not in outcomes}
        unanswered = UnknownServerError("the broker's answer leaves it out")
        return {name: outcomes.get(name, unanswered) for name in wanted}

    async def create_partitions(
        self, topic: str, count: int, *, validate_only: bool = False
    ) -> None:
        """Increase the number of partitions of a topic to `count`."""
        entry = {"name": topic, "count": count, "assignments": None}
        request = {"topics": [entry], "timeout": self.timeout_ms, "validate_only": validate_only}
        await self._call(CREATE_PARTITIONS, request, lambda answer: answer.results, "Alter")

    async def describe_topics(self, names: Iterable[str] | None = None) -> list[PartitionInfo]:
        """Return every partition of these topics, or of all topics if None, in order."""
        wanted = None if names is None else list(names)
        snapshot = await self.view.retrying(
            lambda: self.view.refresh(wanted), timeout_ms=self.timeout_ms
        )
        for name in wanted or []:  # an unknown topic is an answer, no reason to wait
            if snapshot.topic_errors.get(name):
                raise topic_error(name, snapshot.topic_errors[name])
        found = [p for (t, _), p in snapshot.partitions.items() if wanted is None or t in wanted]
        return sorted(found, key=lambda p: (p.topic, p.partition))

    async def describe_configs(self, name: str, kind: int = TOPIC_RESOURCE) -> list[ConfigValue]:
        """Return the configuration of a topic, or of a broker if kind is BROKER_RESOURCE.

        The name of a broker is its id.
        """
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}

        async def attempt() -> list[ConfigValue]:
            connection = (
                await self.view.broker(int(name))
                if kind == BROKER_RESOURCE and name
                else await self.view.any_broker()
            )
            answer = await connection.call(DESCRIBE_CONFIGS, {"resources": [resource]})
            found: list[ConfigValue] = []
            for result in answer.results:
                raise_error_of(result, name, "DescribeConfigs")
                for c in result.configs:
                    source = CONFIG_SOURCES.get(c.config_source, str(c.config_source))
                    found.append(ConfigValue(c.name, c.value, source, c.read_only, c.is_sensitive))
            return sorted(found, key=lambda c: c.name)

        return await self.view.retrying(attempt, timeout_ms=self.timeout_ms)

    async def alter_configs(
        self,
        name: str,
        changes: Mapping[str, str | None],
        kind: int = TOPIC_RESOURCE,
        *,
        appended: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Set the configuration values of a topic or broker by key (KIP-339).

        A value of None resets the key to its default. appended: for keys whose value is a list, the
        elements to append.
        """
        configs = [
            {"name": k, "config_operation": DELETE if v is None else SET, "value": v}
            for k, v in changes.items()
        ]
        configs += [
            {"name": k, "config_operation": APPEND, "value": v} for k, v in (appended or {}).items()
        ]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        request = {"resources": [resource], "validate_only": validate_only}
        await self._call(
            INCREMENTAL_ALTER_CONFIGS, request, lambda answer: answer.responses, "AlterConfigs"
        )

    async def describe_cluster(self) -> ClusterDescription:
        """Return the brokers, the controller and the cluster id.

        Fenced brokers are included where the server lists them (KIP-1073).
        """
        request = {"endpoint_type": 1, "include_fenced_brokers": True}
        answer = await self._call(DESCRIBE_CLUSTER, request, lambda answer: [answer], "Describe")
        brokers = tuple(
            BrokerState(int(b.broker_id), b.host, b.port, getattr(b, "is_fenced", False))
            for b in sorted(answer.brokers, key=lambda b: b.broker_id)
        )
        return ClusterDescription(answer.cluster_id, int(answer.controller_id), brokers)

    async def update_features(self, levels: Mapping[str, int]) -> None:
        """Set feature levels of the cluster (KIP-584). If one level is refused, none is changed."""

        async def attempt() -> None:
            connection = await self.view.any_broker()
            shown = await connection.call(API_VERSIONS, {**CLIENT_SOFTWARE})
            now = {each.name: each.max_version_level for each in shown.finalized_features}
            updates = [
                {
                    "feature": name,
                    "max_version_level": level,
                    "upgrade_type": UPGRADE if level >= now.get(name, 0) else SAFE_DOWNGRADE,
                }
                for name, level in levels.items()
            ]
            request = {"feature_updates": updates, "timeout": self.timeout_ms}
            answer = await connection.call(UPDATE_FEATURES, request)
            raise_error_of(answer, operation="Alter")

        await self.view.retrying(attempt, timeout_ms=self.timeout_ms)

    async def find_coordinator(self, key: str, key_type: int = GROUP) -> int:
        """Return the node id of the coordinator of a group (key type 0) or transactional id (1)."""
        return await self.view.retrying(
            lambda: find_coordinator(self.view, key, key_type), timeout_ms=self.timeout_ms
        )

    async def controller(self) -> int:
        """Return the leader of the metadata quorum, or raise LeaderNotAvailable without a leader.

        A cluster without DescribeQuorum is asked for its controller instead.
        """

        async def attempt() -> int:
            partition = {"partition_index": 0}
            request = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [partition]}]}
            try:
                answer = await self._ask(DESCRIBE_QUORUM, request)
            except UnsupportedVersion:
                return (await self.describe_cluster()).controller_id
            raise_error_of(answer, operation="Describe")
            for p in (p for t in answer.topics for p in t.partitions):
                raise_error_of(p, operation="Describe")
                if p.leader_id >= 0:
                    return int(p.leader_id)
            raise LeaderNotAvailable("the metadata group has no leader at the moment")

        return await self.view.retrying(attempt, timeout_ms=self.timeout_ms)

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        """Return, by partition, the offset of the position in `wanted`, or -1 without such a
        record.

        The values of `wanted` are EARLIEST, LATEST, MAX_TIMESTAMP or wall times in ms.
        """
        return await list_offsets(
            self.view, wanted, read_committed=read_committed, timeout_ms=self.timeout_ms
        )

    async def delete_records(self, topic: str, partition: int, before_offset: int) -> int:
        """Delete the records below an offset, and return the new start offset.

        The offset -1 stands for the high watermark.
        """
        entry = {"partition_index": partition, "offset": before_offset}
        request = {
            "topics": [{"name": topic, "partitions": [entry]}],
            "timeout": self.timeout_ms,
        }

        async def attempt() -> int:
            leader = await self.view.leader_of(topic, partition)
            result = (await leader.call(DELETE_RECORDS, request)).topics[0].partitions[0]
            raise_error_of(result, topic, "Delete")
            return result.low_watermark

        return await self.view.retrying(attempt, timeout_ms=self.timeout_ms, topics=[topic])

    async def elect_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Make the preferred replica of each of these partitions its leader."""
        wanted = entries_by_topic(partitions, named="topic")
        request = {"election_type": 0, "topic_partitions": wanted, "timeout": self.timeout_ms}
        answer = await self._call(ELECT_LEADERS, request, lambda a: [a], "Alter")
        for result in (r for t in answer.replica_election_results for r in t.partition_result):
            if result.error_code != 84:  # ELECTION_NOT_NEEDED
                raise_error_of(result, operation="Alter")

    async def describe_log_dirs(self) -> list[LogDirEntry]:
        """Return the size of each replica on each live broker, sorted by topic, partition and node.

        A broker that becomes unreachable during the call is left out.
        """
        entries: list[LogDirEntry] = []
        answers = await self.view.ask_all(DESCRIBE_LOG_DIRS, {"topics": None}, UNREACHABLE)
        for node_id, answer in answers:
            # without authorization the list of directories is empty (KIP-784)
            if getattr(answer, "error_code", 0):
                raise_error_of(answer, operation="Describe")
            for directory in answer.results:
                raise_error_of(directory, operation="Describe")
                entries += [
                    LogDirEntry(
                        node_id,
                        directory.log_dir,
                        str(topic.name),
                        p.partition_index,
                        p.partition_size,
                        p.offset_lag,
                    )
                    for topic in directory.topics
                    for p in topic.partitions
                ]
        return sorted(entries, key=lambda e: (e.topic, e.partition, e.node_id))

    async def _ask(self, api_key: int, values: dict[str, Any]) -> Any:
        return await (await self.view.any_broker()).call(api_key, values)

    async def _call(
        self,
        api_key: int,
        values: dict[str, Any],
        results: Callable[[Any], Iterable[Any]],
        operation: str,
    ) -> Any:
        """Send a request to any broker until no result has a retriable error, and return the
        answer.

        An error that is not retriable is raised. results: a function that returns those parts of
        the answer that have an error code. operation: the ACL operation that the named resource
        requires.
        """

        async def attempt() -> Any:
            answer = await self._ask(api_key, values)
            for result in results(answer):
                name = getattr(result, "name", None) or getattr(result, "resource_name", "")
                raise_error_of(result, str(name), operation)
            return answer

        return await self.view.retrying(attempt, timeout_ms=self.timeout_ms)
