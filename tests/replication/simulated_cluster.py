"""A cluster in one process: real replication cores, simulated network, disks and controller.

Everything random comes from one seed. Faults: kill -9 and return (quick or late), power cut of
one node (its log loses a tail), links cut in one direction, nodes cut off from the controller
(they lead on with stale metadata), metadata that arrives late, lost ISR requests and answers.

Judged all the time: what a leader's high watermark passed never changes, every new leader has
all of it, and no follower's high watermark goes beyond it. At the end all faults are healed
and every replica must be equal, in the ISR, and fully committed.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from oncelog.replication.follower import Append, PartitionFollower, StartAt, TruncateTo
from oncelog.replication.follower_progress import PeerView
from oncelog.replication.follower_session import FollowerSession, FollowerSlot
from oncelog.replication.leader import PartitionLeader
from oncelog.replication.messages import (
    ReplicaFetchRequest,
    SlotAnswer,
    decode_fetch_request,
    decode_fetch_response,
    encode_fetch_request,
    encode_fetch_response,
)
from oncelog.replication.replica_server import Progress, ReplicaServer
from oncelog.wire.errors import ErrorCode

from .memory_log import Entry, MemoryLog
from .simulated_controller import Controller, Key, Metadata, Record

LAG_TIME_MAX_MS = 60
POLL_WAIT_MS = 50


class Violation(AssertionError): ...


@dataclass
class Host:
    """A partition on one node."""

    log: MemoryLog
    leader_epoch: int = -1
    partition_epoch: int = -1
    leader: PartitionLeader | None = None
    follower: PartitionFollower | None = None
    slot: FollowerSlot | None = None


@dataclass
class Rules:
    """The cores under test; planted bugs replace some."""

    leader: type[PartitionLeader] = PartitionLeader
    truncates: bool = True
    checks_broker_epoch: bool = True


@dataclass
class Simulation:
    """Time, network, nodes and the judge."""

    seed: int
    rules: Rules = field(default_factory=Rules)
    min_insync_replicas: int = 2
    now_ms: int = 1000
    isr_answer_chance: float = 0.8

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.scheduled = 0
        self.link_free_ms: dict[tuple[int, int], int] = {}
        self.cut: set[tuple[int, int]] = set()
        self.isolated: set[int] = set()  # from the controller
        self.uninformed: set[int] = set()  # no metadata reaches them
        self.committed_at_election: dict[tuple[Key, int], int] = {}
        self.controller = Controller(
            self.min_insync_replicas, self.note_election, self.rules.checks_broker_epoch
        )
        self.committed: dict[Key, list[Entry]] = {}
        self.mending: set[int] = set()  # lost power, not yet back in every ISR
        self.values = 0
        self.elections = 0
        self.nodes = {n: Node(self, n) for n in (1, 2, 3)}
        for node in self.nodes.values():
            node.start()
        for i in range(2):
            self.controller.create((bytes([i]) * 16, i), (1, 2, 3) if i else (2, 3, 1))

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.scheduled += 1
        heapq.heappush(self.events, (self.now_ms + delay_ms, self.scheduled, action))

    def run(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self.events and self.events[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self.events)
            action()
        self.now_ms = end_ms

    def run_until(self, condition: Callable[[], bool], at_most_ms: int) -> bool:
        """Go on until it holds; whether it did."""
        end_ms = self.now_ms + at_most_ms
        while not condition() and self.now_ms < end_ms:
            self.run(1)
        return condition()

    def deliver(self, source: "Node", target: "Node", action: Callable[[], None]) -> None:
        """In order on each link; lost when cut, or when the receiving process has changed.

        What a process sent before it died still arrives.
        """
        link = (source.node_id, target.node_id)
        if link in self.cut:
            return
        arrival = max(self.now_ms + self.random.randint(0, 6), self.link_free_ms.get(link, 0))
        self.link_free_ms[link] = arrival
        life = target.life

        def arrive() -> None:
            if life == target.life and target.is_alive:
                action()

        self.at(arrival - self.now_ms, arrive)

    def judge_commit(self, key: Key, log: MemoryLog, high_watermark: int) -> None:
        history = self.committed.setdefault(key, [])
        for entry in log.entries[: min(len(history), high_watermark)]:
            if entry != history[entry.offset]:
                raise Violation(f"committed {history[entry.offset]} became {entry}")
        history += log.entries[len(history) : high_watermark]

    def note_election(self, key: Key, leader_epoch: int) -> None:
        self.elections += 1
        self.committed_at_election[key, leader_epoch] = len(self.committed.get(key, []))

    def judge_new_leader(self, key: Key, record: Record, node_id: int, log: MemoryLog) -> None:
        """It has all that was committed when it was elected; it may learn of it much later."""
        promised = self.committed_at_election.get((key, record.leader_epoch), 0)
        history = self.committed.get(key, [])[:promised]
        if log.entries[: len(history)] != history:
            raise Violation(f"node {node_id} leads without all committed records of {key[1]}")

    def produce(self) -> None:
        for node in self.nodes.values():
            for key, host in node.hosts.items():
                leads = node.is_alive and host.leader and not host.leader.is_under_min_isr
                if leads and self.random.random() < 0.6:
                    self.values += 1
                    node.append(key, host, self.values)

    def may_lose_power(self, node: "Node") -> bool:
        """One at a time: who lost power before is in every ISR again, and others are in."""
        isrs = [set(record.isr) for record in self.controller.partitions.values()]
        self.mending = {
            n for n in self.mending if self.nodes[n].lost_power or not all(n in isr for isr in isrs)
        }
        return node.is_alive and not self.mending and all(isr - {node.node_id} for isr in isrs)

    def heal(self) -> None:
        self.cut.clear()
        self.isolated.clear()
        self.uninformed.clear()
        for node in self.nodes.values():
            if not node.is_alive:
                node.start()

    def judge_end(self) -> None:
        for key, record in self.controller.partitions.items():
            leader = self.nodes[record.leader].hosts[key]
            for node_id in record.replicas:
                log = self.nodes[node_id].hosts[key].log
                if log.entries != leader.log.entries:
                    raise Violation(f"replica {node_id} of {key[1]} did not converge")
                if log.high_watermark != log.log_end_offset:
                    raise Violation(f"replica {node_id} of {key[1]}: high watermark stands still")
            if set(record.isr) != set(record.replicas):
                raise Violation(f"{key[1]}: the ISR stays {record.isr}")


class Node:
    def __init__(self, simulation: Simulation, node_id: int) -> None:
        self.simulation = simulation
        self.node_id = node_id
        self.disk: dict[Key, MemoryLog] = {}
        self.life = 0
        self.is_alive = False
        self.lost_power = False

    # -- life

    def start(self) -> None:
        sim = self.simulation
        self.life += 1
        self.is_alive = True
        self.peers = PeerView()
        self.hosts: dict[Key, Host] = {}
        self.sessions: dict[int, FollowerSession] = {}
        self.broker_epoch = sim.controller.register(self.node_id, self.lost_power)
        self.lost_power = False
        self.seen = len(sim.controller.history) - 1
        for log in self.disk.values():
            log.high_watermark = sim.random.randint(0, log.high_watermark)  # an old checkpoint
        self.server = ReplicaServer(
            self.hosts.get,
            self.peers,
            broker_epoch=self.broker_epoch,
            response_bytes_max=sim.random.choice([60, 300, 3000]),
        )
        self.take_metadata(sim.controller.history[self.seen])
        self.every(5, self.tick)
        self.every(15, self.heartbeat)
        self.every(3, self.poll_metadata)

    def every(self, interval_ms: int, action: Callable[[], None]) -> None:
        life = self.life

        def again() -> None:
            if self.is_alive and self.life == life:
                action()
                jitter = self.simulation.random.randint(0, interval_ms)
                self.simulation.at(interval_ms + jitter, again)

        self.simulation.at(self.simulation.random.randint(0, interval_ms), again)

    def kill(self, power: bool = False) -> None:
        sim = self.simulation
        self.is_alive = False
        self.life += 1
        if power:
            self.lost_power = True
            sim.mending.add(self.node_id)
            for log in self.disk.values():
                log.truncate_to(sim.random.randint(log.high_watermark // 2, log.log_end_offset))
        epoch = self.broker_epoch
        sim.at(sim.random.randint(5, 60), lambda: sim.controller.fence(self.node_id, epoch))

    def heartbeat(self) -> None:
        controller = self.simulation.controller
        if self.node_id in self.simulation.isolated:
            controller.fence(self.node_id, self.broker_epoch)
        elif controller.epochs[self.node_id] == self.broker_epoch:
            controller.unfence(self.node_id, self.broker_epoch)

    def poll_metadata(self) -> None:
        history = self.simulation.controller.history
        if self.node_id in self.simulation.isolated | self.simulation.uninformed:
            return
        if self.simulation.random.random() < 0.7:
            while self.seen < len(history) - 1:
                self.seen += 1
                self.take_metadata(history[self.seen])
                if self.simulation.random.random() < 0.2:
                    break

    # -- metadata

    def take_metadata(self, metadata: Metadata) -> None:
        now = self.simulation.now_ms
        self.peers.live = metadata.live
        for key, record in metadata.partitions.items():
            host = self.hosts.get(key)
            if host is None:
                log = self.disk.setdefault(key, MemoryLog())
                host = self.hosts[key] = Host(log)
            if record.leader_epoch > host.leader_epoch:
                host.leader_epoch = record.leader_epoch
                self.change_leader(key, host, record.leader, record)
                self.note(self.server.partition_changed(key, now))
            elif host.leader is not None and record.partition_epoch > host.partition_epoch:
                raised = host.leader.metadata_applied(
                    isr=record.isr, partition_epoch=record.partition_epoch, now_ms=now
                )
                self.raise_high_watermark(key, raised)
            host.partition_epoch = record.partition_epoch
        self.pump()
        self.respond()

    def change_leader(self, key: Key, host: Host, leader_id: int, record: Record) -> None:
        sim = self.simulation
        for session in self.sessions.values():
            session.remove(key)
        host.leader = host.follower = host.slot = None
        if leader_id == self.node_id:
            sim.judge_new_leader(key, record, self.node_id, host.log)
            host.log.assign_epoch(record.leader_epoch)
            host.leader = sim.rules.leader(
                node_id=self.node_id,
                leader_epoch=record.leader_epoch,
                partition_epoch=record.partition_epoch,
                replicas=record.replicas,
                isr=record.isr,
                min_insync_replicas=sim.min_insync_replicas,
                log=host.log,
                log_end_offset=host.log.log_end_offset,
                now_ms=sim.now_ms,
                lag_time_max_ms=LAG_TIME_MAX_MS,
                broker_epoch=self.broker_epoch,
                peers=self.peers,
            )
            self.raise_high_watermark(key, host.leader.tick(sim.now_ms))
        elif leader_id >= 0:
            host.follower = follower = PartitionFollower(leader_id, record.leader_epoch)
            session = self.sessions.setdefault(leader_id, FollowerSession())
            position = follower.fetch_position(host.log)
            host.slot = session.add(key, record.leader_epoch, position, context=host)

    # -- leading

    def append(self, key: Key, host: Host, value: int) -> None:
        assert host.leader is not None
        end = host.log.append(host.leader_epoch, value)
        raised = host.leader.appended(end, self.simulation.now_ms)
        self.server.appended(key)
        self.raise_high_watermark(key, raised)
        self.respond()

    def note(self, progress: Progress) -> None:
        for key, offset in progress.high_watermarks:
            self.raise_high_watermark(key, offset)
        for key in progress.may_join_isr:
            self.propose_isr(key, self.hosts[key])

    def raise_high_watermark(self, key: Key, offset: int | None) -> None:
        if offset is not None:
            log = self.hosts[key].log
            log.advance_high_watermark(offset)
            self.simulation.judge_commit(key, log, log.high_watermark)
            self.server.watermarks_moved(key)

    def propose_isr(self, key: Key, host: Host) -> None:
        if host.leader is not None:
            change = host.leader.next_isr_change(self.simulation.now_ms)
            if change is not None:
                self.send_isr(key, host.leader, change)

    def send_isr(self, key: Key, leader: PartitionLeader, change) -> None:
        sim = self.simulation
        life = self.life

        def apply() -> None:
            if self.node_id not in sim.isolated:
                error, record = sim.controller.alter(key, self.node_id, self.broker_epoch, change)
                if sim.random.random() < sim.isr_answer_chance:
                    sim.at(sim.random.randint(0, 20), lambda: answer(error, record))
                    return
            sim.at(30, lambda: answer(ErrorCode.REQUEST_TIMED_OUT, None))

        def answer(error: int, record) -> None:
            if not self.is_alive or self.life != life or self.hosts[key].leader is not leader:
                return
            if not error:
                raised = leader.isr_change_succeeded(
                    change, record.isr, record.partition_epoch, sim.now_ms
                )
                self.raise_high_watermark(key, raised)
            elif (again := leader.isr_change_failed(change, error)) is not None:
                self.send_isr(key, leader, again)

        sim.at(sim.random.randint(0, 15), apply)

    def tick(self) -> None:
        for key, host in self.hosts.items():
            if host.leader is not None:
                self.raise_high_watermark(key, host.leader.tick(self.simulation.now_ms))
                if self.simulation.random.random() < 0.3:
                    self.propose_isr(key, host)
        self.respond()
        self.pump()

    def respond(self) -> None:
        for due in self.server.take_responses(self.simulation.now_ms):
            follower = self.simulation.nodes[due.follower]
            header, frames = encode_fetch_response(due.response)
            arrive = partial(follower.receive, self, due.context, header, frames)
            self.simulation.deliver(self, follower, arrive)

    # -- following

    def pump(self) -> None:
        sim = self.simulation
        for leader_id, session in self.sessions.items():
            while session.should_send(sim.now_ms):
                request = session.next_request(
                    broker_epoch=self.broker_epoch, max_wait_ms=POLL_WAIT_MS, max_bytes=3000
                )
                leader = sim.nodes[leader_id]
                header = encode_fetch_request(request)
                sim.deliver(self, leader, partial(leader.serve, self.node_id, header, request))
                sim.at(POLL_WAIT_MS + 40, partial(self.late, session, request, self.life))

    def late(self, session: FollowerSession, request: ReplicaFetchRequest, life: int) -> None:
        if self.is_alive and self.life == life:
            session.on_failure(request)
            self.pump()

    def serve(self, follower_id: int, header: bytes, request: ReplicaFetchRequest) -> None:
        now = self.simulation.now_ms
        decoded = decode_fetch_request(header)
        self.note(self.server.on_request(follower_id, decoded, request, now))
        self.respond()

    def receive(self, leader: "Node", request, header: bytes, frames) -> None:
        session = self.sessions.get(leader.node_id)
        if session is None:
            return
        response = decode_fetch_response(header, frames)
        for slot, answer in session.on_response(request, response) or ():
            self.follow(session, slot, answer)
        self.pump()

    def follow(self, session: FollowerSession, slot: FollowerSlot, answer: SlotAnswer) -> None:
        host: Host = slot.context  # type: ignore[assignment]
        follower, log = host.follower, host.log
        if host.slot is not slot or follower is None:
            return
        match action := follower.on_response(answer, log):
            case Append():
                log.append_as_follower(action.records)
                log.advance_high_watermark(action.high_watermark)
                committed = self.simulation.committed.get(slot.key, [])
                if log.entries[: log.high_watermark] != committed[: log.high_watermark]:
                    raise Violation(f"node {self.node_id} shows what is not committed")
                if action.records:
                    session.moved(slot, follower.fetch_position(log))
            case TruncateTo():
                if action.is_below_high_watermark:
                    raise Violation(f"node {self.node_id} must cut committed records")
                if self.simulation.rules.truncates:
                    log.truncate_to(action.offset)
                else:  # the planted bug: believe that the tail is fine
                    log.epochs.append((host.leader_epoch, log.log_end_offset))
                session.moved(slot, follower.fetch_position(log))
            case StartAt():
                log.truncate_fully_and_start_at(action.offset)
                session.moved(slot, follower.fetch_position(log))
            case _:
                session.retry(slot, self.simulation.now_ms + 10)
