"""Raw requests of transactional producers to a cluster of any number of nodes."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import local
from typing import Any, NamedTuple

from oncelog.coordinator.sharding import shard_for
from oncelog.wire.errors import ErrorCode
from oncelog.wire.messages.produce import ProducePartition, ProduceRequest, ProduceTopic
from oncelog.wire.records import Record, encode_batch

from ...waiting import until
from ..raw_peer import CLOSED, INIT_PRODUCER_ID, LIST_OFFSETS, METADATA, PRODUCE, RawPeer

FIND_COORDINATOR, ADD_PARTITIONS, ADD_OFFSETS, END, OFFSET_COMMIT = 10, 24, 25, 26, 28
DESCRIBE_TRANSACTIONS = 65
CALM, HELD = "calm", "held"  # topics: markers are written to the one, not to the other
KNOWN_GROUP, NEW_GROUP = "group-a", "group-b"  # in unlike partitions of __consumer_offsets
LONG_MS, SHORT_MS = 900_000, 2_000
TIMEOUT_S = 30.0
TRANSIENT = {14, 15, 16, 19, 51}  # 19: a transaction that could not be verified, too


class Held(NamedTuple):
    """The state, producer id, epoch and number of partitions that a coordinator has for an id."""

    state: str
    producer_id: int
    producer_epoch: int
    partitions: int


@dataclass
class TransactionalRequests:
    """Transactional requests to a cluster, which threads may send concurrently.

    The cluster has the topics CALM (2 partitions) and HELD (1 partition). shards,
    offset_partitions: the numbers of partitions of __transaction_state and of __consumer_offsets.
    """

    nodes: Mapping[int, tuple[str, int]]
    shards: int = 4
    offset_partitions: int = 4
    _own: local = field(default_factory=local)
    _peers: list[RawPeer] = field(default_factory=list)
    _found: dict[tuple[int, int], int] = field(default_factory=dict)
    _leaders: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        places = {shard_for(name, self.offset_partitions) for name in (KNOWN_GROUP, NEW_GROUP)}
        assert len(places) == 2

    # --- ways

    def peer(self, node: int) -> RawPeer:
        """Return this thread's connection to a node."""
        peers = self._own.__dict__.setdefault("peers", {})
        if node not in peers:
            peers[node] = RawPeer(f"node {node}", self.nodes[node])
            self._peers.append(peers[node])
        return peers[node]

    def close(self) -> None:
        """Close the connections of all threads."""
        for peer in self._peers:
            peer.close()

    def look_up_again(self) -> None:
        """Forget the known coordinators and leaders, so that they are looked up again."""
        self._found.clear()
        self._leaders.clear()

    def _coordinator(self, kind: int, key: str) -> RawPeer:
        place = kind, shard_for(key, self.shards if kind else self.offset_partitions)
        deadline = time.monotonic() + TIMEOUT_S
        while place not in self._found:
            values = {"key_type": kind, "coordinator_keys": [key]}
            answer = self.peer(min(self.nodes)).ask_raw(FIND_COORDINATOR, 4, values)
            (found,) = answer.coordinators
            if found.error_code == 0:
                self._found[place] = found.node_id
            else:
                assert time.monotonic() < deadline, f"no coordinator: {found.error_code}"
                time.sleep(0.05)
        return self.peer(self._found[place])

    def leader(self, topic: str, index: int) -> RawPeer:
        """Return a connection to the node that leads a partition."""
        if (topic, index) not in self._leaders:
            values = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
            (found,) = self.peer(min(self.nodes)).ask_raw(METADATA, 12, values).topics
            for row in found.partitions:
                self._leaders[topic, row.partition_index] = row.leader_id
        return self.peer(self._leaders[topic, index])

    def warm(self, group: str) -> None:
        """Wait until a group's coordinator exists and has loaded its partition."""
        deadline = time.monotonic() + TIMEOUT_S
        while error_of(self.commit_offset("warm", 0, (0, 0), group)) in TRANSIENT:
            assert time.monotonic() < deadline, f"the coordinator of {group} does not load"
            self.look_up_again()
            time.sleep(0.05)

    # --- requests; each returns the answer

    def init(
        self, name: str, version: int = 5, identity: tuple[int, int] = (-1, -1),
        timeout_ms: int = LONG_MS,
    ) -> Any:  # fmt: skip
        values = {
            "transactional_id": name,
            "transaction_timeout": timeout_ms,
            "producer_id": identity[0],
            "producer_epoch": identity[1],
        }
        return self._coordinator(1, name).ask_raw(INIT_PRODUCER_ID, version, values)

    def add_partitions(
        self, name: str, version: int, identity: tuple[int, int], *wanted: tuple[str, int]
    ) -> Any:
        values = {
            "v3_and_below_transactional_id": name,
            "v3_and_below_producer_id": identity[0],
            "v3_and_below_producer_epoch": identity[1],
            "v3_and_below_topics": [{"name": t, "partitions": [p]} for t, p in wanted],
        }
        return self._coordinator(1, name).ask_raw(ADD_PARTITIONS, version, values)

    def add_offsets(self, name: str, version: int, identity: tuple[int, int], group: str) -> Any:
        values = _identified(name, identity) | {"group_id": group}
        return self._coordinator(1, name).ask_raw(ADD_OFFSETS, version, values)

    def commit_offset(
        self, name: str, version: int, identity: tuple[int, int], group: str,
        topic: str = CALM, offset: int = 5,
    ) -> Any:  # fmt: skip
        """Commit an offset of partition 0 of a topic."""
        part = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        values = _identified(name, identity) | {
            "group_id": group,
            "topics": [{"name": topic, "partitions": [part]}],
        }
        return self._coordinator(0, group).ask_raw(OFFSET_COMMIT, version, values)

    def end(self, name: str, version: int, identity: tuple[int, int], is_commit: bool) -> Any:
        values = _identified(name, identity) | {"committed": is_commit}
        return self._coordinator(1, name).ask_raw(END, version, values)

    def produce(
        self, name: str, version: int, identity: tuple[int, int], place: tuple[str, int],
        sequence: int, value: bytes = b"v",
    ) -> Any:  # fmt: skip
        records = encode_batch(
            [Record(0, int(time.time() * 1000), b"k", value)],
            transactional=True, producer_id=identity[0], producer_epoch=identity[1],
            base_sequence=sequence,
        )  # fmt: skip
        topic, index = place
        wanted = ProduceTopic(topic, None, [ProducePartition(index, records)])
        request = ProduceRequest(name, -1, 5000, [wanted])
        return self.leader(*place).ask_raw(PRODUCE, version, request)

    def held(self, name: str) -> Held | None:
        """Return the coordinator's present state of a transactional id, or None if unknown."""
        values = {"transactional_ids": [name]}
        answer = self._coordinator(1, name).ask_raw(DESCRIBE_TRANSACTIONS, 0, values)
        (found,) = answer.transaction_states
        if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return None
        assert found.error_code == 0, f"{name}: cannot be described: {found.error_code}"
        return Held(
            found.transaction_state,
            found.producer_id,
            found.producer_epoch,
            sum(len(topic.partitions) for topic in found.topics),
        )

    def insist(self, ask: Callable[[], Any]) -> Any:
        """Repeat a request while its error is transient, and fail on any other error."""
        answer = self.answered(ask)
        error = error_of(answer)
        assert error == 0, f"in the preparation: {ErrorCode(error).name}"
        return answer

    def answered(self, ask: Callable[[], Any]) -> Any:
        """Repeat a request while its error is transient, and return its last answer.

        A coordinator closes connections that are older than its election, which may happen between
        two attempts.
        """
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            answer = ask()
            error = None
            if answer != CLOSED:
                assert not isinstance(answer, str), answer
                error = error_of(answer)
                if error not in TRANSIENT:
                    return answer
            assert time.monotonic() < deadline, f"for {TIMEOUT_S} s: {answer}"
            if error != ErrorCode.CONCURRENT_TRANSACTIONS:
                self.look_up_again()
            time.sleep(0.005)

    def wait_for_markers(self) -> None:
        """Wait until no transaction is open in CALM and in __consumer_offsets."""
        places = [(CALM, 0), (CALM, 1)]
        for group in (KNOWN_GROUP, NEW_GROUP):
            places.append(("__consumer_offsets", shard_for(group, self.offset_partitions)))
        for place in places:
            until(
                lambda place=place: self._end_of(place, 0) == self._end_of(place, 1),
                f"{place}: a transaction stays open",
            )

    def _end_of(self, place: tuple[str, int], isolation: int) -> int:
        part = {"partition_index": place[1], "timestamp": -1}
        topics = [{"name": place[0], "partitions": [part]}]
        values = {"replica_id": -1, "isolation_level": isolation, "topics": topics}
        (topic,) = self.leader(*place).ask_raw(LIST_OFFSETS, 5, values).topics
        (row,) = topic.partitions
        assert row.error_code == 0, f"{place}: error {row.error_code}"
        return row.offset


def _identified(name: str, identity: tuple[int, int]) -> dict[str, Any]:
    return {
        "transactional_id": name,
        "producer_id": identity[0],
        "producer_epoch": identity[1],
    }


def error_of(message: Any) -> int:
    """Return the error code in an answer to one of these requests, or the highest of several."""
    while True:
        for name in ("error_code", "partition_error_code"):
            if hasattr(message, name):
                return int(getattr(message, name))
        for name in (
            "results_by_topic_v3_and_below", "results_by_partition", "topics", "partitions",
        ):  # fmt: skip
            if hasattr(message, name):
                message = max(getattr(message, name), key=error_of)
                break
        else:
            raise TypeError(f"no error code in {message}")
