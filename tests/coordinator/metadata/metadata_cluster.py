"""The metadata of a cluster for tests, with a check of its invariants after each command."""

from collections.abc import Iterable
from dataclasses import asdict

from oncelog.coordinator.metadata.cluster_model import NO_LEADER, PartitionRegistration
from oncelog.coordinator.metadata.cluster_state import ClusterState
from oncelog.coordinator.metadata.commands import (
    AlterPartition,
    Command,
    CreateTopics,
    FailReplicas,
    FenceBroker,
    IsrProposal,
    NewTopic,
    RegisterBroker,
    SetClusterId,
    UnfenceBroker,
    encode_command,
)
from oncelog.coordinator.metadata.results import Item, Result


class MetadataCluster:
    """A ClusterState to which a test applies commands, each followed by a check of invariants."""

    def __init__(
        self,
        nodes: Iterable[int] = (1, 2, 3),
        *,
        min_isr: int = 2,
        unclean: bool = False,
        racks: dict[int, str] | None = None,
    ) -> None:
        self.state = ClusterState()
        self.index = 0
        self.boots: dict[int, int] = {}
        self.directories: dict[int, int] = {}
        self.racks = racks or {}
        self.do(
            SetClusterId(
                "test-cluster",
                {
                    "min.insync.replicas": str(min_isr),
                    "unclean.leader.election.enable": str(unclean).lower(),
                    "num.partitions": "3",
                    "default.replication.factor": "2",
                },
            )
        )
        for node in nodes:
            self.start(node)

    def do(self, command: Command, operation_id: bytes = b"") -> Result:
        self.index += 1
        before = partitions(self.state)
        led = {
            key for key, (_, partition) in before.items()
            if partition.leader == getattr(command, "node_id", None)
        }  # fmt: skip
        known = self.state.brokers.get(getattr(command, "node_id", -1))
        result = self.state.apply(encode_command(command, operation_id), self.index, 1)
        failed = command if isinstance(command, FailReplicas) and not result.error else None
        check(self.state, before, failed)
        if isinstance(command, RegisterBroker) and not result.error and known is not None:
            after = partitions(self.state)
            is_new = known.incarnation != command.incarnation
            for key in led:
                assert after[key][1].leader_epoch == before[key][1].leader_epoch + is_new
        return result

    def register(self, node: int, *, lost_power: bool = False, lost_directory: bool = False) -> int:
        """Register a new process of a broker, and return the broker epoch."""
        self.boots[node] = self.boots.get(node, 0) + lost_power
        self.directories[node] = self.directories.get(node, 0) + lost_directory
        known = self.state.brokers.get(node)
        result = self.do(
            RegisterBroker(
                node,
                self.index.to_bytes(16, "big"),
                f"boot-{self.boots[node]}",
                "127.0.0.1",
                9000 + node,
                self.racks.get(node),
                expected_broker_epoch=-1 if known is None else known.broker_epoch,
                directory_id=f"directory-{self.directories[node]}".encode(),
            )
        )
        assert result.error == 0
        return result.broker_epoch

    def start(self, node: int, *, lost_power: bool = False, lost_directory: bool = False) -> int:
        epoch = self.register(node, lost_power=lost_power, lost_directory=lost_directory)
        assert self.unfence(node).error == 0
        return epoch

    def unfence(self, node: int) -> Result:
        return self.do(UnfenceBroker(node, self.epoch(node)))

    def die(self, *nodes: int) -> None:
        for node in nodes:
            assert self.do(FenceBroker(node, self.epoch(node))).error == 0

    def epoch(self, node: int) -> int:
        return self.state.brokers[node].broker_epoch

    def topic(
        self, name: str = "t", *assignments: tuple[int, ...], configs: dict[str, str] | None = None
    ) -> Item:
        topic = NewTopic(
            name,
            topic_id(name),
            assignments=tuple(enumerate(assignments or ((1, 2, 3),))),
            configs=configs or {},
        )
        item = self.do(CreateTopics((topic,))).items[0]
        assert item.error == 0, item.message
        return item

    def partition(self, name: str = "t", index: int = 0) -> PartitionRegistration:
        partition = self.state.partition(name, index)
        assert partition is not None
        return partition

    def propose(
        self,
        *isr: int,
        name: str = "t",
        index: int = 0,
        sender: int | None = None,
        broker_epoch: int | None = None,
        leader_epoch: int | None = None,
        partition_epoch: int | None = None,
        member_epochs: dict[int, int] | None = None,
    ) -> tuple[int, Item | None]:
        """Propose an ISR as the leader does, except for the fields that are given.

        Returns the error of the request, and the item of the partition, which has its own error.
        """
        partition = self.partition(name, index)
        sender = partition.leader if sender is None else sender
        known = {node: broker.broker_epoch for node, broker in self.state.brokers.items()}
        known |= member_epochs or {}
        result = self.do(
            AlterPartition(
                sender,
                known.get(sender, -1) if broker_epoch is None else broker_epoch,
                (
                    IsrProposal(
                        self.state.topics[name].topic_id,
                        index,
                        partition.leader_epoch if leader_epoch is None else leader_epoch,
                        partition.partition_epoch if partition_epoch is None else partition_epoch,
                        tuple((node, known.get(node, -1)) for node in isr),
                    ),
                ),
            )
        )
        return result.error, result.items[0] if result.items else None

    def set_isr(self, *isr: int, name: str = "t", index: int = 0) -> None:
        error, item = self.propose(*isr, name=name, index=index)
        assert error == 0 and item is not None and item.error == 0, item


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"-")[:16]


