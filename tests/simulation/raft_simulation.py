"""A whole Raft cluster in one process under virtual time, and the check of its invariants.

Some invariants are checked all the time. A node sends one vote in a term, and a term has one
leader. Each index has the same command on all nodes, also after restarts. Applied entries are never
reverted. A serving leader has every acknowledged command.

Other invariants are checked at the end, after all faults. Each acknowledged command is present
once, and refused commands are absent. Each submitted command got an answer, all nodes agree, and
each group accepts commands.
"""

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack

from oncelog.coordinator.raft import DefinitelyNot, RaftEngine, RaftGroup, RaftSettings
from oncelog.coordinator.raft.library import LEADER
from oncelog.coordinator.raft.messages import Vote, VoteRequest, decode_frame
from oncelog.runtime.sliced_work import Steps

from .virtual_world import Network, NodeExecutor, NodeLoop, NodeWork, VirtualDisk, World

logging.getLogger("oncelog.coordinator.raft").setLevel(logging.CRITICAL + 1)

SETTINGS = RaftSettings(
    command_bytes_max=4_096,
    append_bytes_max=1_500,
    in_flight_bytes_max=6_000,
    segment_bytes=16 << 10,
    segments_max=3,
    snapshot_entries=30,
    snapshot_log_bytes=1 << 20,
    retained_entries=8,
    snapshot_chunk_bytes=700,
    apply_batch_max=16,
)
AFTER_A_JOB_S = 0.01
AHEAD_S = 0.037  # of a node's clock before the next one's: heartbeats do not coincide
NOTICED_S = (0.003, 0.3)  # a live kernel resets connections at once


class Violation(BaseException):
    """A violated invariant.

    It is a BaseException, since the Raft engine catches each Exception.
    """


@dataclass
class History:
    """The observed votes, leaders, applied entries and answers, over all nodes and restarts."""

    applied: dict[tuple[int, int], tuple[int, bytes]] = field(default_factory=dict)
    leaders: dict[tuple[int, int], int] = field(default_factory=dict)
    votes: dict[tuple[int, int, int], int] = field(default_factory=dict)  # as they were sent
    submitted: set[bytes] = field(default_factory=set)
    acknowledged: set[bytes] = field(default_factory=set)
    refused: set[bytes] = field(default_factory=set)
    unknown: set[bytes] = field(default_factory=set)


class Machine:
    """A state machine that lists its commands, and checks the order of the calls it gets."""

    def __init__(self, group_id: int, history: History) -> None:
        self.group_id, self._history = group_id, history
        self.commands: list[bytes] = []
        self.last_index = 0

    def apply(self, command: bytes, index: int, term: int) -> int:
        if index <= self.last_index:
            raise Violation(f"entry {index} applied after {self.last_index}")
        self.last_index = index
        known = self._history.applied.setdefault((self.group_id, index), (term, command))
        if known != (term, command):
            raise Violation(f"entry {index}: {known} here, {(term, command)} there")
        self.commands.append(command)
        return len(self.commands)

    def snapshot_steps(self) -> Steps[list[bytes]]:
        return self._steps(bytes(msgpack.packb([self.last_index, self.commands]) or b""))

    def restore_steps(self, snapshot: bytes | memoryview) -> Steps[None]:
        yield from self._steps(b"")
        self.last_index, self.commands = msgpack.unpackb(snapshot)

    @staticmethod
    def _steps(data: bytes) -> Steps[list[bytes]]:
        for _ in range(4):
            yield
        half = len(data) // 2
        return [data[:half], data[half:]]


@dataclass
class Node:
    engine: RaftEngine
    loop: NodeLoop
    executor: NodeExecutor
    machines: dict[int, Machine]


