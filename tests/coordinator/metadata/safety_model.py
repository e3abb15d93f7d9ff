"""A model that searches for elections which lose acknowledged records (see `model_cluster`).

Nodes die, are wrongly thought dead, and return at once or late, alone or all together. Sometimes a
node loses power and with it a random part of its log, or all lose power with synced logs. A node's
data directory is replaced by an empty one. Proposals arrive late, twice, and just after a failure
or restart of a proposed ISR member.

Each new leader must have all records below the high watermark of any leader before.

The model loses data only as far as the guarantee covers. One node at a time loses data, with
min.insync.replicas of two or more, while another member of the ISR or ELR has the data.
"""

from oncelog.coordinator.metadata.cluster_model import PartitionRegistration
from oncelog.coordinator.metadata.commands import (
    BROKER_RESOURCE,
    PREFERRED,
    SET,
    AlterConfigs,
    AlterPartitionReassignments,
    BeginControlledShutdown,
    ConfigOperation,
    ElectLeaders,
    FenceBroker,
    Reassignment,
    ResourceConfigs,
    UnfenceBroker,
)

from .model_cluster import PARTITIONS, TOPIC, ModelCluster, Node, Rules, Violation, boot_id


class SafetyModel(ModelCluster):
    def __init__(self, seed: int, *, nodes: int = 4, rules: Rules | None = None) -> None:
        super().__init__(seed, nodes=nodes, rules=rules)
        self.progress = [
            (self.produce, 20),
            (self.fetch, 120),
            (self.learn, 60),
            (self.propose, 25),
            (self.deliver, 25),
            (self.notice, 8),
            (self.come_back, 12),
            (self.unfence, 20),
        ]
        self.faults = [
            (self.die, 2),
            (self.lose_power, 1),
            (self.lose_directory, 0.3),
            (self.everything_dies, 0.1),
            (self.everything_loses_power, 0.3),
            (self.flicker, 1),
            (self.suspect, 1),
            (self.interfere, 3),
            (self.replay, 3),
            (self.depose, 2),
            (self.set_min_isr, 1),
            (self.shut_down, 0.3),
            (self.prefer, 1),
            (self.reassign, 1),
        ]

    def run(self, steps: int) -> None:
        for node in self.nodes.values():
            self.learn(node, len(self.log))
        # Swarm testing: each run has its own mixture, so some have much of one fault and no other.
        faults = [(a, w * self.random.choice((0, 0.3, 1, 4))) for a, w in self.faults]
        if self.rules.faults is not None:
            faults = [(a, self.rules.faults.get(a.__name__, 0)) for a, _ in self.faults]
        actions, weights = zip(*self.progress, *faults, strict=True)
        for action in self.random.choices(actions, weights, k=steps):
            action()
        self.heal()

    # -- events around ISR changes

    def interfere(self) -> None:
        """Let a proposed ISR member restart or be fenced, just before the proposal arrives."""
        if not self.in_flight:
            return
        command = self.random.choice(self.in_flight[-8:])
        node_id, _ = self.random.choice(command.changes[0].isr)
        node = self.nodes[node_id]
        fault = self.random.random()
        if fault < 0.5:
            self.flicker(node)
        elif node.is_alive:
            self.commit(FenceBroker(node_id, node.broker_epoch))
        self.hear(command, self.commit(command))
        if node.is_alive and self.random.random() < 0.5:
            self.commit(UnfenceBroker(node_id, node.broker_epoch))

    def replay(self) -> None:
        """Deliver an earlier proposal of the current leader epoch again."""
        known = [
            command
            for command in self.sent[-40:]
            if command.changes[0].leader_epoch
            == self.partitions()[command.changes[0].partition].leader_epoch
        ]
        if known:
            command = self.random.choice(known)
            self.commit(command)
            if self.random.random() < 0.3:
                self.depose(self.partitions()[command.changes[0].partition])

    def depose(self, partition: PartitionRegistration | None = None) -> None:
        """Fence the leader of a partition, which has died or is only thought dead."""
        partition = partition or self.random.choice(self.partitions())
        leader = self.nodes.get(partition.leader)
        if leader is not None:
            if self.random.random() < 0.5:
                self.die(leader)
            epoch = self.state.brokers[leader.node_id].broker_epoch
            self.commit(FenceBroker(leader.node_id, epoch))

    # -- life and death

    def die(self, node: Node | None = None) -> None:
        node = node or self.some_alive()
        if node is not None:
            node.is_alive = False
            node.terms = [None] * PARTITIONS

    def everything_dies(self) -> None:
        for node in self.nodes.values():
            self.die(node)

    def flicker(self, node: Node | None = None) -> None:
        """Let a node restart and be unfenced before any other event, often after a power cut."""
        node = node or self.some_alive()
        if node is not None:
            if self.random.random() < 0.7:
                self.lose_power(node)
            self.die(node)
            self.restart(node)
            self.commit(UnfenceBroker(node.node_id, node.broker_epoch))

    def lose_power(self, node: Node | None = None) -> None:
        node = node or self.random.choice(list(self.nodes.values()))
        if self.may_lose_data(node) and not self.all_lost_power():
            node.logs = [log[: self.random.randint(0, len(log))] for log in node.logs]
            self.die(node)
            node.lost = "records"
            node.boot += 1

    def lose_directory(self) -> None:
        node = self.random.choice(list(self.nodes.values()))
        if self.may_lose_data(node):
            node.logs = [[] for _ in node.logs]
            self.die(node)
            node.lost = "directory"
            node.directory += 1

    def may_lose_data(self, node: Node) -> bool:
        """Return whether the guarantee still holds if this node now loses its data."""
        return (
            self.min_isr() >= 2
            and not any(other.lost for other in self.nodes.values())
            and all({node.node_id} != holders(partition) for partition in self.partitions())
        )

    def everything_loses_power(self) -> None:
        """Let all nodes lose power at once, if all logs are synced."""
        if all(node.lost != "records" for node in self.nodes.values()):
            self.everything_dies()
            for node in self.nodes.values():
                node.boot += 1

    def all_lost_power(self) -> bool:
        """Return whether any node has lost power and has not registered again since."""
        return any(
            self.state.brokers[node.node_id].boot_id != boot_id(node)
            for node in self.nodes.values()
        )

    def notice(self) -> None:
        dead = [
            node
            for node in self.nodes.values()
            if not node.is_alive and not self.state.brokers[node.node_id].is_fenced
        ]
        if dead:
            node_id = self.random.choice(dead).node_id
            self.commit(FenceBroker(node_id, self.state.brokers[node_id].broker_epoch))

    def suspect(self) -> None:
        node = self.some_alive()
        if node is not None:
            self.commit(FenceBroker(node.node_id, node.broker_epoch))

    def come_back(self) -> None:
        """Restart a dead node, which may still be unfenced."""
        dead = [node for node in self.nodes.values() if not node.is_alive]
        if dead:
            self.restart(self.random.choice(dead))

    def shut_down(self) -> None:
        node = self.some_alive()
        if node is not None:
            self.commit(BeginControlledShutdown(node.node_id, node.broker_epoch))

    # -- administration

    def min_isr(self) -> int:
        return self.state.min_insync_replicas(self.state.topics[TOPIC])

    def set_min_isr(self) -> None:
        value = self.random.choice((1, 2, 2, 3))
        if value < 2 and any(node.lost for node in self.nodes.values()):
            return
        operation = ConfigOperation("min.insync.replicas", SET, str(value))
        self.commit(AlterConfigs((ResourceConfigs(BROKER_RESOURCE, "", (operation,)),)))

    def prefer(self) -> None:
        self.commit(ElectLeaders(PREFERRED))

    def reassign(self) -> None:
        index = self.random.randrange(PARTITIONS)
        replicas = None
        if self.random.random() < 0.7:
            replicas = tuple(self.random.sample(sorted(self.nodes), 3))
        self.commit(AlterPartitionReassignments((Reassignment(TOPIC, index, replicas),)))

    def heal(self) -> None:
        """Let all nodes return and apply all metadata.

        Each partition then has a leader with all records.
        """
        for node in self.nodes.values():
            if not node.is_alive:
                self.restart(node)
            self.commit(UnfenceBroker(node.node_id, node.broker_epoch))
        for node in self.nodes.values():
            broker = self.state.brokers[node.node_id]
            if broker.is_shutting_down:
                self.commit(FenceBroker(node.node_id, node.broker_epoch))
                self.commit(UnfenceBroker(node.node_id, node.broker_epoch))
        for node in self.nodes.values():
            self.learn(node, len(self.log))
        for index, partition in enumerate(self.partitions()):
            if partition.leader < 0:
                raise Violation(f"nobody leads {partition}, though all nodes are alive")
            self.judge(self.nodes[partition.leader], index)


def holders(partition: PartitionRegistration) -> set[int]:
    """Return the replicas that have all committed records, according to the metadata."""
    return set(partition.isr + partition.elr or partition.last_known_elr[:1])
