"""A small cluster with real metadata and a model of the records.

The metadata is the real `ClusterState`. One copy is the committed state, and each node has a copy
that lags behind. The replication is the simplest that follows the protocol. A node appends if its
own copy names it as leader. A follower of the same leader epoch truncates its log to the common
part of the two logs, and then copies the leader's records. The high watermark rises to the offset
that the whole maximal ISR has, if the ISR has min.insync.replicas members. ISR changes are
proposed, delayed, lost and repeated.
"""

import random
from dataclasses import dataclass, field

from oncelog.coordinator.metadata.cluster_model import PartitionRegistration
from oncelog.coordinator.metadata.cluster_state import ClusterState
from oncelog.coordinator.metadata.commands import (
    AlterPartition,
    Command,
    CreateTopics,
    IsrProposal,
    NewTopic,
    RegisterBroker,
    SetClusterId,
    UnfenceBroker,
    encode_command,
)
from oncelog.coordinator.metadata.results import Result
from oncelog.wire.errors import ErrorCode

from .metadata_cluster import check_partition, topic_id

PARTITIONS = 2
TOPIC = "t"
REFUSALS = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST)


class Violation(AssertionError):
    """Raised if acknowledged records are lost, or if two different logs are acknowledged."""


@dataclass
class Rules:
    """The rules that leaders of the model follow. The defaults are the rules of the product."""

    strict_min_isr: bool = True  # KIP-966
    counts_pending: bool = True  # KIP-497
    unclean: bool = False
    faults: dict[str, float] | None = None  # only these, with these weights


@dataclass
class Term:
    """The state of a node as the leader of one partition in one leader epoch."""

    epoch: int
    epoch_start: int
    known: dict[int, tuple[int, int]] = field(default_factory=dict)  # node: log end, broker epoch
    pending: AlterPartition | None = None
    high_watermark: int = 0


