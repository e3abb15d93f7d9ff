"""The transaction coordinator of one node, without brokers.

The test controls its Raft group, the partitions that answer markers, and its clock.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import Any, cast

from oncelog.coordinator.metadata.clock_advances import ClockAdvances
from oncelog.coordinator.raft.group import RaftGroup
from oncelog.coordinator.raft.outcomes import DefinitelyNot, OutcomeUnknown
from oncelog.coordinator.transactions.messages import (
    TransactionMarker,
    WriteMarkers,
    WriteMarkersReply,
)
from oncelog.coordinator.transactions.settings import TransactionSettings
from oncelog.coordinator.transactions.shard import TransactionShard
from oncelog.node.connection_ids import ConnectionIds
from oncelog.node.transactions.leader_ports import LeaderPorts
from oncelog.node.transactions.marker_sender import MarkerSender
from oncelog.node.transactions.service import TransactionCoordinators
from oncelog.node.transactions.shard_timeouts import ShardLeaders
from oncelog.replication.peer.codec import decode_message, encode_message
from oncelog.replication.peer.transport import PeerTransport, PeerUnavailable
from oncelog.runtime.event_log import EventLog
from oncelog.runtime.sliced_work import SlicedWork

from ...awaiting import until
from ..fake_raft_group import FakeRaftGroup

NODE = 1
WAIT_S = 5.0


class Group(FakeRaftGroup):
    """The Raft group of one shard, as this node sees it."""

    def __init__(self, shard: TransactionShard) -> None:
        super().__init__()
        self.shard = shard
        self.log: list[bytes] = []
        self.term = 0
        self.leader_id: int | None = None
        self.is_leader = False
        self.preferred_leader: int | None = None
        self.held: list[Callable[[], None]] | None = None  # a list holds proposals back
        self.fate: list[str] = []  # of the next proposals: "lost", "refused", "unknown"

    def elect(self, term: int | None = None) -> None:
        self.term = self.term + 1 if term is None else term
        self.leader_id, self.is_leader = NODE, True
        for callback in self.elected:
            callback(self.term)

    def resign(self, successor: int | None = None) -> None:
        self.leader_id, self.is_leader = successor, False
        for callback in self.resigned:
            callback()

    def propose(self, command: bytes, timeout_ms: float, on_done: Callable[..., None]) -> None:
        if not self.is_leader:
            on_done(None, DefinitelyNot("not the leader"))
            return
        fate = self.fate.pop(0) if self.fate else ""
        term = self.term

        def settle() -> None:
            if fate == "refused":
                on_done(None, DefinitelyNot("so the test decided"))
                return
            result = None
            if fate != "lost":
                self.log.append(command)
                result = self.shard.apply(command, len(self.log), term)
                for callback in self.applied:
                    callback(len(self.log))
            if fate in ("lost", "unknown"):
                on_done(None, OutcomeUnknown("so the test decided"))
            else:
                on_done(result, None)

        if self.held is not None:
            self.held.append(settle)
        else:
            asyncio.get_running_loop().call_soon(settle)

    def release(self) -> None:
        """Commit the held proposals."""
        held, self.held = self.held or [], None
        for settle in held:
            settle()


class Partitions:
    """The partitions of the cluster, with their leaders and their answers to markers."""

    def __init__(self) -> None:
        self.leaders: dict[tuple[str, int], int] = {}
        self.leader_epoch = 4
        self.errors: dict[tuple[str, int], list[int]] = {}  # of the next markers
        self.asked: list[tuple[int, TransactionMarker]] = []  # node, marker
        self.written: list[tuple[tuple[str, int], TransactionMarker]] = []
        self.gate: asyncio.Event | None = None
        self.down: set[int] = set()
        self.caught_up = 0

    def leadership_of(self, topic: str, index: int) -> tuple[int, int] | None:
        leader = self.leaders.get((topic, index), NODE)
        return None if leader is None else (leader, self.leader_epoch)

    async def catch_up(self) -> None:
        self.caught_up += 1

    async def write(self, node: int, request: WriteMarkers) -> WriteMarkersReply:
        if node in self.down:
            raise PeerUnavailable("down")
        self.asked += [(node, marker) for marker in request.markers]
        if self.gate is not None:
            await self.gate.wait()
        return WriteMarkersReply(tuple(self._errors(marker) for marker in request.markers))

    def _errors(self, marker: TransactionMarker) -> tuple[int, ...]:
        errors = []
        for partition in marker.partitions:
            due = self.errors.get(partition)
            error = due.pop(0) if due else 0
            if not error:
                self.written.append((partition, marker))
            errors.append(int(error))
        return tuple(errors)

    def epochs(self) -> list[tuple[tuple[str, int], int, bool]]:
        """Return (partition, producer epoch, is commit) of each written marker, in order."""
        return [(p, m.producer_epoch, m.is_commit) for p, m in self.written]


class Links:
    """A peer transport that delivers requests of markers to `Partitions`."""

    def __init__(self, partitions: Partitions) -> None:
        self.partitions = partitions
        self.handlers: dict[int, Callable[..., None]] = {}

    def on_request(self, kind: int, handler: Callable[..., None]) -> None:
        self.handlers[kind] = handler

    async def request(
        self, peer: int, kind: int, header: bytes, *, timeout_ms: int
    ) -> tuple[bytes, Sequence[Any]]:
        reply = await self.partitions.write(peer, decode_message(WriteMarkers, header))
        return encode_message(reply), []


class OneNode:
    """A transaction coordinator. This node leads all shards, unless `is_led` is False."""

    def __init__(self, shards: int = 1, *, is_led: bool = True, **settings: Any) -> None:
        loop = asyncio.get_running_loop()
        self.loop = loop
        self.wall_ms = 1_000_000
        self.advances = ClockAdvances()
        ticks = itertools.count()
        self.work = SlicedWork(lambda: next(ticks) * 0.003)  # a step in each turn
        self.connection_ids = ConnectionIds()
        self.next_id = 100
        self.serves_v2 = True
        self.passed: list[str] = []  # fault points
        self.id_failure: Exception | None = None
        self.partitions = Partitions()
        self.links = Links(self.partitions)
        self.shards = [TransactionShard() for _ in range(shards)]
        self.groups = [Group(shard) for shard in self.shards]
        self.settings = TransactionSettings(shard_count=shards, **settings)
        self.markers = MarkerSender(
            node_id=NODE,
            links=cast(PeerTransport, self.links),
            write_here=lambda request: self.partitions.write(NODE, request),
            leadership_of=self.partitions.leadership_of,
            catch_up=self.partitions.catch_up,
            work=self.work,
        )
        self.events = EventLog()
        leaders = ShardLeaders(
            node_id=NODE,
            shards=self.shards,
            raft_groups=cast(list[RaftGroup], self.groups),
            settings=self.settings,
            ports=LeaderPorts(
                wall_ms=lambda: self.wall_ms,
                advanced_since_ms=lambda moment_ms: self.advances.since_ms(moment_ms),
                next_producer_id=self._next_producer_id,
                markers=self.markers,
                fault_point=self.passed.append,
                events=self.events,
                work=self.work,
                serves_v2=lambda: self.serves_v2,
            ),
            connection_ids=self.connection_ids,
        )
        self.coordinators = TransactionCoordinators(leaders, cast(PeerTransport, self.links))
        if is_led:
            for group in self.groups:
                group.elect()

    async def _next_producer_id(self) -> int:
        if self.id_failure is not None:
            raise self.id_failure
        self.next_id += 1
        return self.next_id

    async def init(self, name: str = "id", timeout_ms: int = 60_000, **options: Any):
        return await self.coordinators.init_producer_id(name, timeout_ms, **options)

    async def add(self, who: Any, *partitions: tuple[str, int], name: str = "id", **options: Any):
        wanted = partitions or (("t", 0),)
        return await self.coordinators.add_partitions(
            name, who.producer_id, who.producer_epoch, wanted, **options
        )

    async def end(
        self,
        who: Any,
        is_commit: bool = True,
        *,
        v2: bool = False,
        name: str = "id",
        **options: Any,
    ):
        return await self.coordinators.end_transaction(
            name,
            who.producer_id,
            who.producer_epoch,
            is_commit=is_commit,
            bumps_epoch=v2,
            **options,
        )

    async def prepared(self) -> Any:
        """Return a producer with a transaction in the state PrepareCommit.

        The markers wait for `partitions.gate`.
        """
        self.partitions.gate = asyncio.Event()
        who = await self.init()
        await self.add(who)
        await self.end(who)
        return who

    def release_markers(self) -> None:
        assert self.partitions.gate is not None
        self.partitions.gate.set()

    def state(self, name: str = "id") -> str:
        record = self.shards[self.coordinators.shard_of(name)].get(name)
        return "" if record is None else record.state.kafka_name

    async def until_state(self, state: str, name: str = "id") -> None:
        await until(lambda: self.state(name) == state)
