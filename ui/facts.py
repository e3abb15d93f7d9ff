"""The known facts of a cluster at one moment, as plain values.

Parts are requested at different times, so each part has its own `as_of_ms` (wall clock), the time
of its first request. All facts of the part were true at that time or later. If a cluster does not
serve a part, `not_exposed` has a sentence about the part.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..client.admin import ClusterDescription, LogDirEntry
from ..client.cluster_view import PartitionInfo
from ..client.groups.descriptions import GroupDescription
from ..client.transaction_admin import DescribedTransaction
from ..deploy.inspect.explain import PartitionTransaction
from ..wire.identifiers import TopicPartition

NOTHING: Mapping[Any, Any] = {}


@dataclass(frozen=True, slots=True)
class ObservedOffsets:
    """The offsets of a partition, each None if it is not known.

    The log start is requested less often than the others, so `ClusterFacts.offsets_of` adds it.
    """

    last_stable: int | None = None
    high_watermark: int | None = None
    log_start: int | None = None

    @property
    def held_back(self) -> int:
        """Return how many offsets read_committed consumers cannot reach yet, or 0 if not known."""
        if self.last_stable is None or self.high_watermark is None:
            return 0
        return max(0, self.high_watermark - self.last_stable)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedGroup:
    """A group and its committed offsets. `described` is None if its coordinator did not answer."""

    name: str
    coordinator: int
    state: str
    type: str
    described: GroupDescription | None
    committed: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedNode:
    """The state of a node on this machine, from the operating system and its admin socket."""

    node_id: int
    state: str  # running, paused, down
    pid: int | None = None
    rss_bytes: int = 0
    cpu_s: float = 0.0
    up_s: float | None = None
    faults: str = ""
    loop: Mapping[str, Any] | None = None
    disk: str = ""
    traffic: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class Trouble:
    """A problem of the cluster, as `oncelog doctor` reports it. `state` is ok, note or bad."""

    about: str
    state: str
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class ClusterSample:
    """Counts at one moment, for curves. `held_back` are offsets between LSO and high watermark.

    Only brokers on this machine report the last five fields. messages_in, bytes_out: records
    written and bytes read since the observer began, counted at `counted_ms`. produce_ms: the 99th
    percentile of Produce requests at the slowest broker. fetch_ms: the median of Fetch requests at
    the slowest broker.
    """

    at_ms: int
    end_offsets: int
    held_back: int
    open_transactions: int
    lag: int | None = None
    counted_ms: int | None = None
    messages_in: float | None = None
    bytes_out: float | None = None
    produce_ms: float | None = None
    fetch_ms: float | None = None


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """An event of the cluster. `address` is the address of a view with details, or "".

    node and line: the node and the log line of the event, only for a cluster on this machine.
    alike: the sentence without its subject, or "". Simultaneous events of several partitions with
    an equal text are shown in one row.
    """

    at_ms: int
    kind: str  # election, isr, broker, controller, topic, fence, abort, group, fault, node
    subject: str
    sentence: str
    address: str = ""
    node: int | None = None
    line: str = ""
    alike: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """All known facts of a cluster. `as_of_ms` has the request time of each part of them."""

    as_of_ms: Mapping[str, int] = field(default_factory=dict[str, int])
    cluster: ClusterDescription | None = None
    controller: int = -1
    partitions: Mapping[TopicPartition, PartitionInfo] = field(
        default_factory=dict[TopicPartition, PartitionInfo]
    )
    internal_topics: frozenset[str] = frozenset()
    offsets: Mapping[TopicPartition, ObservedOffsets] = field(
        default_factory=dict[TopicPartition, ObservedOffsets]
    )
    log_starts: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    transactions: Mapping[str, DescribedTransaction] = field(
        default_factory=dict[str, DescribedTransaction]
    )
    holders: Mapping[TopicPartition, tuple[PartitionTransaction, ...]] = field(
        default_factory=dict[TopicPartition, tuple[PartitionTransaction, ...]]
    )
    groups: Mapping[str, ObservedGroup] = field(default_factory=dict[str, ObservedGroup])
    replicas: Mapping[TopicPartition, tuple[LogDirEntry, ...]] = field(
        default_factory=dict[TopicPartition, tuple[LogDirEntry, ...]]
    )
    answer_ms: Mapping[int, float] = field(default_factory=dict[int, float])
    min_insync: Mapping[str, int] = field(default_factory=dict[str, int])
    min_insync_ms: Mapping[str, int] = field(default_factory=dict[str, int])  # when it was asked
    nodes: Mapping[int, ObservedNode] = field(default_factory=dict[int, ObservedNode])
    checks: tuple[Trouble, ...] = ()
    silent: Mapping[str, str] = field(default_factory=dict[str, str])  # part -> why not
    not_exposed: Mapping[str, str] = field(default_factory=dict[str, str])
    samples: tuple[ClusterSample, ...] = ()
    events: tuple[ClusterEvent, ...] = ()

    def oldest_ms(self, *parts: str) -> int:
        """Return the request time of the oldest of these parts, or 0 if one is still missing.

        A part that the cluster has never served, and refuses, is left out.
        """
        told = [part for part in parts if part in self.as_of_ms or part not in self.not_exposed]
        return min((self.as_of_ms.get(part, 0) for part in told), default=0)

    def transactions_ms(self, now_ms: int) -> int:
        """Return the request time of the transactions, or `now_ms` if they are not known.

        The ages of transactions are counted up to this time.
        """
        return self.as_of_ms.get("transactions", now_ms)

    def offsets_of(self, key: TopicPartition) -> ObservedOffsets:
        """Return the offsets of a partition, with its log start if known.

        A log start beyond the end belongs to a deleted topic of the same name.
        """
        found, start = self.offsets.get(key, ObservedOffsets()), self.log_starts.get(key)
        if start is None or found.high_watermark is None or start > found.high_watermark:
            return found
        return replace(found, log_start=start)
