"""The brokers, partitions and leaders that a client knows, which the client keeps up to date.

This file follows some rules. There is one connection to each broker and channel. A connection is
opened at its first use, and again after it was lost. Any known broker is asked for metadata.
Connected brokers are asked first and the bootstrap list last, so a client finds a cluster whose
brokers were all replaced one by one. Retries wait with exponential backoff and jitter, within the
caller's deadline.
"""

import asyncio
import os
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..wire.errors import (
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    RequestTimedOut,
    UnknownTopicOrPartition,
    error_for,
)
from ..wire.framing import API_VERSIONS
from ..wire.identifiers import Identity, TopicPartition
from .connection import IDS_FROM, BrokerConnection, ClusterAndNode
from .failures import FORKED, NOT_TRUSTED, AnotherBroker, ClientClosed, HungUp, tell_of_forks
from .retries import Backoff, now_ms
from .security.listener_probe import refuse_other_protocol, refuse_without_sasl
from .security.permissions import error_about

if TYPE_CHECKING:
    from .security.session import Security

METADATA, DESCRIBE_QUORUM = 3, 55
BY_ID_FROM = 12  # Metadata
READ_HERE_MAX = 500  # partitions; larger answers are read in a thread, not on the event loop
BACKOFF_FIRST_MS, BACKOFF_LAST_MS = 20, 500
CLOSED = "the client is closed"
REASON_MAX = 200
SILENCE_S = 2.0  # from the first connection attempt until `on_silence` is called
_ERRNO = re.compile(r"\[Errno (-?\d{1,9})\] ([^()]*)")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokerNode:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """A partition as a broker described it. The leader is -1 if there is none."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    error_code: int = 0


@dataclass(slots=True)
class ClusterSnapshot:
    cluster_id: str | None = None
    controller_id: int = -1
    brokers: dict[int, BrokerNode] = field(default_factory=dict[int, BrokerNode])
    partitions: dict[TopicPartition, PartitionInfo] = field(
        default_factory=dict[TopicPartition, PartitionInfo]
    )
    internal_topics: set[str] = field(default_factory=set[str])
    topic_errors: dict[str, int] = field(default_factory=dict[str, int])
    topic_ids: dict[str, bytes] = field(default_factory=dict[str, bytes])
    _numbers: dict[str, list[int]] = field(default_factory=dict[str, list[int]], init=False)
    _numbered: int = field(default=0, init=False)  # partitions when they were sorted

    def keep_newer(self, known: "ClusterSnapshot") -> None:
        """Replace partitions by those of `known` that have a higher leader epoch (KIP-320).

        The broker that sent this snapshot may have older metadata than the sender of `known`.
        """
        for key, old in known.partitions.items():
            new = self.partitions.get(key)
            if new is None or new.leader_epoch >= old.leader_epoch:
                continue
            topic_id = self.topic_ids.get(key[0])
            if topic_id is not None and topic_id == known.topic_ids.get(key[0]):
                self.partitions[key] = old  # unless the topic was created again

    def partitions_of(self, topic: str) -> list[PartitionInfo]:
        """Return the partitions of a topic in order.

        The first call sorts the partitions of all topics and keeps the result, because callers ask
        for many topics. They are sorted again after the number of known partitions has changed.
        """
        if self._numbered != len(self.partitions):
            self._numbers, self._numbered = {}, len(self.partitions)
            for name, number in self.partitions:
                self._numbers.setdefault(name, []).append(number)
            for numbers in self._numbers.values():
                numbers.sort()
        return [self.partitions[topic, number] for number in self._numbers.get(topic, ())]


class PartialList(list[T]):
    """A list from the brokers that answered. `errors` has the errors of the others by node id."""

    def __init__(
        self, items: Iterable[T] = (), errors: Mapping[int, KafkaError] | None = None
    ) -> None:
        super().__init__(items)
        self.errors = dict(errors or {})


class ClusterView:
    """The connections and metadata of a client, opened with a bootstrap list."""

    # for connections opened from now on
    connection_type: type[BrokerConnection] = BrokerConnection

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        *,
        client_id: str = "oncelog",
        timeout_ms: int = 5_000,
        security: "Security | None" = None,
    ) -> None:
        self._bootstrap = parse_bootstrap(bootstrap)
        self.client_id, self.timeout_ms = client_id, timeout_ms
        self._security = security
        self.snapshot = ClusterSnapshot()
        self._knows_itself = False  # whether brokers serve ApiVersions 5
        self._connections: dict[tuple[str, int, str], BrokerConnection] = {}
        self._opening: dict[tuple[str, int, str], asyncio.Lock] = {}
        # the last error of each
        self._failed: dict[tuple[str, int, str], tuple[type[KafkaError], str]] = {}
        self.is_forked = self._is_closed = False
        # called once with a sentence if no broker has answered after SILENCE_S
        self.on_silence: Callable[[str], object] | None = None
        tell_of_forks(self)

    @property
    def has_connected(self) -> bool:
        """Whether this view has ever been asked for a connection."""
        return bool(self._opening)

    @property
    def has_answered(self) -> bool:
        """Whether a broker has ever accepted a connection of this view."""
        return bool(self._connections)

    def forked(self) -> None:
        """Make later calls fail in a forked child, if the parent may have connections."""
        self.is_forked = self.has_connected

    async def close(self) -> None:
        """Close all connections. Later calls that need one raise ClientClosed."""
        self.drop()
        await asyncio.sleep(0)  # let the transports report that they are closed

    def drop(self) -> None:
        """Close all connections as `close` does, without waiting."""
        if self.is_forked:
            return
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def connection_to(self, host: str, port: int, channel: str = "") -> BrokerConnection:
        """Return an open connection to an address, one for each channel.

        A broker handles one request of a connection at a time. Requests that may wait for long (a
        fetch, a join) therefore have channels of their own. Callers that wait for the same
        connection get the same error. Otherwise, with a host that does not answer, each caller
        would wait for one more timeout.
        """
        self._refuse()
        if self.on_silence is not None and not self.has_connected:
            asyncio.get_running_loop().call_later(SILENCE_S, self._report_silence)
        place = (host, port, channel)
        lock = self._opening.setdefault(place, asyncio.Lock())
        waits = lock.locked()
        async with lock:
            known = self._connections.get(place)
            if known is not None and known.is_open:
                return known
            failed = self._failed.pop(place, None)
            if failed is not None and waits:
                self._failed[place] = failed
                kind, words = failed
                raise kind(words)
            self._refuse()
            try:
                made = await self._open(host, port)
            except KafkaError as problem:
                self._failed[place] = type(problem), str(problem)
                raise
            if self._is_closed:  # meanwhile: no later close would find this connection
                made.close()
            self._refuse()
            self._connections[place] = made
            return made

    def _report_silence(self) -> None:
        if self.on_silence is None or self.has_answered or self._is_closed:
            return
        listed = ",".join(f"{host}:{port}" for host, port in self._bootstrap)
        failed = next(reversed(self._failed.values()), None)
        self.on_silence(f"no broker answers at {listed} yet ({_reason(failed)})")

    def _refuse(self) -> None:
        """Raise ClientClosed if the view is closed or belongs to the parent process."""
        if self.is_forked:
            raise ClientClosed(FORKED)
        if self._is_closed:
            raise ClientClosed(CLOSED)

    def open_connections(self) -> dict[tuple[str, int], BrokerConnection]:
        """Return the open connections by address, without those of a named channel."""
        return {
            (host, port): each
            for (host, port, channel), each in self._connections.items()
            if not channel and each.is_open
        }

    async def _open(self, host: str, port: int) -> BrokerConnection:
        try:
            made = await self.connection_type.open(
                host,
                port,
                client_id=self.client_id,
                timeout_ms=self.timeout_ms,
                security=self._security,
                meant=self._meant(host, port),
            )
        except AnotherBroker:
            self.snapshot.brokers.clear()  # so that the bootstrap list is asked next
            raise
        except HungUp:
            if not self.snapshot.brokers:  # no broker has ever answered: is the protocol wrong?
                await refuse_other_protocol(host, port, self._security)
            raise
        self._knows_itself = made.versions.get(API_VERSIONS, (0, 0))[1] >= IDS_FROM
        return made

    def _meant(self, host: str, port: int) -> ClusterAndNode | None:
        """Return the cluster id and the node id that are expected at an address (KIP-1242).

        Return None if they are unknown, or if brokers cannot check them in ApiVersions.
        """
        cluster_id = self.snapshot.cluster_id
        nodes = [
            each.node_id
            for each in self.snapshot.brokers.values()
            if (each.host, each.port) == (host, port)
        ]
        if not self._knows_itself or cluster_id is None or len(nodes) != 1:
            return None
        return cluster_id, nodes[0]

    async def broker(self, node_id: int, channel: str = "") -> BrokerConnection:
        """Return the connection to a broker by its id, or raise NetworkException if it is not
        alive.
        """
        if node_id not in self.snapshot.brokers:
            await self.refresh([])
        known = self.snapshot.brokers.get(node_id)
        if known is None:
            raise NetworkException(f"node {node_id} is not among the cluster's live brokers")
        return await self.connection_to(known.host, known.port, channel)

    async def any_broker(self) -> BrokerConnection:
        """Return a connection to the first broker that accepts one, else raise NetworkException.

        An error of authentication or of trust is raised at once.
        """
        addresses = [(b.host, b.port) for b in self.snapshot.brokers.values()]
        random.shuffle(addresses)
        known = {a: self._connections.get((*a, "")) for a in addresses}
        is_connected = [a for a, connection in known.items() if connection and connection.is_open]
        problems: list[str] = []
        for address in dict.fromkeys([*is_connected, *addresses, *self._bootstrap]):
            try:
                return await self.connection_to(*address)
            except (*NOT_TRUSTED, ClientClosed):
                raise  # the other brokers would refuse it, too
            except KafkaError as problem:
                problems.append(str(problem))
        raise NetworkException("no broker answers: " + "; ".join(problems))

    async def refresh(self, topics: Iterable[str] | None = None) -> ClusterSnapshot:
        """Request metadata of the brokers and `topics` (all topics if None), and return it.

        The view keeps the metadata.
        """
        connection = await self.any_broker()
        wanted = None if topics is None else [{"name": name} for name in topics]
        try:
            answer = await connection.call(
                METADATA, {"topics": wanted, "allow_auto_topic_creation": False}
            )
        except RequestTimedOut:
            # it accepts connections and does not answer
            paused = (connection.host, connection.port)
            brokers = self.snapshot.brokers.items()
            self.snapshot.brokers = {n: b for n, b in brokers if (b.host, b.port) != paused}
            self._bootstrap.sort(key=lambda address: address == paused)
            raise
        except NetworkException:
            if not self.snapshot.brokers:
                await refuse_without_sasl(connection, self._security)
            raise
        if sum(len(topic.partitions) for topic in answer.topics) > READ_HERE_MAX:
            fresh = await asyncio.to_thread(read_metadata, answer)
        else:
            fresh = read_metadata(answer)
        fresh.keep_newer(self.snapshot)
        if wanted is not None:  # keep what is known of other topics
            asked = {item["name"] for item in wanted}
            kept = {key: p for key, p in self.snapshot.partitions.items() if key[0] not in asked}
            fresh.partitions = kept | fresh.partitions
            fresh.topic_ids = self.snapshot.topic_ids | fresh.topic_ids
        self.snapshot = fresh
        return fresh

    async def refresh_by_id(self, topic_ids: Iterable[bytes]) -> None:
        """Request metadata of topics by their ids (KIP-516), and keep it in the view.

        Topics that the broker does not know are left out. A broker without Metadata 12 is asked for
        all topics.
        """
        connection = await self.any_broker()
        wanted = [{"topic_id": topic_id, "name": None} for topic_id in topic_ids]
        values = {"topics": wanted, "allow_auto_topic_creation": False}
        if connection.version_for(METADATA) < BY_ID_FROM:
            await self.refresh()
            return
        answer = await connection.call(METADATA, values)
        names = [topic.name for topic in answer.topics if topic.name and not topic.error_code]
        if names:
            await self.refresh(map(str, names))

    def learn_leader(
        self,
        topic: str,
        partition: int,
        current_leader: Identity | None,
        endpoints: Iterable[tuple[int, str, int, str | None]],
    ) -> None:
        """Store the current leader that an answer names (KIP-951), if its leader epoch is newer."""
        known = self.snapshot.partitions.get((topic, partition))
        leader, leader_epoch = current_leader or (-1, -1)
        if known is None or leader_epoch <= known.leader_epoch:
            return
        self.snapshot.brokers |= {e[0]: BrokerNode(*e) for e in endpoints if e[0] == leader}
        if leader in self.snapshot.brokers:
            news = replace(known, leader=leader, leader_epoch=leader_epoch)
            self.snapshot.partitions[(topic, partition)] = news

    async def leader_of(self, topic: str, partition: int) -> BrokerConnection:
        """Return the connection to a partition's leader as the view knows it.

        Metadata is requested only if the partition is unknown. Raises UnknownTopicOrPartition, or
        LeaderNotAvailable.
        """
        known = self.snapshot.partitions.get((topic, partition))
        if known is None:
            snapshot = await self.refresh([topic])
            known = snapshot.partitions.get((topic, partition))
        if known is None:
            code = self.snapshot.topic_errors.get(topic, 0)
            if code:
                raise topic_error(topic, code)
            raise UnknownTopicOrPartition(f"there is no partition {topic}/{partition}")
        if known.leader < 0:
            raise LeaderNotAvailable(f"{topic}/{partition} has no leader at the moment")
        return await self.broker(known.leader)

    async def ask_all(
        self, api_key: int, values: dict[str, Any], skipped: tuple[type[KafkaError], ...] = ()
    ) -> PartialList[tuple[int, Any]]:
        """Send a request to each live broker, and return pairs (node id, answer).

        A broker whose call raises an error of a class in `skipped` is left out, unless no broker
        answers. A killed broker of oncelog is among the live brokers for 15 s more.
        """
        await self.refresh([])
        answers: PartialList[tuple[int, Any]] = PartialList()
        for node_id in list(self.snapshot.brokers):
            try:
                answers.append((node_id, await (await self.broker(node_id)).call(api_key, values)))
            except skipped as problem:
                answers.errors[node_id] = problem
        if not answers:
            nobody = NetworkException("the cluster has no live broker")
            raise next(iter(answers.errors.values()), nobody)
        return answers

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout_ms: int,
        topics: Iterable[str] | None = None,
    ) -> T:
        """Call `attempt` until it succeeds, fails permanently, or the deadline passes.

        After a retriable error the loop waits, then refreshes `topics` in the view (only the
        brokers if None). The last error is raised at the deadline.
        """
        backoff = Backoff(BACKOFF_FIRST_MS, BACKOFF_LAST_MS, now_ms() + timeout_ms)
        while True:
            try:
                return await attempt()
            except KafkaError as problem:
                if not problem.retriable or backoff.is_over:
                    raise
                await backoff.pause()
            try:
                await self.refresh(topics if topics is not None else [])
            except KafkaError as problem:
                if not problem.retriable:
                    raise


def _reason(failed: tuple[type[KafkaError], str] | None) -> str:
    """Return in a few words why the last connection attempt failed, or has not ended yet."""
    if failed is None or issubclass(failed[0], RequestTimedOut):
        return "no answer"
    known = _ERRNO.search(failed[1])
    if known is None:
        return failed[1][:REASON_MAX]  # maybe the broker's own words
    number = int(known[1])  # below 0 of name resolution, whose words are those of the system
    return os.strerror(number).lower() if number > 0 else known[2][:REASON_MAX].strip().lower()


def read_metadata(answer: Any) -> ClusterSnapshot:
    """Read a Metadata response of any version."""
    if getattr(answer, "error_code", 0):
        raise error_for(int(answer.error_code))
    snapshot = ClusterSnapshot(getattr(answer, "cluster_id", None), int(answer.controller_id))
    for b in answer.brokers:
        snapshot.brokers[int(b.node_id)] = BrokerNode(int(b.node_id), b.host, b.port, b.rack)
    for topic in answer.topics:
        name = str(topic.name)
        if topic.error_code:
            snapshot.topic_errors[name] = int(topic.error_code)
        if getattr(topic, "topic_id", None) is not None:
            snapshot.topic_ids[name] = bytes(topic.topic_id)
        if topic.is_internal:
            snapshot.internal_topics.add(name)
        for p in topic.partitions:
            snapshot.partitions[(name, p.partition_index)] = PartitionInfo(
                topic=name,
                partition=p.partition_index,
                leader=int(p.leader_id),
                leader_epoch=getattr(p, "leader_epoch", -1),
                replicas=tuple(int(r) for r in p.replica_nodes),
                isr=tuple(int(r) for r in p.isr_nodes),
                error_code=int(p.error_code),
            )
    return snapshot


def topic_error(topic: str, code: int) -> KafkaError:
    """Return the error of a code, with a message that names the topic."""
    return error_about(code, topic, "Describe", f"topic {topic}: {error_for(code)}")


def parse_bootstrap(listed: str | Iterable[str]) -> list[tuple[str, int]]:
    """Parse `host:port,host:port`, or several such texts. Raises ValueError for a malformed one."""
    texts = listed.split(",") if isinstance(listed, str) else listed
    found = [parse_address(text) for text in texts if text.strip()]
    if not found:
        raise ValueError("the bootstrap list is empty; it looks like host:port,host:port")
    return found


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host:port` (also `[::1]:9092`), or raise ValueError for a malformed one."""
    host, separator, port = text.strip().rpartition(":")
    if not separator or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} is not an address; it looks like 127.0.0.1:9092")
    return host.strip("[]"), int(port)
