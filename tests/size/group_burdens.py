"""The large resources of groups, a thousand groups and a million committed offsets."""

import contextlib
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from oncelog.coordinator.sharding import shard_for
from oncelog.wire.consumer_protocol import Subscription, encode_subscription

from .burdens import Burden, Missing
from .connection import Connection
from .stage import Stage

OFFSETS_TOPIC = "__consumer_offsets"
OFFSET_COMMIT, OFFSET_FETCH, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 11, 12, 13, 14
SESSION_MS, COORDINATOR_TIMEOUT_S = 10_000, 60.0
NOT_COORDINATING = {14, 15, 16}  # loading, not there yet, elsewhere
WANTED = encode_subscription(Subscription(("grouped",)))
PARTITIONS = 1_000  # of each group that only commits


class NotCoordinating(Exception):
    """Raised if the asked broker does not coordinate the group, or not yet."""


class Groups(Burden):
    """1,000 consumer groups, in each of which a member joins, commits and leaves."""

    def make(self, stage: Stage) -> str:
        stage.create("grouped", 1)
        self.known = {f"group-{i}": 0 for i in range(self.scale(1_000))}
        return f"{self._turn(stage)} groups join, commit and leave"

    def use(self, stage: Stage) -> str:
        return f"{self._turn(stage)} groups find their offsets, join, commit and leave"

    def _turn(self, stage: Stage) -> int:
        _each_at_its_coordinator(stage, self.known, self._member)
        return len(self.known)

    def _member(self, connection: Connection, group: str) -> None:
        committed = self.known[group]
        if committed and _committed(connection, group, "grouped", [0]) != [committed]:
            raise Missing(f"{group} had committed {committed}")
        joined = connection.ask(JOIN, 2, {
            "group_id": group, "session_timeout": SESSION_MS, "rebalance_timeout": SESSION_MS,
            "member_id": "", "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": WANTED}],
        })  # fmt: skip
        _require(joined.error_code, f"join of {group}")
        member = {"group_id": group, "member_id": joined.member_id}
        known = {**member, "generation_id": joined.generation_id}
        assignments = [{"member_id": joined.member_id, "assignment": b""}]
        synced = connection.ask(SYNC, 1, {**known, "assignments": assignments})
        _require(synced.error_code, f"sync of {group}")
        _commit(connection, group, "grouped", {0: committed + 1}, joined)
        self.known[group] = committed + 1
        _require(connection.ask(HEARTBEAT, 1, known).error_code, f"heartbeat of {group}")
        _require(connection.ask(LEAVE, 1, member).error_code, f"leaving {group}")


class Offsets(Burden):
    """One million committed offsets of 1,000 groups in 1,000 partitions."""

    def make(self, stage: Stage) -> str:
        stage.create("offsets", PARTITIONS)
        self.known = {f"offsets-{i}": 1 for i in range(self.scale(1_000))}
        _each_at_its_coordinator(stage, self.known, self._commit_all)
        return f"{len(self.known) * PARTITIONS:,} committed offsets of {len(self.known):,} groups"

    def use(self, stage: Stage) -> str:
        some = list(self.known)[::10]
        _each_at_its_coordinator(stage, some, self._check)
        for group in some:
            self.known[group] += 1
        _each_at_its_coordinator(stage, some, self._commit_all)
        return f"{len(some)} groups find and move {PARTITIONS:,} offsets each"

    def _commit_all(self, connection: Connection, group: str) -> None:
        offset = self.known[group]
        _commit(connection, group, "offsets", {index: offset for index in range(PARTITIONS)})

    def _check(self, connection: Connection, group: str) -> None:
        found = _committed(connection, group, "offsets", range(PARTITIONS))
        if found != [self.known[group]] * PARTITIONS:
            wrong = sum(offset != self.known[group] for offset in found)
            raise Missing(f"{wrong} offsets of {group} are not {self.known[group]}")


def _each_at_its_coordinator(
    stage: Stage, groups: Iterable[str], work: Callable[[Connection, str], None]
) -> None:
    """Call `work` for each group on a connection to its coordinator.

    Coordinators get their calls in parallel, and each coordinator gets one call after another.
    """
    left = list(groups)
    stage.cluster.coordinator("group", left[0])  # which makes the topic of the offsets
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S

    def at(led: tuple[int, list[int]]) -> list[str]:
        again: list[str] = []
        with contextlib.closing(Connection(stage.address(led[0]))) as connection:
            for group in left:
                if shard_for(group, count) in led[1]:
                    try:
                        work(connection, group)
                    except NotCoordinating:
                        again.append(group)
        return again

    while left:
        stage.wait("the offsets have leaders", lambda: -1 not in stage.leaders(OFFSETS_TOPIC))
        leaders = stage.leaders(OFFSETS_TOPIC)
        count = sum(map(len, leaders.values()))
        with ThreadPoolExecutor(len(leaders)) as executor:
            left = [group for again in executor.map(at, leaders.items()) for group in again]
        if left and time.monotonic() > deadline:
            raise Missing(f"{left[0]} has had no coordinator for {COORDINATOR_TIMEOUT_S:.0f} s")


def _commit(
    connection: Connection, group: str, topic: str, offsets: dict[int, int], joined: object = None
) -> None:
    partitions = [
        {"partition_index": p, "committed_offset": offset, "committed_metadata": ""}
        for p, offset in offsets.items()
    ]
    answer = connection.ask(OFFSET_COMMIT, 2, {
        "group_id": group,
        "generation_id_or_member_epoch": getattr(joined, "generation_id", -1),
        "member_id": getattr(joined, "member_id", ""),
        "retention_time": -1,
        "topics": [{"name": topic, "partitions": partitions}],
    })  # fmt: skip
    for partition in answer.topics[0].partitions:
        _require(partition.error_code, f"commit of {group}")


def _committed(
    connection: Connection, group: str, topic: str, partitions: Iterable[int]
) -> list[int]:
    topics = [{"name": topic, "partition_indexes": list(partitions)}]
    answer = connection.ask(OFFSET_FETCH, 2, {"group_id": group, "topics": topics})
    _require(answer.error_code, f"offsets of {group}")
    return [p.committed_offset for p in answer.topics[0].partitions]


def _require(error_code: int, what: str) -> None:
    if error_code in NOT_COORDINATING:
        raise NotCoordinating
    if error_code:
        raise Missing(f"{what}: error {int(error_code)}")