class Cluster:
    """A simulated cluster of the nodes 1 to `size`, each with `groups` Raft groups."""

    def __init__(
        self, seed: int, size: int = 3, groups: int = 2, settings: RaftSettings = SETTINGS
    ) -> None:
        self.world = World(seed)
        self.random = self.world.random
        self.ids = list(range(1, size + 1))
        self.groups = range(groups)
        self.settings = settings
        self.history = History()
        self.network = Network(self.world, self._deliver)
        self.disks = {i: VirtualDisk(self.random) for i in self.ids}
        self.nodes: dict[int, Node] = {}
        self.fatal: list[str] = []
        self._submitters: dict[bytes, Node] = {}
        self._count = 0
        self._is_healed = False
        for i in self.ids:
            self.start(i)

    # ---- faults

    def start(self, i: int) -> None:
        disk, loop = self.disks[i], NodeLoop(self.world, ahead_s=AHEAD_S * i)
        executor = NodeExecutor(self.world, loop, disk)
        self._count += 1
        engine = RaftEngine(
            node_id=i,
            voters=self.ids,
            directory=Path("/nowhere"),
            send=lambda peer, frame: self._send(i, peer, frame),
            loop=loop,  # type: ignore[arg-type]
            executor=executor,  # type: ignore[arg-type]
            work=NodeWork(self.world, loop),  # type: ignore[arg-type]
            settings=self.settings,
            random=random.Random(self.random.getrandbits(64)),
            disk=disk,
            on_fatal=lambda error: self.fatal.append(f"node {i}: {error!r}"),
        )
        machines = {g: Machine(g, self.history) for g in self.groups}
        for g in self.groups:
            group = engine.add_group(g, machines[g], preferred_leader=self.ids[g % len(self.ids)])
            group.on_elected(lambda term, g=g: self._check_serving(i, g))
        self.nodes[i] = Node(engine, loop, executor, machines)
        self.world.note("start", i)
        engine.recover()
        engine.begin()
        for j in self.nodes:
            if j != i:
                self.world.at(self.world.now + 0.01, self._link, j, i, True)

    def crash(self, i: int, *, power: bool = False, wipe: bool = False) -> None:
        node = self.nodes.pop(i)
        self.world.note("crash", i, power, wipe)
        node.loop.is_alive = False
        node.executor.crash()
        self.disks[i].crash(power=power)
        if wipe:
            self.disks[i].wipe()
        noticed_s = self.random.choice(NOTICED_S)
        for j in self.nodes:
            if self.random.random() < 0.7:
                delay = self.random.uniform(0, noticed_s)
                self.world.at(self.world.now + delay, self._link, j, i, False)

    def crash_after(self, i: int, jobs: int, *, power: bool, down_s: float) -> None:
        """Crash the process of node `i` soon after its disk has done `jobs` further jobs.

        The process restarts after `down_s`. Messages that it has sent still arrive.
        """
        node, delay = self.nodes[i], self.random.uniform(0, AFTER_A_JOB_S)

        def die() -> None:
            if self.nodes.get(i) is node and not self._is_healed:
                self.crash(i, power=power)
                self.world.at(self.world.now + down_s, come_back)

        def come_back() -> None:
            if i not in self.nodes:
                self.start(i)

        node.executor.jobs_left = jobs
        node.executor.on_last_job = lambda: self.world.at(self.world.now + delay, die)

    def heal(self) -> None:
        self._is_healed = True
        self.network.cut.clear()
        self.network.loss = self.network.repetition = self.network.disorder = 0.0
        self.network.delay_max = 0.002
        for i in self.ids:
            if i not in self.nodes:
                self.start(i)

    def all_vote(self) -> bool:
        return len(self.nodes) == len(self.ids) and all(
            group.status().is_voter for _, group in self._all_groups()
        )

    # ---- clients

    def submit(self, i: int, g: int, size: int = 40, timeout_ms: float = 2_000) -> bytes:
        history = self.history
        self._count += 1
        command = b"%d-%d-%d:" % (g, i, self._count)
        command += b"x" * max(0, size - len(command))
        history.submitted.add(command)
        deadline = self.world.now + timeout_ms / 1_000 + 1.0
        node = self._submitters[command] = self.nodes[i]

        def done(result: Any, error: Exception | None) -> None:
            if command in history.acknowledged | history.refused | history.unknown:
                raise Violation("two outcomes")
            if error is None:
                history.acknowledged.add(command)
                if node.machines[g].commands[result - 1] != command:
                    raise Violation("the result is another command's")
            elif isinstance(error, DefinitelyNot):
                history.refused.add(command)
            else:
                history.unknown.add(command)
            if self.world.now > deadline:
                raise Violation("an outcome came after its time")

        node.engine.groups[g].propose(command, timeout_ms, done)
        return command

    def leader(self, g: int) -> int | None:
        for i, node in self.nodes.items():
            if node.engine.groups[g].is_leader:
                return i
        return None

    def led_by(self, g: int = 0) -> int:
        """Return the leader of a group. Raises AssertionError without a leader."""
        leader = self.leader(g)
        assert leader is not None
        return leader

    def isolate(self, i: int) -> None:
        self.network.cut |= {(a, b) for a in self.ids for b in self.ids if i in (a, b)}

    def leaders_settled(self) -> bool:
        return all(self.leader(g) is not None for g in self.groups)

    # ---- running and checking

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        def check() -> bool:
            self.check()
            return until is not None and until()

        reached = self.world.run(seconds, check)
        return reached if until is not None else True

    def check(self) -> None:
        if self.fatal:
            raise Violation(self.fatal[0])
        for i, node in self.nodes.items():
            for g, group in node.engine.groups.items():
                core = group._core
                if core.state == LEADER:
                    known = self.history.leaders.setdefault((g, core.term), i)
                    if known != i:
                        raise Violation(f"group {g} has two leaders in term {core.term}")

    def check_end(self, seconds: float = 30.0) -> None:
        """End all faults, wait until the cluster is stable, and check the invariants of the end.

        Raises Violation if one does not hold.
        """
        self.heal()
        if not self.run(seconds, lambda: self.all_vote() and self.leaders_settled()):
            raise Violation(f"no leader, or no vote, {seconds} s after healing: {self.describe()}")
        last = {}

        def all_acknowledged() -> bool:
            for g in self.groups:
                leader = self.leader(g)
                if leader is not None and last.get(g) not in self.history.acknowledged:
                    waits = g in last and last[g] not in (
                        self.history.refused | self.history.unknown
                    )
                    if not waits:
                        last[g] = self.submit(leader, g)
            return all(last.get(g) in self.history.acknowledged for g in self.groups)

        if not self.run(seconds, all_acknowledged):
            raise Violation(f"a healed cluster takes no command: {self.describe()}")
        self.run(4.0)
        history = self.history
        answered = history.acknowledged | history.refused | history.unknown
        for g in self.groups:
            lists = [self.nodes[i].machines[g].commands for i in self.ids]
            if any(commands != lists[0] for commands in lists):
                raise Violation(f"group {g} differs: {[len(c) for c in lists]} {self.describe()}")
            if len(set(lists[0])) != len(lists[0]):
                raise Violation("a command was applied twice")
            present = set(lists[0])
            mine = {c for c in history.acknowledged if c.startswith(b"%d-" % g)}
            if mine - present:
                raise Violation(f"{len(mine - present)} acknowledged commands of {g} are lost")
            if history.refused & present:
                raise Violation("a command is there that was definitely not")
        alive = {id(node) for node in self.nodes.values()}
        for command in history.submitted - answered:
            if id(self._submitters[command]) in alive:
                raise Violation(f"no outcome for {command!r}")

    def describe(self) -> str:
        return " | ".join(
            f"{i}/{group.group_id} {group.status()[:7]}" for i, group in self._all_groups()
        )

    # ---- inside

    def _all_groups(self) -> list[tuple[int, RaftGroup]]:
        return [(i, g) for i, node in self.nodes.items() for g in node.engine.groups.values()]

    def _send(self, source: int, target: int, frame: bytes) -> bool:
        self.world.note("send", source, target, frame)
        for g, message in decode_frame(frame):
            if isinstance(message, Vote):
                self._check_vote(g, message.term, source, target)
            elif isinstance(message, VoteRequest):
                self._check_vote(g, message.term, source, source)
        return self.network.send(source, target, frame)

    def _check_vote(self, g: int, term: int, voter: int, candidate: int) -> None:
        known = self.history.votes.setdefault((g, term, voter), candidate)
        if known != candidate:
            raise Violation(f"node {voter} votes for {known} and {candidate} in {g}, term {term}")

    def _deliver(self, source: int, target: int, frame: bytes) -> None:
        node = self.nodes.get(target)
        if node is not None:
            node.engine.receive(source, frame)

    def _link(self, i: int, peer: int, up: bool) -> None:
        node = self.nodes.get(i)
        if node is not None and up == (peer in self.nodes):
            (node.engine.peer_up if up else node.engine.peer_down)(peer)

    def _check_serving(self, i: int, g: int) -> None:
        mine = {c for c in self.history.acknowledged if c.startswith(b"%d-" % g)}
        lost = mine - set(self.nodes[i].machines[g].commands)
        if lost:
            self.fatal.append(f"node {i} serves group {g} without {len(lost)} acknowledged")


def started(seed: int = 1, **options: Any) -> tuple[Cluster, int]:
    """Return a cluster with a leader, and the leader's node id.

    By default the cluster has three nodes and one Raft group.
    """
    cluster = Cluster(seed, **{"size": 3, "groups": 1, **options})
    assert cluster.run(10, cluster.leaders_settled)
    return cluster, cluster.led_by()