def partitions(state: ClusterState) -> dict[tuple[bytes, int], tuple[str, PartitionRegistration]]:
    return {
        (topic.topic_id, index): (topic.name, partition)
        for topic in state.topics.values()
        for index, partition in enumerate(topic.partitions)
    }


def check(
    state: ClusterState,
    before: dict[tuple[bytes, int], tuple[str, PartitionRegistration]] | None = None,
    failed: FailReplicas | None = None,
) -> None:
    """Check the invariants of the metadata, and of the change from `before` to `state`.

    `failed` is the command that made the change, if it is a FailReplicas command, or None.
    """
    for key, (name, partition) in partitions(state).items():
        check_partition(state, name, partition)
        if before and key in before:
            is_named = failed is not None and key in failed.partitions
            node = failed.node_id if failed is not None and is_named else NO_LEADER
            check_step(before[key][1], partition, node)
    check_indexes(state)


def check_partition(state: ClusterState, name: str, partition: PartitionRegistration) -> None:
    replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
    last_known_elr = set(partition.last_known_elr)
    assert len(replicas) == len(partition.replicas) > 0
    assert len(isr) == len(partition.isr) and isr <= replicas
    assert len(elr) == len(partition.elr) and elr <= replicas
    assert len(last_known_elr) == len(partition.last_known_elr) and last_known_elr <= replicas
    assert not isr & elr and not last_known_elr & (isr | elr)
    assert isr or elr or last_known_elr, "somebody must be able to lead again"
    assert partition.leader in isr or partition.leader == NO_LEADER
    assert (partition.leader == NO_LEADER) == (not isr) == (partition.last_known_leader >= 0)
    for node in isr:
        assert state.brokers[node].is_active, "a fenced or stopping broker is in an ISR"
    topic = state.topics[name]
    if len(isr) >= state.effective_min_insync_replicas(topic, partition):
        assert not elr and not last_known_elr
    assert set(partition.adding) <= replicas and set(partition.removing) <= replicas


def check_step(
    before: PartitionRegistration, after: PartitionRegistration, failed: int = NO_LEADER
) -> None:
    assert before.leader_epoch <= after.leader_epoch <= before.leader_epoch + 1
    assert before.partition_epoch <= after.partition_epoch
    if before != after:
        assert after.partition_epoch > before.partition_epoch
    starts_epoch = before.leader != after.leader or not set(before.replicas) <= set(after.replicas)
    # A failed replica may be copied again: its earlier fetches do not count.
    starts_epoch |= failed in after.replicas and after.leader not in (NO_LEADER, failed)
    assert after.leader_epoch == before.leader_epoch + starts_epoch


def check_indexes(state: ClusterState) -> None:
    every = [(t.name, i, p) for t in state.topics.values() for i, p in enumerate(t.partitions)]
    for node in [*state.brokers, NO_LEADER]:
        held = {(name, i) for name, i, p in every if node in p.replicas}
        assert set(state.partitions_held_by(node)) == held
        in_sync = {(name, i) for name, i, p in every if node in p.isr}
        assert set(state.partitions_in_sync_on(node)) == in_sync
        eligible = {(name, i) for name, i, p in every if node in (*p.elr, *p.last_known_elr)}
        assert set(state.partitions_eligible_on(node)) == eligible
        assert state.leads_any(node) == any(p.leader == node for _, _, p in every)
    leaderless = {(name, i) for name, i, p in every if p.leader == NO_LEADER}
    assert set(state.leaderless_partitions()) == leaderless
    assert set(state.imbalanced_partitions()) == {(n, i) for n, i, p in every if p.is_imbalanced}
    reassigning = {(name, i) for name, i, p in every if p.is_reassigning}
    assert set(state.reassigning_partitions()) == reassigning
    active = {node: b.broker_epoch for node, b in state.brokers.items() if b.is_active}
    assert state.live_brokers == active
    for topic in state.topics.values():
        assert state.topic_by_id(topic.topic_id) is topic


def visible(state: ClusterState) -> dict:
    """Return the metadata as plain values, to compare two states."""
    return {
        "brokers": {node: asdict(broker) for node, broker in state.brokers.items()},
        "topics": {name: asdict(topic) for name, topic in state.topics.items()},
        "broker_configs": state.broker_configs,
        "others": (
            state.cluster_id,
            state.revision,
            state.next_producer_id,
            state.placement_counter,
            state.defaults,
        ),
    }