@dataclass
class Node:
    node_id: int
    boot: int = 0
    directory: int = 0
    is_alive: bool = False
    lost: str = ""  # since its last registration: "records", "directory"
    broker_epoch: int = -1
    view: ClusterState = field(default_factory=ClusterState)
    applied: int = 0
    logs: list[list[int]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    terms: list[Term | None] = field(default_factory=lambda: [None] * PARTITIONS)


def boot_id(node: Node) -> str:
    return f"boot-{node.boot}"


class ModelCluster:
    """Nodes with their metadata and records. The seed determines all random choices."""

    def __init__(self, seed: int, *, nodes: int = 4, rules: Rules | None = None) -> None:
        self.random = random.Random(seed)
        self.rules = rules or Rules()
        self.state = ClusterState()
        self.log: list[bytes] = []
        self.in_flight: list[AlterPartition] = []
        self.sent: list[AlterPartition] = []
        self.committed: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.next_value = 0
        self.nodes = {node_id: Node(node_id) for node_id in range(1, nodes + 1)}
        defaults = {"min.insync.replicas": "2"}
        if self.rules.unclean:
            defaults["unclean.leader.election.enable"] = "true"
        self.commit(SetClusterId("model", defaults))
        for node in self.nodes.values():
            self.restart(node)
            self.commit(UnfenceBroker(node.node_id, node.broker_epoch))
        assignments = ((0, (1, 2, 3)), (1, (2, 3, 1)))
        self.commit(CreateTopics((NewTopic(TOPIC, topic_id(TOPIC), assignments=assignments),)))

    # -- the metadata log

    def commit(self, command: Command) -> Result:
        data = encode_command(command)
        self.log.append(data)
        result = self.state.apply(data, len(self.log), 1)
        for partition in self.partitions():
            check_partition(self.state, TOPIC, partition)
        return result

    def partitions(self) -> list[PartitionRegistration]:
        topic = self.state.topics.get(TOPIC)
        return topic.partitions if topic else []

    def learn(self, node: Node | None = None, count: int | None = None) -> None:
        """Let a node apply further entries of the metadata log, and act on them."""
        node = node or self.some_alive()
        if node is None:
            return
        for _ in range(count or self.random.choice((1, 2, 5, 100))):
            if node.applied == len(self.log):
                break
            node.applied += 1
            node.view.apply(self.log[node.applied - 1], node.applied, 1)
        for index in range(PARTITIONS):
            partition = node.view.partition(TOPIC, index)
            if partition is None:
                continue
            if node.node_id not in partition.replicas:
                node.logs[index], node.terms[index] = [], None
            self.take_up_or_drop(node, index, partition)

    def take_up_or_drop(self, node: Node, index: int, partition: PartitionRegistration) -> None:
        registered = node.view.brokers.get(node.node_id)
        leads = (
            partition.leader == node.node_id
            and registered is not None
            and registered.broker_epoch == node.broker_epoch
        )
        term = node.terms[index]
        if not leads:
            node.terms[index] = None
        elif term is None or term.epoch != partition.leader_epoch:
            node.terms[index] = Term(partition.leader_epoch, len(node.logs[index]))
            self.judge(node, index)
        elif term.pending and term.pending.changes[0].partition_epoch < partition.partition_epoch:
            term.pending = None
        if node.terms[index]:
            self.advance_high_watermark(node, index)

    # -- the data

    def produce(self) -> None:
        leaders = [
            (node, index)
            for node in self.nodes.values()
            for index in range(PARTITIONS)
            if node.is_alive and node.terms[index]
        ]
        if leaders:
            node, index = self.random.choice(leaders)
            self.next_value += 1
            node.logs[index].append(self.next_value)
            self.advance_high_watermark(node, index)

    def fetch(self) -> None:
        """Let a random follower fetch. It reports its log end, and copies some missing records."""
        index = self.random.randrange(PARTITIONS)
        follower = self.nodes[self.random.choice(self.partitions()[index].replicas)]
        partition = follower.view.partition(TOPIC, index) if follower.is_alive else None
        if partition is None or follower.node_id not in partition.replicas:
            return
        leader = self.nodes.get(partition.leader)
        term = leader.terms[index] if leader else None
        if leader is None or not leader.is_alive or term is None or leader is follower:
            return
        if term.epoch != partition.leader_epoch:
            return
        ours, theirs = follower.logs[index], leader.logs[index]
        common = 0
        while common < min(len(ours), len(theirs)) and ours[common] == theirs[common]:
            common += 1
        if common < len(ours):
            del ours[common:]
        else:
            registered = leader.view.live_brokers.get(follower.node_id, -1)
            if follower.broker_epoch >= max(
                term.known.get(follower.node_id, (0, -1))[1], registered
            ):
                term.known[follower.node_id] = (len(ours), follower.broker_epoch)
                self.advance_high_watermark(leader, index)
        ours.extend(theirs[len(ours) : len(ours) + self.random.randint(1, 3)])

    def advance_high_watermark(self, node: Node, index: int) -> None:
        term = node.terms[index]
        topic = node.view.topics[TOPIC]
        partition = topic.partitions[index]
        if term is None or partition.leader_epoch != term.epoch:
            return
        needed = node.view.effective_min_insync_replicas(topic, partition)
        if self.rules.strict_min_isr and len(partition.isr) < needed:
            return
        members = set(partition.isr)
        if term.pending and self.rules.counts_pending:
            members |= {member for member, _ in term.pending.changes[0].isr}
        log = node.logs[index]
        ends = [term.known.get(m, (0, -1))[0] for m in members if m != node.node_id]
        end = min([len(log), *ends])
        if end > term.high_watermark:
            term.high_watermark = end
            committed = self.committed[index]
            if log[: min(end, len(committed))] != committed[:end]:
                raise Violation(f"{log[:end]} and {committed} were both acknowledged")
            if end > len(committed):
                self.committed[index] = log[:end]
                for other in self.nodes.values():
                    self.judge(other, index)

    def judge(self, node: Node, index: int) -> None:
        """Raise Violation if the node leads the newest epoch without all acknowledged records.

        A leader of an older epoch is not checked, since it can acknowledge no record.
        """
        committed = self.committed[index]
        term = node.terms[index]
        if term is None or term.epoch != self.partitions()[index].leader_epoch:
            return
        if node.logs[index][: len(committed)] != committed:
            raise Violation(
                f"node {node.node_id} leads partition {index} in epoch "
                f"{node.view.partition(TOPIC, index)} with {node.logs[index]}, "
                f"but {committed} was acknowledged"
            )

    # -- ISR changes

    def propose(self) -> None:
        node = self.some_alive()
        index = self.random.randrange(PARTITIONS)
        term = node.terms[index] if node else None
        if node is None or term is None:
            return
        if term.pending:  # no answer yet: ask again
            self.in_flight.append(term.pending)
            return
        partition = node.view.topics[TOPIC].partitions[index]
        members = {m for m in partition.isr if m == node.node_id or self.random.random() < 0.8}
        outside = [m for m in partition.replicas if m not in partition.isr and m in term.known]
        for other in outside:
            end, broker_epoch = term.known[other]
            is_current = node.view.live_brokers.get(other) == broker_epoch
            if is_current and end >= max(term.high_watermark, term.epoch_start):
                members.add(other)
        if members == set(partition.isr):
            return
        epochs = {other: known[1] for other, known in term.known.items()}
        epochs[node.node_id] = node.broker_epoch
        for member in members:  # a member from the start that has not fetched in this term
            epochs.setdefault(member, node.view.brokers[member].broker_epoch)
        proposal = IsrProposal(
            topic_id(TOPIC),
            index,
            term.epoch,
            partition.partition_epoch,
            tuple((member, epochs[member]) for member in sorted(members)),
        )
        term.pending = AlterPartition(node.node_id, node.broker_epoch, (proposal,))
        self.in_flight.append(term.pending)
        self.sent.append(term.pending)

    def deliver(self) -> None:
        """Apply a random proposal to the metadata. It may arrive again later."""
        if self.in_flight:
            command = self.random.choice(self.in_flight[-8:])
            result = self.commit(command)
            if self.random.random() < 0.7:
                self.in_flight.remove(command)
            if self.random.random() < 0.8:
                self.hear(command, result)

    def hear(self, command: AlterPartition, result: Result) -> None:
        """Deliver the result of a proposal to its sender.

        The sender stops waiting for the change only after a refusal.
        """
        error = result.error or result.items[0].error
        for term in self.nodes[command.node_id].terms:
            if term and term.pending is command and error in REFUSALS:
                term.pending = None

    # -- nodes

    def restart(self, node: Node) -> None:
        register = RegisterBroker(
            node.node_id,
            len(self.log).to_bytes(16, "big"),
            boot_id(node),
            "127.0.0.1",
            9000 + node.node_id,
            directory_id=f"directory-{node.directory}".encode(),
        )
        node.broker_epoch = self.commit(register).broker_epoch
        node.lost = ""
        node.is_alive = True
        node.view = ClusterState()
        node.view.restore(self.state.snapshot())
        node.applied = len(self.log)
        node.terms = [None] * PARTITIONS

    def unfence(self) -> None:
        fenced = [
            node
            for node in self.nodes.values()
            if node.is_alive and self.state.brokers[node.node_id].is_fenced
        ]
        if fenced:
            node = self.random.choice(fenced)
            self.commit(UnfenceBroker(node.node_id, node.broker_epoch))

    def some_alive(self) -> Node | None:
        alive = [node for node in self.nodes.values() if node.is_alive]
        return self.random.choice(alive) if alive else None
